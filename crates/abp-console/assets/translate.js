// @ts-check
import { html } from './ui.js';
export function TranslatePage() { return html`<p>soon</p>`; }
