// @ts-check
// Traffic through the gateway: exchanges, what translation lost, upstreams, usage over time, keys.

import { html, AgentText, Age, Commands, Empty, Loaded, State, duration, money, number, short, useLoaded, useState } from './ui.js';
import { getJson, query } from './api.js';
import { KeysPart } from './keys.js';

const TABS = [['', 'Overview'], ['exchanges', 'Exchanges'], ['losses', 'Losses'], ['keys', 'Keys']];

/** @param {{tab: string}} props */
export function GatewayPage({ tab }) {
  const [hours, setHours] = useState(24);
  return html`<section>
    <div class="head"><h1>Gateway</h1>
      <select aria-label="time" value=${String(hours)} onChange=${(/** @type {any} */ event) => setHours(Number(event.target.value))}>
        <option value="1">last hour</option><option value="24">last 24 hours</option><option value="168">last 7 days</option><option value="720">last 30 days</option>
      </select>
    </div>
    <nav class="tabs" aria-label="parts of the gateway">${TABS.map(([name, title]) => html`<a href=${`#/gateway${name ? `/${name}` : ''}`} aria-current=${tab === name ? 'page' : undefined}>${title}</a>`)}</nav>
    ${tab === 'exchanges' ? html`<${Exchanges} hours=${hours} />` : tab === 'losses' ? html`<${Losses} hours=${hours} />` : tab === 'keys' ? html`<${KeysPart} />` : html`<${Overview} hours=${hours} />`}
  </section>`;
}

/** @param {{hours: number}} props */
function Overview({ hours }) {
  const total = useLoaded(() => getJson(`/v1/usage/series?hours=${hours}`), [hours], { every: 5000 });
  const upstreams = useLoaded(() => getJson('/v1/upstreams'), [], { every: 5000 });
  const [by, setBy] = useState('model');
  const parts = useLoaded(() => getJson(`/v1/usage/series?hours=${hours}&by=${by}`), [hours, by], { every: 5000 });
  const series = total.data?.series[0];
  const points = series?.points ?? [];
  const sum = series?.total;
  return html`<${Loaded} of=${total} what="the usage">
    ${!sum
      ? html`<${Empty} title="No requests in this time"><p>Point an SDK at <code>${location.origin}/v1</code> with a key of the gateway.</p><//>`
      : html`<div class="tiles">
          <${Tile} title="requests" value=${number(sum.requests)} note=${sum.failed ? `${sum.failed} failed` : 'none failed'} />
          <${Tile} title="tokens in" value=${number(sum.input_tokens)} />
          <${Tile} title="tokens out" value=${number(sum.output_tokens)} />
          <${Tile} title="cost" value=${money(sum.cost_usd)} />
          <${Tile} title="latency p50" value=${duration((sum.p50_us ?? 0) / 1000)} note=${`p95 ${duration((sum.p95_us ?? 0) / 1000)}`} />
        </div>
        ${total.data && !total.data.is_complete && html`<p class="warn-text">Only the newest ${number(total.data.counted)} exchanges were counted.</p>`}
        <div class="charts">
          <${Chart} title="requests" values=${points.map((/** @type {any} */ point) => point.requests)} format=${number} />
          <${Chart} title="tokens" values=${points.map((/** @type {any} */ point) => point.input_tokens + point.output_tokens)} format=${number} />
          <${Chart} title="latency p95" values=${points.map((/** @type {any} */ point) => (point.p95_us ?? 0) / 1000)} format=${duration} />
          <${Chart} title="cost" values=${points.map((/** @type {any} */ point) => point.cost_usd)} format=${money} />
        </div>`}
    <div class="head sub"><h2>Upstreams</h2><span class="grow"></span><${Commands} abp="abp models" path="/v1/upstreams" /></div>
    <${Loaded} of=${upstreams} what="the upstreams"><div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>upstream</th><th>health</th><th>dialects</th><th>models</th></tr></thead><tbody>
      ${(upstreams.data?.upstreams ?? []).map((/** @type {any} */ upstream) => html`<tr><td>${upstream.name}</td><td><${State} state=${{ closed: 'healthy', open: 'cooldown', half_open: 'probing' }[/** @type {'closed'|'open'|'half_open'} */ (upstream.circuit)]} tone=${{ closed: 'good', open: 'bad', half_open: 'warn' }[/** @type {'closed'|'open'|'half_open'} */ (upstream.circuit)]} />${upstream.retry_in_ms ? html` <span class="dim">asked again in ${duration(upstream.retry_in_ms)}</span>` : ''}</td><td>${upstream.dialects.join(', ')}</td><td class="main">${upstream.models.join(', ') || 'all'}</td></tr>`)}
    </tbody></table></div><//>
    <div class="head sub"><h2>Cost and usage</h2>
      <select aria-label="by" value=${by} onChange=${(/** @type {any} */ event) => setBy(event.target.value)}><option value="model">by model</option><option value="key">by key</option><option value="upstream">by upstream</option></select>
      <span class="grow"></span><${Commands} path=${`/v1/usage/series?hours=${hours}&by=${by}`} /></div>
    <${Loaded} of=${parts} what="the usage"><div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>${by}</th><th class="num">requests</th><th class="num">failed</th><th class="num">in</th><th class="num">out</th><th class="num">cost</th><th class="num">p95</th></tr></thead><tbody>
      ${(parts.data?.series ?? []).map((/** @type {any} */ one) => html`<tr><td class="main"><${AgentText} text=${one.name} step=${120} /></td><td class="num">${number(one.total.requests)}</td><td class="num">${number(one.total.failed)}</td><td class="num">${number(one.total.input_tokens)}</td><td class="num">${number(one.total.output_tokens)}</td><td class="num">${money(one.total.cost_usd)}</td><td class="num">${duration((one.total.p95_us ?? 0) / 1000)}</td></tr>`)}
    </tbody></table></div><//>
  <//>`;
}

/** @param {{title: string, value: string, note?: string}} props */
function Tile({ title, value, note }) {
  return html`<div class="tile"><span class="dim">${title}</span><b>${value}</b>${note && html`<span class="dim small">${note}</span>`}</div>`;
}

/** Bars over time. @param {{title: string, values: number[], format: (value: number) => string}} props */
function Chart({ title, values, format }) {
  const top = Math.max(...values, 0);
  const width = 480 / Math.max(1, values.length);
  return html`<figure class="chart"><figcaption class="dim">${title} <span>at most ${format(top)}</span></figcaption>
    <svg viewBox="0 0 480 90" preserveAspectRatio="none" role="img" aria-label=${`${title} over time, at most ${format(top)}`}>
      ${values.map((value, i) => html`<rect x=${i * width + 0.5} width=${Math.max(1, width - 1)} y=${90 - (top ? (value / top) * 86 : 0)} height=${top ? (value / top) * 86 : 0} fill="currentColor"><title>${format(value)}</title></rect>`)}
      <line x1="0" x2="480" y1="89.5" y2="89.5" stroke="currentColor" opacity=".35" />
    </svg></figure>`;
}

/** @param {{hours: number}} props */
function Exchanges({ hours }) {
  const [filter, setFilter] = useState({ model: '', upstream: '', dialect: '', succeeded: '', lossy: '' });
  const [limit, setLimit] = useState(100);
  const path = `/v1/exchanges${query({ limit, hours, ...filter })}`;
  const loaded = useLoaded(() => getJson(path), [path], { every: 3000 });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setFilter({ ...filter, [name]: event.target.value });
  const rows = loaded.data?.exchanges ?? [];
  return html`<div class="bar">
      <input id="search" type="search" placeholder="model  /" aria-label="model" value=${filter.model} onChange=${set('model')} />
      <input type="search" placeholder="upstream" aria-label="upstream" value=${filter.upstream} onChange=${set('upstream')} />
      <select aria-label="dialect" value=${filter.dialect} onChange=${set('dialect')}><option value="">every dialect</option>${['openai', 'claude', 'gemini', 'codex', 'kimi', 'copilot'].map((name) => html`<option value=${name}>${name}</option>`)}</select>
      <select aria-label="outcome" value=${filter.succeeded} onChange=${set('succeeded')}><option value="">every outcome</option><option value="true">succeeded</option><option value="false">failed</option></select>
      <select aria-label="fidelity" value=${filter.lossy} onChange=${set('lossy')}><option value="">every fidelity</option><option value="false">lossless</option><option value="true">lossy</option></select>
      <span class="grow"></span><${Commands} path=${path} />
    </div>
    <${Loaded} of=${loaded} what="exchanges">
      ${rows.length === 0 ? html`<${Empty} title="No exchange fits" />` : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows">
        <thead><tr><th>outcome</th><th>model</th><th>way</th><th>fidelity</th><th class="num">in</th><th class="num">out</th><th class="num">cost</th><th class="num">first byte</th><th class="num">time</th><th>key</th><th class="num">age</th></tr></thead>
        <tbody>${rows.map((/** @type {any} */ row) => html`<tr>
          <td><${State} state=${row.outcome} /> <span class="dim">${row.error_code ?? row.status}</span></td>
          <td class="main"><${AgentText} text=${row.model} step=${80} /> <span class="dim mono">${short(row.id)}</span></td>
          <td>${row.dialect === row.upstream_dialect ? row.dialect : `${row.dialect} → ${row.upstream_dialect}`} <span class="dim">${row.upstream}${row.is_streamed ? ', stream' : ''}</span></td>
          <td>${row.mode === 'passthrough' ? html`<${State} state="passthrough" tone="good" />` : row.losses ? html`<${State} state=${`${row.losses} lost`} tone="warn" />` : html`<${State} state="lossless" tone="good" />`}</td>
          <td class="num">${number(row.input_tokens)}</td><td class="num">${number(row.output_tokens)}</td><td class="num">${money(row.cost_usd)}</td>
          <td class="num">${duration(row.first_byte_us === null ? null : row.first_byte_us / 1000)}</td><td class="num">${duration(row.duration_us / 1000)}</td>
          <td>${row.principal}</td><td class="num"><${Age} time=${row.started_at} /></td></tr>`)}</tbody></table></div>
        ${loaded.data?.next && rows.length >= limit && html`<p><button class="link" onClick=${() => setLimit(Math.min(1000, limit * 2))}>Show more</button></p>`}`}
    <//>`;
}

/** @param {{hours: number}} props */
function Losses({ hours }) {
  const path = `/v1/exchanges/losses?hours=${hours}`;
  const loaded = useLoaded(() => getJson(path), [path], { every: 5000 });
  const losses = loaded.data?.losses ?? [];
  return html`<div class="bar"><span class="dim">${loaded.data ? `${number(loaded.data.counted)} exchanges${loaded.data.is_complete ? '' : ', the newest ones only'}` : ''}</span><span class="grow"></span><${Commands} path=${path} /></div>
    <${Loaded} of=${loaded} what="the losses">
      ${losses.length === 0 ? html`<${Empty} title="Nothing was lost in translation"><p>Requests that are carried in their own dialect are passed on byte for byte.</p><//>` : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>pair</th><th>field</th><th>what happened</th><th>why</th><th class="num">exchanges</th></tr></thead>
        <tbody>${losses.map((/** @type {any} */ loss) => html`<tr><td>${loss.from} → ${loss.to}</td><td><code><${AgentText} text=${loss.field} step=${120} /></code></td><td><${State} state=${loss.action} tone=${loss.action === 'dropped' ? 'bad' : 'warn'} /></td><td class="main dim">${loss.reason ?? ''}</td><td class="num">${number(loss.exchanges)}</td></tr>`)}</tbody></table></div>`}
    <//>`;
}
