// @ts-check
// Keys of the gateway and the control plane: make, limit, revoke.

import { html, ActionButton, AgentText, Age, Commands, CopyButton, Empty, Loaded, State, money, number, useLoaded, useState } from './ui.js';
import { getJson, postJson, send } from './api.js';

const SCOPES = ['models', 'assist', 'runs:read', 'runs:write', 'apply', 'approve', 'upload', 'admin'];

export function KeysPart() {
  const keys = useLoaded(() => getJson('/v1/keys'), [], { every: 5000 });
  const usage = useLoaded(() => getJson('/v1/usage'), [], { every: 5000 });
  const [made, setMade] = useState(/** @type {any} */ (null));
  const used = new Map((usage.data?.keys ?? []).map((/** @type {any} */ one) => [one.key, one]));
  const list = keys.data?.keys ?? [];
  return html`<${Loaded} of=${keys} what="the keys">
    ${made && html`<div class="note warn" role="status"><strong>Copy the key now: it is shown this once</strong><p class="secret">${made.key}</p><${CopyButton} text=${made.key} /> <button class="link" onClick=${() => setMade(null)}>I have it</button></div>`}
    <${NewKey} onMade=${(/** @type {any} */ key) => { setMade(key); keys.reload(); usage.reload(); }} />
    ${list.length === 0 ? html`<${Empty} title="No keys but the operator's"><p>Make one for each program, with what it needs.</p><//>` : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>state</th><th>name</th><th>scopes</th><th>models</th><th class="num">requests</th><th class="num">spent</th><th class="num">budget</th><th class="num">made</th><th></th></tr></thead>
      <tbody>${list.map((/** @type {any} */ key) => {
        const one = /** @type {any} */ (used.get(key.id)) ?? {};
        return html`<tr><td><${State} state=${key.state} /></td><td class="main"><${AgentText} text=${key.name} step=${80} /> <span class="dim mono">${key.id}</span></td><td>${key.scopes.join(', ')}</td><td>${key.models.join(', ') || 'all'}</td>
          <td class="num">${number(one.requests)}</td><td class="num">${money(one.spent_usd)}</td><td class="num">${money(one.budget_usd)}</td><td class="num"><${Age} time=${key.created_at} /></td>
          <td>${key.state === 'active' && html`<${ActionButton} class="danger" confirm="Revoke it?" act=${async () => { await send(`/v1/keys/${encodeURIComponent(key.id)}`, { method: 'DELETE' }); keys.reload(); }}>Revoke<//>`}</td></tr>`;
      })}</tbody></table></div>`}
  <//>`;
}

/** @param {{onMade: (key: any) => void}} props */
function NewKey({ onMade }) {
  const [form, setForm] = useState({ name: '', scopes: ['models'], budget: '', rpm: '', models: '' });
  const toggle = (/** @type {string} */ scope) => () => setForm({ ...form, scopes: form.scopes.includes(scope) ? form.scopes.filter((/** @type {string} */ one) => one !== scope) : [...form.scopes, scope] });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.target.value });
  /** @type {any} */
  const body = { name: form.name.trim(), scopes: form.scopes };
  if (form.budget.trim()) body.budget_usd = Number(form.budget);
  if (form.rpm.trim()) body.requests_per_minute = Number(form.rpm);
  if (form.models.trim()) body.models = form.models.split(',').map((/** @type {string} */ name) => name.trim()).filter(Boolean);
  const make = async () => {
    onMade(await postJson('/v1/keys', body));
    setForm({ ...form, name: '' });
  };
  return html`<div class="bar new-key">
    <input type="text" aria-label="name of the new key" placeholder="name of a new key" value=${form.name} onInput=${set('name')} />
    <input type="text" aria-label="models, as globs" placeholder="models: all" value=${form.models} onInput=${set('models')} />
    <input type="number" min="0" step="0.01" aria-label="budget in dollars" placeholder="budget, $" value=${form.budget} onInput=${set('budget')} />
    <input type="number" min="1" aria-label="requests a minute" placeholder="requests/min" value=${form.rpm} onInput=${set('rpm')} />
    <span class="scopes" role="group" aria-label="scopes">${SCOPES.map((scope) => html`<label><input type="checkbox" checked=${form.scopes.includes(scope)} onChange=${toggle(scope)} /> ${scope}</label>`)}</span>
    <${ActionButton} class="primary" act=${make} disabled=${!form.name.trim() || form.scopes.length === 0}>Make key<//>
    <${Commands} abp=${`abp keys create --name ${form.name.trim() || 'NAME'} --scopes ${form.scopes.join(',')}`} path="/v1/keys" body=${body} />
  </div>`;
}
