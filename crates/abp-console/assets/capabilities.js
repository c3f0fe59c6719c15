// @ts-check
// What each backend can do, and why not.

import { html, Commands, Empty, Loaded, useLoaded, useState } from './ui.js';
import { getJson } from './api.js';

/** @type {Record<string, [string, string]>} */
const LEVELS = { native: ['●', 'good'], emulated: ['◐', 'warn'], restricted: ['◑', 'warn'], unsupported: ['○', 'bad'] };

export function CapabilitiesPage() {
  const loaded = useLoaded(async () => {
    const [capabilities, backends] = await Promise.all([getJson('/v1/capabilities'), getJson('/v1/backends')]);
    return { capabilities: capabilities.backends, problems: new Map(backends.backends.map((/** @type {any} */ one) => [one.name, one])) };
  }, []);
  const [filter, setFilter] = useState('');
  const backends = loaded.data?.capabilities ?? [];
  const names = [...new Set(backends.flatMap((/** @type {any} */ one) => Object.keys(one.capabilities ?? {})))].filter((name) => /** @type {string} */ (name).includes(filter)).sort();
  const missing = [...(loaded.data?.problems.values() ?? [])].filter((one) => one.problem);
  return html`<section>
    <div class="head"><h1>Capabilities</h1>
      <input id="search" type="search" placeholder="filter  /" aria-label="filter the capabilities" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      <button onClick=${loaded.reload}>Probe</button>
      <span class="dim">${Object.entries(LEVELS).map(([name, [mark, tone]]) => html`<span class="state ${tone}">${mark} ${name}</span> `)}</span>
      <span class="grow"></span><${Commands} abp="abp backends" path="/v1/capabilities" /></div>
    <${Loaded} of=${loaded} what="the capabilities">
      ${names.length === 0 ? html`<${Empty} title="Nothing to show" />` : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows matrix"><thead><tr><th>capability</th>${backends.map((/** @type {any} */ one) => html`<th>${one.backend}</th>`)}</tr></thead>
        <tbody>${names.map((name) => html`<tr><td>${name}</td>${backends.map((/** @type {any} */ one) => html`<td><${Level} value=${one.capabilities?.[/** @type {string} */ (name)]} isKnown=${Boolean(one.capabilities)} /></td>`)}</tr>`)}</tbody></table></div>`}
      ${missing.length > 0 && html`<div class="head sub"><h2>Not available</h2></div><div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><tbody>${missing.map((one) => html`<tr><td>${one.name}</td><td class="main dim">${one.problem}</td></tr>`)}</tbody></table></div>`}
    <//>
  </section>`;
}

/** @param {{value: any, isKnown: boolean}} props */
function Level({ value, isKnown }) {
  if (value === undefined || value === null) return html`<span class="dim" title=${isKnown ? 'it does not say' : 'known when it is opened'}>${isKnown ? '·' : '?'}</span>`;
  const name = typeof value === 'string' ? value : Object.keys(value)[0];
  const reason = typeof value === 'string' ? '' : value[name]?.reason ?? JSON.stringify(value[name]);
  const [mark, tone] = LEVELS[name] ?? ['·', 'idle'];
  return html`<span class="state ${tone}" title=${reason ? `${name}: ${reason}` : name}>${mark}<span class="offscreen">${name}${reason ? `: ${reason}` : ''}</span></span>`;
}
