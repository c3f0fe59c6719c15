// What Claude Code can do behind this host.
export default {
  streaming: 'native',
  tool_read: 'native',
  tool_write: 'native',
  tool_edit: 'native',
  tool_bash: 'native',
  tool_glob: { restricted: { reason: 'its shell has find and ripgrep; there is no tool of its own for it' } },
  tool_grep: { restricted: { reason: 'its shell has find and ripgrep; there is no tool of its own for it' } },
  tool_ask_user: 'unsupported',
  hooks_pre_tool_use: 'native',
  hooks_post_tool_use: 'emulated',
  session_resume: { restricted: { reason: 'needs the home directory of the earlier run' } },
  session_fork: { restricted: { reason: 'needs the home directory of the earlier run' } },
  extended_thinking: 'native',
  mcp_client: 'native',
};
