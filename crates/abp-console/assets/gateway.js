// @ts-check
import { html } from './ui.js';
export function GatewayPage() { return html`<p>soon</p>`; }
