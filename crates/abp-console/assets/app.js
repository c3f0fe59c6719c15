// @ts-check
// The frame of the console: key, navigation, keyboard, and the page that the address names.

import { html, render, isTyping, Notice, route, useEffect, useState, useLoaded } from './ui.js';
import { getJson, savedKey, send, saveKey, watchConnection } from './api.js';
import { NewRunPage, RunsPage } from './runs.js';
import { RunPage } from './run.js';
import { ApprovalsPage } from './approvals.js';
import { VerifyPage } from './receipt.js';
import { GatewayPage } from './gateway.js';
import { TranslatePage } from './translate.js';
import { CapabilitiesPage } from './capabilities.js';
import { McpPage } from './mcp.js';
import { SystemPage } from './system.js';

const PAGES = [
  ['runs', 'Runs'], ['approvals', 'Approvals'], ['receipts', 'Receipts'], ['gateway', 'Gateway'], ['translate', 'Translate'],
  ['capabilities', 'Capabilities'], ['mcp', 'MCP'], ['system', 'System'],
];

/**
 * Takes the key, or a one-time code for one, out of the address, where it would stay in the history.
 * @returns {Promise<string>} what went wrong
 */
async function takeCredential() {
  const found = /^#(key|code)=([^&]+)/.exec(location.hash);
  if (!found) return '';
  history.replaceState(null, '', `${location.pathname}#/runs`);
  const value = decodeURIComponent(found[2]);
  if (found[1] === 'key') {
    saveKey(value);
    return '';
  }
  try {
    const response = await send('/v1/codes/redeem', { method: 'POST', headers: { 'x-abp-code': value }, key: '' });
    saveKey((await response.json()).key);
    return '';
  } catch (error) {
    return `${error instanceof Error ? error.message : error}; run abp ui again, or type the key`;
  }
}

/** @param {{problem: string}} props */
function App({ problem }) {
  const [place, setPlace] = useState(route());
  const [key, setKey] = useState(savedKey());
  const [isOnline, setOnline] = useState(true);
  const [isHelp, setHelp] = useState(false);
  useEffect(() => {
    const onHash = async () => {
      if (/^#(key|code)=/.test(location.hash)) await takeCredential();
      setKey(savedKey());
      setPlace(route());
      scrollTo(0, 0);
    };
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, []);
  useEffect(() => {
    const stop = watchConnection(setOnline);
    return () => { stop(); };
  }, []);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      if (event.key === 'Escape') {
        setHelp(false);
        if (isTyping(event)) /** @type {HTMLElement} */ (event.target).blur();
      }
      if (isTyping(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === '?') setHelp((/** @type {boolean} */ old) => !old);
      else if (event.key === '/') document.getElementById('search')?.focus();
      else if (event.key === 'n') location.hash = '#/new';
      else if (/^[1-8]$/.test(event.key)) location.hash = `#/${PAGES[Number(event.key) - 1][0]}`;
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  useEffect(() => {
    const page = PAGES.find(([name]) => name === place.page)?.[1] ?? 'Run';
    document.title = `${page} – Agent Backplane`;
  }, [place.page]);
  const isKeyPage = place.page === 'key' || !key;
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {any} */ event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>to the content</a>
    <header class="top">
      <a class="brand" href="#/runs" aria-label="Agent Backplane"><img src="/console/icon.svg" alt="" width="18" height="18" /> <span>Agent Backplane</span></a>
      ${!isKeyPage && html`<nav aria-label="pages">${PAGES.map(([name, title]) => html`<a href=${`#/${name}`} aria-current=${isAt(place.page, name) ? 'page' : undefined}>${title}${name === 'approvals' ? html`<${OpenCount} />` : ''}</a>`)}</nav>`}
      <span class="grow"></span>
      ${!isKeyPage && html`<button class="link" title="keyboard (?)" aria-label="keyboard" onClick=${() => setHelp(!isHelp)}>?</button> <a class="link" href="#/key">key</a>`}
    </header>
    ${!isOnline && html`<div class="offline" role="alert">The server does not answer. What you see may be old; the page goes on by itself when it is back.</div>`}
    ${isHelp && html`<${Help} close=${() => setHelp(false)} />`}
    <main id="main" tabindex="-1"><${Notice} />${isKeyPage ? html`<${KeyPage} problem=${problem} onKey=${(/** @type {string} */ next) => { saveKey(next); setKey(next); if (next) location.hash = '#/runs'; }} />` : html`<${Page} place=${place} />`}</main>`;
}

/** @param {string} page @param {string} name */
function isAt(page, name) {
  return page === name || (name === 'runs' && page === 'new');
}

/** @param {{place: ReturnType<typeof route>}} props */
function Page({ place }) {
  const [first = '', second = ''] = place.rest;
  switch (place.page) {
    case 'runs':
      return first ? html`<${RunPage} key=${first} runId=${first} tab=${second} />` : html`<${RunsPage} />`;
    case 'new':
      return html`<${NewRunPage} />`;
    case 'approvals':
      return html`<${ApprovalsPage} />`;
    case 'receipts':
      return html`<${VerifyPage} id=${first} />`;
    case 'gateway':
      return html`<${GatewayPage} tab=${first} />`;
    case 'translate':
      return html`<${TranslatePage} />`;
    case 'capabilities':
      return html`<${CapabilitiesPage} />`;
    case 'mcp':
      return html`<${McpPage} />`;
    case 'system':
      return html`<${SystemPage} />`;
    default:
      return html`<div class="note problem"><strong>There is no page here</strong><p><a href="#/runs">Runs</a></p></div>`;
  }
}

/** How many questions wait. A key that may not see them sees no number. */
function OpenCount() {
  const loaded = useLoaded(() => getJson('/v1/approvals?open=true&limit=100'), [], { every: 3000 });
  const count = loaded.data?.approvals.length ?? 0;
  return count ? html` <span class="count" aria-label=${`${count} open`}>${count >= 100 ? '99+' : count}</span>` : '';
}

/** @param {{problem: string, onKey: (key: string) => void}} props */
function KeyPage({ problem, onKey }) {
  const [text, setText] = useState('');
  const [error, setError] = useState(problem);
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const next = text.trim();
    if (!next) return;
    // A key without the scope for runs is a good key, too: its pages say what it may not see.
    try {
      await getJson('/v1/runs?limit=1', { key: next });
    } catch (failure) {
      if (/** @type {any} */ (failure).kind !== 'forbidden') return setError(/** @type {any} */ (failure).message);
    }
    onKey(next);
  };
  return html`<section class="narrow key-page">
    <h1>Use a key</h1>
    <p class="dim">The key stays in this tab: it is in no cookie, and it is gone when you close the tab.</p>
    <form class="form single" onSubmit=${submit}>
      <label for="key">Key</label>
      <input id="key" type="password" autocomplete="off" spellcheck=${false} value=${text} placeholder="abp_…" onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      ${error && html`<p class="action-error" role="alert">${error}</p>`}
      <div class="bar"><button class="primary" type="submit">Continue</button>${savedKey() && html`<button type="button" class="link" onClick=${() => onKey('')}>Forget the key of this tab</button>`}</div>
    </form>
    <p class="dim">On the machine of the server, <code>abp ui</code> opens this page without a key to type, and <code>abp keys show operator</code> prints the operator's.</p>
  </section>`;
}

/** @param {{close: () => void}} props */
function Help({ close }) {
  const keys = [['j / k', 'next and previous row'], ['enter', 'open the row'], ['/', 'filter'], ['n', 'new run'], ['1 … 8', 'pages'], ['?', 'this help'], ['esc', 'close']];
  return html`<aside class="help" aria-label="keyboard"><dl>${keys.map(([key, about]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${about}</dd></div>`)}</dl><button class="link" onClick=${close}>close</button></aside>`;
}

takeCredential().then((problem) => {
  const root = /** @type {HTMLElement} */ (document.getElementById('app'));
  root.replaceChildren();
  render(html`<${App} problem=${problem} />`, root);
});
