// The manifest of Codex behind this host.
import { NEEDS_EARLIER_HOME, agentCapabilities, restricted } from '../lib/capabilities.js';

const SEARCH = restricted('it searches with commands of its shell');

export default agentCapabilities({
  tool_read: restricted('it reads with commands of its shell'),
  tool_glob: SEARCH,
  tool_grep: SEARCH,
  session_fork: NEEDS_EARLIER_HOME,
  extended_thinking: 'native',
});
