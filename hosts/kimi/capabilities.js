// The manifest of Kimi Code behind this host.
import { agentCapabilities, restricted } from '../lib/capabilities.js';

const SEARCH = restricted('needs ripgrep on the search path');

export default agentCapabilities({
  streaming: restricted('its headless mode gives whole messages'),
  tool_glob: SEARCH,
  tool_grep: SEARCH,
});
