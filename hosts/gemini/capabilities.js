// What Gemini CLI can do behind this host.
export default {
  streaming: 'native',
  tool_read: 'native',
  tool_write: 'native',
  tool_edit: 'native',
  tool_bash: 'native',
  tool_glob: 'native',
  tool_grep: 'native',
  tool_ask_user: 'unsupported',
  hooks_pre_tool_use: 'native',
  hooks_post_tool_use: 'emulated',
  session_resume: { restricted: { reason: 'needs the home directory of the earlier run' } },
  session_fork: 'unsupported',
  mcp_client: 'native',
};
