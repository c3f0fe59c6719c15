// @ts-check
import { html } from './ui.js';
export function McpPage() { return html`<p>soon</p>`; }
