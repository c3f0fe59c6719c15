// The manifest of Copilot behind this host.
import { agentCapabilities } from '../lib/capabilities.js';

export default agentCapabilities({});
