// @ts-check
// The list of runs, and the form that submits one.

import { html, ActionButton, AgentText, Age, Commands, Empty, Loaded, State, duration, money, number, quote, short, useCallback, useLoaded, useRowKeys, useState } from './ui.js';
import { getJson, postJson, query, send } from './api.js';

const STATES = ['queued', 'running', 'awaiting_approval', 'complete', 'partial', 'failed', 'cancelled'];

export function RunsPage() {
  const [filter, setFilter] = useState({ state: '', backend: '', text: '' });
  const [limit, setLimit] = useState(50);
  const path = `/v1/runs${query({ limit, state: filter.state, backend: filter.backend })}`;
  const loaded = useLoaded(() => getJson(path), [path], { every: 1500 });
  const text = filter.text.toLowerCase();
  const runs = (loaded.data?.runs ?? []).filter((/** @type {any} */ run) => !text || `${run.task} ${run.run_id} ${run.backend}`.toLowerCase().includes(text));
  const open = useCallback((/** @type {number} */ index) => { location.hash = `#/runs/${runs[index].run_id}`; }, [runs]);
  const at = useRowKeys(runs.length, open);
  return html`<section>
    <div class="head">
      <h1>Runs</h1>
      <input id="search" type="search" placeholder="filter  /" aria-label="filter the runs" value=${filter.text} onInput=${(/** @type {any} */ event) => setFilter({ ...filter, text: event.target.value })} />
      <select aria-label="state" value=${filter.state} onChange=${(/** @type {any} */ event) => setFilter({ ...filter, state: event.target.value })}>
        <option value="">every state</option>
        ${STATES.map((state) => html`<option value=${state}>${state.replace('_', ' ')}</option>`)}
      </select>
      <span class="grow"></span>
      <${Commands} abp="abp runs" path=${path} />
      <a class="button primary" href="#/new">New run</a>
    </div>
    <${Loaded} of=${loaded} what="runs">
      ${runs.length === 0
        ? filter.text || filter.state
          ? html`<${Empty} title="No run fits the filter"><button onClick=${() => setFilter({ state: '', backend: '', text: '' })}>Show all</button><//>`
          : html`<${Empty} title="No runs yet"><p>Submit one here, with <code>abp run --remote</code>, or with <code>POST /v1/runs</code>.</p><p><a class="button primary" href="#/new">New run</a></p><//>`
        : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows">
            <thead><tr><th>state</th><th>task</th><th>backend</th><th class="num">cost</th><th class="num">files</th><th class="num">time</th><th class="num">age</th></tr></thead>
            <tbody>${runs.map((/** @type {any} */ run, /** @type {number} */ i) => html`<${RunRow} key=${run.run_id} run=${run} isSelected=${i === at} />`)}</tbody>
          </table></div>
          ${loaded.data?.next && html`<p><button class="link" onClick=${() => setLimit(Math.min(1000, limit * 2))}>Show more</button></p>`}`}
    <//>
  </section>`;
}

/** @param {{run: any, isSelected: boolean}} props */
function RunRow({ run, isSelected }) {
  const summary = run.summary ?? {};
  const took = (run.ended_at ? Date.parse(run.ended_at) : Date.now()) - Date.parse(run.accepted_at);
  const address = `#/runs/${run.run_id}`;
  return html`<tr data-selected=${isSelected ? true : undefined} class=${isSelected ? 'selected' : ''} onClick=${(/** @type {any} */ event) => { if (!event.target.closest('a')) location.hash = address; }}>
    <td><${State} state=${run.is_cancelling ? 'cancelling' : run.state} /></td>
    <td class="main"><a href=${address}><${AgentText} text=${oneLine(run.task)} step=${140} /></a> <span class="dim mono">${short(run.run_id)}</span></td>
    <td>${run.backend || run.backend_asked || '–'}</td>
    <td class="num">${money(summary.cost_usd)}</td>
    <td class="num">${summary.files_changed === undefined || summary.files_changed === null ? '–' : html`${number(summary.files_changed)}${summary.files_changed ? html` <span class="plus">+${number(summary.insertions)}</span> <span class="minus">−${number(summary.deletions)}</span>` : ''}`}</td>
    <td class="num">${duration(took)}</td>
    <td class="num"><${Age} time=${run.accepted_at} /></td>
  </tr>`;
}

/** @param {string} text */
function oneLine(text) {
  return text.replace(/\s+/g, ' ').trim() || '(no task)';
}

/** @type {Record<string, {about: string, policy: any}>} */
const PRESETS = {
  'ask before every tool': { about: 'each tool call waits for an answer', policy: { require_approval_for: ['*'] } },
  'ask before writes and commands': { about: 'reads are free; writing and running ask', policy: { require_approval_for: ['write*', 'edit*', 'Write', 'Edit', 'MultiEdit', 'bash', 'Bash', 'shell*', 'run_*'] } },
  'no network': { about: 'no connection leaves the sandbox', policy: { deny_network: ['*'] } },
  'operator policy only': { about: 'nothing beyond the configured policy', policy: {} },
};

export function NewRunPage() {
  const backends = useLoaded(() => getJson('/v1/backends'), []);
  const [form, setForm] = useState({ task: '', backend: '', root: '', preset: 'ask before writes and commands', budget: '' });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.target.value });
  /** @type {any} */
  const order = { task: form.task };
  if (form.root.trim()) order.workspace = { root: form.root.trim() };
  const { policy } = PRESETS[form.preset];
  if (Object.keys(policy).length) order.policy = policy;
  if (form.budget.trim()) order.config = { max_budget_usd: Number(form.budget) };
  /** @type {any} */
  const body = { order };
  if (form.backend) body.backend = form.backend;
  const submit = async () => {
    const submitted = await postJson('/v1/runs', body, { headers: { 'idempotency-key': crypto.randomUUID?.() ?? String(Math.random()) } });
    location.hash = `#/runs/${submitted.run_id}`;
  };
  return html`<section class="narrow">
    <div class="head"><h1>New run</h1></div>
    <form class="form" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <label for="task">Task</label>
      <textarea id="task" rows="5" value=${form.task} onInput=${set('task')} placeholder="what is to be done"></textarea>
      <label for="backend">Backend</label>
      <select id="backend" value=${form.backend} onChange=${set('backend')}>
        <option value="">the configured one</option>
        <option value="auto">auto: whichever fits best</option>
        ${(backends.data?.backends ?? []).map((/** @type {any} */ backend) => html`<option value=${backend.name} disabled=${Boolean(backend.problem)}>${backend.name}${backend.problem ? ' (unavailable)' : ''}</option>`)}
      </select>
      <label for="root">Workspace</label>
      <input id="root" type="text" value=${form.root} onInput=${set('root')} placeholder="a directory of the server below one of its roots; empty: an empty one" />
      <label for="preset">Policy</label>
      <select id="preset" value=${form.preset} onChange=${set('preset')}>${Object.keys(PRESETS).map((name) => html`<option value=${name}>${name}</option>`)}</select>
      <span></span><span class="dim">${PRESETS[form.preset].about}</span>
      <label for="budget">Budget, $</label>
      <input id="budget" type="number" min="0" step="0.01" value=${form.budget} onInput=${set('budget')} placeholder="no limit" />
      <span></span>
      <div class="bar">
        <${ActionButton} class="primary" act=${submit} disabled=${!form.task.trim()}>Submit<//>
        <a href="#/runs">Cancel</a>
        <span class="grow"></span>
        <${Commands} abp=${`abp run --task ${quote(form.task)}${form.backend ? ` --backend ${quote(form.backend)}` : ''}`} path="/v1/runs" body=${body} />
      </div>
    </form>
  </section>`;
}

/** @param {string} runId */
export async function cancelRun(runId) {
  await send(`/v1/runs/${runId}/cancel`, { method: 'POST', body: { reason: 'cancelled in the console' } });
}
