// @ts-check
import { html } from './ui.js';
export function CapabilitiesPage() { return html`<p>soon</p>`; }
