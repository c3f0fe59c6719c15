// @ts-check
// What all pages share: rendering, states of a page, text of agents, copy buttons.

import { h, render, Fragment } from './preact.mjs';
import { useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect } from './hooks.mjs';
import htm from './htm.mjs';
import { ApiError } from './api.js';

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
export { h, render, Fragment, useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect };

/** Longer texts are shown in steps of this many characters: a browser stalls on a line of megabytes. */
const TEXT_STEP = 4000;

/** Characters that change the direction or the look of other characters, or show nothing at all. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/**
 * Text of an agent, as text: what is hidden in it is shown by its code point, and a long text is shown in
 * steps.
 * @param {{text: unknown, step?: number}} props
 */
export function AgentText({ text, step = TEXT_STEP }) {
  const whole = typeof text === 'string' ? text : String(text ?? '');
  const [shown, setShown] = useState(step);
  const rest = whole.length - shown;
  return html`<bdi class="agent">${visible(whole.slice(0, shown))}</bdi>${
    rest > 0 &&
    html`<span class="more">
      <span class="dim"> … ${size(rest)} more </span>
      <button class="link" onClick=${() => setShown(shown + step * 8)}>show more</button>
      <${CopyButton} label="copy all" text=${whole} />
    </span>`
  }`;
}

/**
 * Splits a text so that hidden characters become marks.
 * @param {string} text
 */
export function visible(text) {
  HIDDEN.lastIndex = 0;
  if (!HIDDEN.test(text)) return text;
  const parts = [];
  let at = 0;
  HIDDEN.lastIndex = 0;
  for (const found of text.matchAll(HIDDEN)) {
    parts.push(text.slice(at, found.index));
    const code = found[0].codePointAt(0) ?? 0;
    const name = `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
    parts.push(html`<span class="hidden-char" title="a character that shows nothing or turns the text around">${name}</span>`);
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

/** A value of an agent as indented JSON, or as text where it is one. @param {{value: unknown}} props */
export function AgentValue({ value }) {
  const text = useMemo(() => (typeof value === 'string' ? value : JSON.stringify(value, null, 2)), [value]);
  return html`<pre class="value"><${AgentText} text=${text} /></pre>`;
}

/** @param {number} count characters */
export function size(count) {
  if (count < 1000) return `${count} characters`;
  if (count < 1_000_000) return `${(count / 1000).toFixed(count < 10_000 ? 1 : 0)} kB`;
  return `${(count / 1_000_000).toFixed(1)} MB`;
}

/** @param {number|null|undefined} count */
export function number(count) {
  if (count === null || count === undefined) return '–';
  if (count < 10_000) return String(count);
  if (count < 1_000_000) return `${(count / 1000).toFixed(1)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

/** @param {number|null|undefined} dollars */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return '–';
  if (dollars === 0) return '$0';
  if (dollars < 0.0001) return '<$0.0001';
  return `$${dollars.toFixed(dollars < 0.1 ? 4 : 2)}`;
}

/** @param {number|null|undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '–';
  if (ms < 0) return '0 s';
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

/** The age of a time, or the time left. A clock that is ahead of the server's shows no negative age. @param {string} time */
export function ago(time) {
  const ms = Date.now() - Date.parse(time);
  if (Number.isNaN(ms)) return '–';
  if (ms < 0) return ms > -120_000 ? 'now' : `in ${span(-ms)}`;
  return ms < 5000 ? 'now' : `${span(ms)} ago`;
}

/** @param {number} ms */
export function span(ms) {
  if (ms < 60_000) return `${Math.max(1, Math.floor(ms / 1000))} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

/** @param {{time: string|null|undefined}} props */
export function Age({ time }) {
  useTick(5000);
  if (!time) return '–';
  return html`<time datetime=${time} title=${new Date(time).toLocaleString()}>${ago(time)}</time>`;
}

/** Renders again now and then. @param {number} ms */
export function useTick(ms) {
  const [, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => set((/** @type {number} */ n) => n + 1), ms);
    return () => clearInterval(timer);
  }, [ms]);
}

/** @type {Record<string, string>} */
const TONES = {
  queued: 'idle', running: 'busy', awaiting_approval: 'ask', complete: 'good', partial: 'warn', failed: 'bad',
  cancelled: 'idle', open: 'ask', approved: 'good', denied: 'bad', expired: 'idle', withdrawn: 'idle',
  active: 'good', revoked: 'bad', applied: 'good', discarded: 'idle', conflict: 'bad', undecided: 'ask',
  unchanged: 'idle', native: 'good', emulated: 'warn', restricted: 'warn', unsupported: 'bad', lossless: 'good',
  lossy: 'warn', exact: 'good', closed: 'good', half_open: 'warn',
};

/** A state as a word with a coloured dot. The word says it too: colour is never alone. @param {{state: string, tone?: string}} props */
export function State({ state, tone }) {
  const word = String(state ?? '').replaceAll('_', ' ');
  return html`<span class="state ${tone ?? TONES[state] ?? 'idle'}"><i aria-hidden="true"></i>${word}</span>`;
}

/** @param {{text: string, label?: string, title?: string}} props */
export function CopyButton({ text, label = 'copy', title }) {
  const [state, setState] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState('copied');
    } catch {
      setState(copyByHand(text) ? 'copied' : 'select it by hand');
    }
    setTimeout(() => setState(''), 1500);
  };
  return html`<button class="copy" type="button" onClick=${copy} title=${title ?? 'copy to the clipboard'}>${state || label}</button>`;
}

/** Where the page is not on https or localhost there is no clipboard interface. @param {string} text */
function copyByHand(text) {
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'offscreen';
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

/** @param {string} text a word for a shell */
export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * The commands that do the same. The key is never part of them.
 * @param {{abp?: string, path: string, method?: string, body?: unknown, accept?: string}} props
 */
export function Commands({ abp, path, method, body, accept }) {
  const parts = [`curl -s ${quote(location.origin + path)}`, `-H "authorization: Bearer $ABP_KEY"`];
  if (accept) parts.push(`-H ${quote(`accept: ${accept}`)}`);
  if (body !== undefined) parts.push(`-H 'content-type: application/json'`, `-d ${quote(JSON.stringify(body))}`);
  if (method && method !== 'GET' && !(method === 'POST' && body !== undefined)) parts.push(`-X ${method}`);
  return html`<span class="commands">
    ${abp && html`<${CopyButton} label="abp" text=${abp} title=${abp} />`}
    <${CopyButton} label="curl" text=${parts.join(' ')} title="copy the request as a curl command; set ABP_KEY first" />
  </span>`;
}

/**
 * Loads something, and loads it again at an interval while the page is visible.
 * @param {() => Promise<any>} load
 * @param {unknown[]} inputs
 * @param {{every?: number}} [options]
 * @returns {{data: any, error: ApiError|null, isLoading: boolean, reload: () => void}}
 */
export function useLoaded(load, inputs, options = {}) {
  const [state, setState] = useState(/** @type {any} */ ({ data: null, error: null, isLoading: true }));
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((/** @type {number} */ n) => n + 1), []);
  const seen = useRef(/** @type {unknown[]} */ ([]));
  useEffect(() => {
    let isCurrent = true;
    const isNew = seen.current.length !== inputs.length || inputs.some((input, i) => input !== seen.current[i]);
    seen.current = inputs;
    if (isNew) setState({ data: null, error: null, isLoading: true });
    const run = async () => {
      try {
        const data = await load();
        if (isCurrent) setState({ data, error: null, isLoading: false });
      } catch (error) {
        if (!isCurrent) return;
        const shown = error instanceof ApiError ? error : new ApiError('failed', String(error));
        // What was loaded before stays on the page while the server is away.
        setState((/** @type {any} */ old) => ({ data: shown.kind === 'offline' ? old.data : null, error: shown, isLoading: false }));
      }
    };
    run();
    if (!options.every) return () => { isCurrent = false; };
    const timer = setInterval(() => { if (!document.hidden) run(); }, options.every);
    return () => { isCurrent = false; clearInterval(timer); };
  }, [...inputs, round]);
  return { ...state, reload };
}

/**
 * What a page shows while it has nothing else to show: it loads, may not, or cannot.
 * @param {{of: {data: any, error: ApiError|null, isLoading: boolean, reload: () => void}, what: string, children?: any}} props
 */
export function Loaded({ of, what, children }) {
  if (of.error && !(of.error.kind === 'offline' && of.data)) return html`<${Problem} error=${of.error} what=${what} retry=${of.reload} />`;
  if (of.isLoading && !of.data) return html`<div class="note" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what} …</div>`;
  return children;
}

/** @param {{error: ApiError, what?: string, retry?: () => void}} props */
export function Problem({ error, what, retry }) {
  const [title, advice] = advise(error, what);
  return html`<div class="note problem ${error.kind}" role="alert">
    <strong>${title}</strong>
    <p>${error.message}${error.place ? html` <code>${error.place}</code>` : ''}</p>
    ${error.hint && html`<p class="dim">${error.hint}</p>`}
    ${advice && html`<p>${advice}</p>`}
    <p>
      ${retry && html`<button onClick=${retry}>Try again</button> `}
      ${error.code && html`<code class="dim">${error.code}</code> <${CopyButton} label="abp explain" text=${`abp explain ${error.code}`} />`}
    </p>
  </div>`;
}

/**
 * @param {ApiError} error
 * @param {string} [what]
 * @returns {[string, any]}
 */
function advise(error, what) {
  const thing = what ?? 'this';
  switch (error.kind) {
    case 'unauthenticated':
      return ['This key is not accepted', html`It may be wrong, expired or revoked. <a href="#/key">Use another key</a>.`];
    case 'forbidden':
      return [`This key may not see ${thing}`, html`Ask the operator for a key with the scope that is named above, or <a href="#/key">use another key</a>.`];
    case 'not_found':
      return [`There is no such thing`, 'It was deleted, never existed, or belongs to another key.'];
    case 'offline':
      return ['The server does not answer', 'It was stopped, or the network is gone. The page goes on by itself when it is back.'];
    case 'busy':
      return ['The server is busy', 'Wait a moment and try again.'];
    case 'failed':
      return [`${thing[0].toUpperCase()}${thing.slice(1)} could not be loaded`, null];
  }
}

/** @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="note empty"><strong>${title}</strong><div>${children}</div></div>`;
}

/**
 * A button that does something that may fail, and says so beside itself.
 * @param {{act: () => Promise<any>, children?: any, class?: string, disabled?: boolean, confirm?: string, title?: string}} props
 */
export function ActionButton({ act, children, class: name = '', disabled, confirm, title }) {
  const [state, setState] = useState(/** @type {{isBusy: boolean, isAsking: boolean, error: ApiError|null}} */ ({ isBusy: false, isAsking: false, error: null }));
  const go = async () => {
    if (confirm && !state.isAsking) return setState({ isBusy: false, isAsking: true, error: null });
    setState({ isBusy: true, isAsking: false, error: null });
    try {
      await act();
      setState({ isBusy: false, isAsking: false, error: null });
    } catch (error) {
      const shown = error instanceof ApiError ? error : new ApiError('failed', String(error));
      setState({ isBusy: false, isAsking: false, error: shown });
    }
  };
  return html`<span class="action">
    <button type="button" class=${name} onClick=${go} disabled=${disabled || state.isBusy} title=${title}>${state.isAsking ? confirm : children}</button>
    ${state.isAsking && html`<button type="button" class="link" onClick=${() => setState({ isBusy: false, isAsking: false, error: null })}>no</button>`}
    ${state.error && html`<span class="action-error" role="alert">${state.error.message}</span>`}
  </span>`;
}

/** Moves a selection over rows with `j` and `k`, opens it with enter. @param {number} count @param {(index: number) => void} open */
export function useRowKeys(count, open) {
  const [at, setAt] = useState(-1);
  const atRef = useRef(at);
  atRef.current = at;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      if (isTyping(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === 'j') setAt((/** @type {number} */ n) => Math.min(count - 1, n + 1));
      else if (event.key === 'k') setAt((/** @type {number} */ n) => Math.max(0, n - 1));
      else if (event.key === 'Enter' && atRef.current >= 0 && atRef.current < count && !isControl(event)) open(atRef.current);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [count, open]);
  useEffect(() => {
    document.querySelector('[data-selected]')?.scrollIntoView({ block: 'nearest' });
  }, [at]);
  return at;
}

/** @param {KeyboardEvent} event */
export function isTyping(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  return target.matches?.('input, textarea, select, [contenteditable]') ?? false;
}

/** @param {KeyboardEvent} event */
function isControl(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  return target.matches?.('button, a, summary') ?? false;
}

/** @param {string} id */
export function short(id) {
  return id.length > 13 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** @type {Set<(text: string) => void>} */
const noticeWatchers = new Set();

/** Tells the person something that outlives the part of the page it came from. @param {string} text */
export function notify(text) {
  for (const watcher of noticeWatchers) watcher(text);
}

/** What was told last, until it is closed. */
export function Notice() {
  const [text, setText] = useState('');
  useEffect(() => {
    noticeWatchers.add(setText);
    return () => { noticeWatchers.delete(setText); };
  }, []);
  return html`<div role="status">${text && html`<div class="note warn">${text} <button class="link" onClick=${() => setText('')}>close</button></div>`}</div>`;
}

/** The place in the page, from its fragment. */
export function route() {
  const hash = location.hash.replace(/^#\/?/, '');
  const [path, search] = hash.split('?', 2);
  const [page = '', ...rest] = (path ?? '').split('/').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { page: page || 'runs', rest, search: new URLSearchParams(search ?? '') };
}
