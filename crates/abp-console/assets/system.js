// @ts-check
// The server itself: health, version, log, configuration with the origin of each value.

import { html, AgentText, CopyButton, Commands, Loaded, State, number, useLoaded, useState } from './ui.js';
import { ApiError, getJson, send } from './api.js';

export function SystemPage() {
  const health = useLoaded(async () => {
    const version = await getJson('/version');
    let ready = true;
    try {
      await send('/readyz');
    } catch (error) {
      if (error instanceof ApiError && error.kind === 'offline') throw error;
      ready = false;
    }
    const started = performance.now();
    const response = await send('/healthz');
    return { version, ready, latency: performance.now() - started, date: response.headers.get('date') };
  }, [], { every: 5000 });
  const log = useLoaded(() => getJson('/v1/log/checkpoint'), [], { every: 5000 });
  const backends = useLoaded(() => getJson('/v1/backends'), []);
  const skew = health.data?.date ? Math.round((Date.now() - Date.parse(health.data.date)) / 1000) : 0;
  const list = backends.data?.backends ?? [];
  return html`<section>
    <div class="head"><h1>System</h1><span class="grow"></span><${CopyButton} label="abp doctor" text="abp doctor" /><${Commands} path="/readyz" /></div>
    <div class="parts">
      <section class="part"><h2>Health</h2><${Loaded} of=${health} what="the health">${health.data && html`<dl class="facts">
        <dt>state</dt><dd><${State} state=${health.data.ready ? 'ready' : 'not ready'} tone=${health.data.ready ? 'good' : 'bad'} /></dd>
        <dt>version</dt><dd>${health.data.version.version} <span class="dim">contract ${health.data.version.contract}</span></dd>
        <dt>answers in</dt><dd>${health.data.latency.toFixed(1)} ms</dd>
        <dt>clock</dt><dd>${Math.abs(skew) < 3 ? 'as here' : html`<span class="warn-text">this machine is ${Math.abs(skew)} s ${skew > 0 ? 'ahead of' : 'behind'} the server: ages shown here are off by that</span>`}</dd>
      </dl>`}<//></section>
      <section class="part"><h2>Log of receipts</h2><${Loaded} of=${log} what="the log">${log.data && html`<dl class="facts">
        <dt>entries</dt><dd>${number(log.data.size)}</dd><dt>root</dt><dd class="mono wrap">${log.data.root}</dd><dt>key</dt><dd class="mono wrap">${log.data.key}</dd>
        <dt>checkpoint</dt><dd><${CopyButton} label="copy, to keep elsewhere" text=${log.data.checkpoint} /> <${Commands} abp="abp receipt checkpoint > kept-elsewhere.txt" path="/v1/log/checkpoint" /></dd></dl>`}<//></section>
      <section class="part"><h2>Backends</h2><${Loaded} of=${backends} what="the backends"><dl class="facts">
        <dt>available</dt><dd>${list.filter((/** @type {any} */ one) => !one.problem).map((/** @type {any} */ one) => html`<span>${one.name}${one.is_default ? ' (default)' : ''} </span>`)}</dd>
        <dt>not available</dt><dd>${list.filter((/** @type {any} */ one) => one.problem).length} <a href="#/capabilities">why</a></dd></dl><//></section>
    </div>
    <${Configuration} />
  </section>`;
}

function Configuration() {
  const loaded = useLoaded(() => getJson('/v1/config'), []);
  const [filter, setFilter] = useState('');
  const [isAll, setAll] = useState(false);
  const rows = flatten(loaded.data?.config ?? {}).map(([name, value]) => ({ name, value, origin: loaded.data.origins[name] }));
  const shown = rows.filter((row) => row.name.includes(filter) && (isAll || filter || (row.origin && row.origin.type !== 'default')));
  return html`<div class="head sub"><h2>Configuration</h2>
      <input id="search" type="search" placeholder="filter  /" aria-label="filter the configuration" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      <label class="dim"><input type="checkbox" checked=${isAll} onChange=${() => setAll(!isAll)} /> defaults, too</label>
      <span class="grow"></span><${Commands} abp="abp config show" path="/v1/config" /></div>
    <${Loaded} of=${loaded} what="the configuration"><div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>setting</th><th>value</th><th>origin</th></tr></thead>
      <tbody>${shown.map((row) => html`<tr><td class="mono">${row.name}</td><td class="main"><code><${AgentText} text=${JSON.stringify(row.value)} step=${300} /></code></td><td class="dim">${originText(row.origin)}</td></tr>`)}
      ${shown.length === 0 && html`<tr><td colspan="3" class="dim">every value is the default</td></tr>`}</tbody></table></div><//>`;
}

/** @param {any} origin */
function originText(origin) {
  if (!origin || origin.type === 'default') return 'default';
  if (origin.type === 'file') return `${origin.path}:${origin.line}`;
  return [origin.type, origin.name].filter(Boolean).join(' ');
}

/** @param {any} value @returns {[string, any][]} */
function flatten(value, prefix = '') {
  return Object.entries(value).flatMap(([name, inner]) => {
    const path = prefix ? `${prefix}.${name}` : name;
    const isBranch = inner !== null && typeof inner === 'object' && !Array.isArray(inner) && Object.keys(inner).length > 0;
    return isBranch ? flatten(inner, path) : [/** @type {[string, any]} */ ([path, inner])];
  });
}
