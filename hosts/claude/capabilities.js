// The manifest of Claude Code behind this host.
import { NEEDS_EARLIER_HOME, agentCapabilities, restricted } from '../lib/capabilities.js';

const SEARCH = restricted('its shell has find and ripgrep; there is no tool of its own for it');

export default agentCapabilities({
  tool_glob: SEARCH,
  tool_grep: SEARCH,
  session_fork: NEEDS_EARLIER_HOME,
  extended_thinking: 'native',
});
