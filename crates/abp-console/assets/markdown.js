// @ts-check
// Markdown of agents as elements. There is no HTML in it: every piece becomes a text node, whatever it says,
// and only http and https addresses become links.

import { html, visible } from './ui.js';

/** Texts longer than this are shown as they are: agents' files are not prose. */
const MAX_MARKDOWN = 20_000;

/** @param {{text: string}} props */
export function Markdown({ text }) {
  if (text.length > MAX_MARKDOWN) return null;
  return html`<div class="md">${blocks(text)}</div>`;
}

/** @param {string} text */
export function isMarkdown(text) {
  return text.length <= MAX_MARKDOWN && /[`*#\-\[|>]/.test(text);
}

/** @param {string} text */
function blocks(text) {
  /** @type {any[]} */
  const out = [];
  const lines = text.split('\n');
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      const body = [];
      at += 1;
      while (at < lines.length && !lines[at].trim().startsWith(fence[1])) body.push(lines[at++]);
      at += 1;
      out.push(html`<pre class="value">${visible(body.join('\n'))}</pre>`);
    } else if (/^#{1,6} /.test(line)) {
      out.push(html`<p class="md-head">${inline(line.replace(/^#+ /, ''))}</p>`);
      at += 1;
    } else if (/^\s*([-*+]|\d+[.)]) /.test(line)) {
      const items = [];
      while (at < lines.length && /^\s*([-*+]|\d+[.)]) /.test(lines[at])) {
        items.push(html`<li>${inline(lines[at++].replace(/^\s*([-*+]|\d+[.)]) /, ''))}</li>`);
      }
      out.push(/^\s*\d/.test(line) ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`);
    } else if (line.trim() === '') {
      at += 1;
    } else {
      const body = [];
      while (at < lines.length && lines[at].trim() !== '' && !/^(\s*(```|~~~|[-*+] |\d+[.)] )|#{1,6} )/.test(lines[at])) body.push(lines[at++]);
      // A line that only looked like the start of something else is text.
      if (body.length === 0) body.push(lines[at++]);
      out.push(html`<p>${inline(body.join('\n'))}</p>`);
    }
  }
  return out;
}

const INLINE = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(!?\[[^\]\n]*\]\([^)\s]+\))|(\*[^*\s][^*\n]*\*)/g;

/** @param {string} text */
function inline(text) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    out.push(visible(text.slice(at, found.index)));
    out.push(piece(found[0]));
    at = found.index + found[0].length;
  }
  out.push(visible(text.slice(at)));
  return out;
}

/** @param {string} text */
function piece(text) {
  if (text.startsWith('`')) return html`<code>${visible(text.slice(1, -1))}</code>`;
  if (text.startsWith('**')) return html`<strong>${visible(text.slice(2, -2))}</strong>`;
  if (text.startsWith('*')) return html`<em>${visible(text.slice(1, -1))}</em>`;
  const link = /^(!?)\[([^\]]*)\]\(([^)]+)\)$/.exec(text);
  if (!link) return visible(text);
  const [, isImage, label, target] = link;
  const address = safeAddress(target);
  if (isImage || !address) return html`<span class="unlinked">${visible(label || target)} <span class="dim">(${visible(target)})</span></span>`;
  // The address stands beside its label, so that a label cannot pass for another address.
  return html`<a href=${address} rel="noopener noreferrer nofollow" target="_blank">${visible(label || target)}</a><span class="dim"> (${visible(new URL(address).host)})</span>`;
}

/** @param {string} target */
export function safeAddress(target) {
  if (!/^https?:\/\//i.test(target)) return null;
  try {
    const url = new URL(target);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}
