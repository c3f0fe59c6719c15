// The manifest that hosts of vendors' agents share; each says only how its agent differs.

/** Limited by something the operator can change; `reason` names it. */
export const restricted = (reason) => ({ restricted: { reason } });

/** Sessions are files of the agent's home directory. */
export const NEEDS_EARLIER_HOME = restricted('needs the home directory of the earlier run');

const USUAL = {
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
  session_resume: NEEDS_EARLIER_HOME,
  session_fork: 'unsupported',
  mcp_client: 'native',
};

/** The usual manifest with the differences of one agent. */
export const agentCapabilities = (differences) => ({ ...USUAL, ...differences });
