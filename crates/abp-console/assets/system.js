// @ts-check
import { html } from './ui.js';
export function SystemPage() { return html`<p>soon</p>`; }
