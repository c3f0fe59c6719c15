// What Kimi Code can do behind this host.
export default {
  streaming: { restricted: { reason: 'its headless mode gives whole messages' } },
  tool_read: 'native',
  tool_write: 'native',
  tool_edit: 'native',
  tool_bash: 'native',
  tool_glob: { restricted: { reason: 'needs ripgrep on the search path' } },
  tool_grep: { restricted: { reason: 'needs ripgrep on the search path' } },
  tool_ask_user: 'unsupported',
  hooks_pre_tool_use: 'native',
  hooks_post_tool_use: 'emulated',
  session_resume: { restricted: { reason: 'needs the home directory of the earlier run' } },
  session_fork: 'unsupported',
  mcp_client: 'native',
};
