// The manifest of Gemini CLI behind this host.
import { agentCapabilities } from '../lib/capabilities.js';

export default agentCapabilities({});
