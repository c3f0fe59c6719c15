// @ts-check
// A receipt: what it says, and whether this browser finds it true.

import { html, AgentText, Commands, CopyButton, Empty, Loaded, State, duration, money, number, short, useEffect, useLoaded, useState } from './ui.js';
import { getJson, send } from './api.js';
import { verifyFile, verifyWithProof } from './verify.js';

/** @param {{id: string}} props */
export function VerifyPage({ id }) {
  return html`<section>
    <div class="head"><h1>Receipts</h1><span class="grow"></span><${Commands} abp="abp receipt list" path="/v1/receipts" /></div>
    ${id ? html`<${ReceiptView} runId=${id} />` : html`<${DropFile} /><${ReceiptList} />`}
  </section>`;
}

function ReceiptList() {
  const loaded = useLoaded(() => getJson('/v1/receipts?limit=50'), []);
  const receipts = loaded.data?.receipts ?? [];
  return html`<${Loaded} of=${loaded} what="receipts">
    ${receipts.length === 0 ? html`<${Empty} title="No receipts yet"><p>Every run that ends leaves one.</p><//>` : html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th class="num">entry</th><th>run</th><th>hash</th><th class="num">bytes</th></tr></thead>
      <tbody>${receipts.map((/** @type {any} */ receipt) => html`<tr><td class="num">${receipt.log_seq}</td><td class="main"><a href=${`#/runs/${receipt.run_id}/receipt`}>${short(receipt.run_id)}</a></td><td class="mono dim">${receipt.sha256.slice(0, 24)}…</td><td class="num">${number(receipt.bytes)}</td></tr>`)}</tbody></table></div>`}
  <//>`;
}

/** Checks a file that is dropped here: nothing of it is sent anywhere. */
function DropFile() {
  const [verdict, setVerdict] = useState(/** @type {any} */ (null));
  const [isOver, setOver] = useState(false);
  const [key, setKey] = useState('');
  const check = async (/** @type {File|undefined} */ file) => {
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    setVerdict({ ...(await verifyFile(bytes, { key: key.trim() || undefined })), file: file.name });
  };
  return html`<div class="drop ${isOver ? 'over' : ''}"
      onDragOver=${(/** @type {any} */ event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}
      onDrop=${(/** @type {any} */ event) => { event.preventDefault(); setOver(false); check(event.dataTransfer.files[0]); }}>
    <p><strong>Check a receipt</strong> <span class="dim">Drop a receipt or an exported one (<code>abp receipt export</code>). This browser checks it; nothing is sent.</span></p>
    <div class="bar">
      <input type="file" aria-label="a receipt" accept=".json,application/json" onChange=${(/** @type {any} */ event) => check(event.target.files[0])} />
      <input type="text" class="grow mono" aria-label="public key of the log" placeholder="public key of the log (abp receipt key), for a proof" value=${key} onInput=${(/** @type {any} */ event) => setKey(event.target.value)} />
      <${CopyButton} label="abp receipt verifier" text="abp receipt verifier > verify.html" title="a page that does the same without a server" />
    </div>
    ${verdict && html`<p class="dim">${verdict.file}</p><${VerdictView} verdict=${verdict} />`}
  </div>`;
}

/** @type {Record<string, [string, string]>} */
const VERDICTS = {
  proven: ['good', 'Proven'],
  self_consistent: ['warn', 'Consistent with itself'],
  wrong: ['bad', 'Wrong'],
};

/** @param {{verdict: any}} props */
export function VerdictView({ verdict }) {
  const [tone, title] = VERDICTS[verdict.verdict];
  const members = [...new Set(verdict.problems.flatMap((/** @type {any} */ problem) => problem.members))];
  return html`<div class="verdict ${tone}" role="status" data-verdict=${verdict.verdict}>
    <strong>${title}</strong>
    ${verdict.verdict === 'self_consistent' && html` <span>Its hashes hold; ${verdict.because}.</span>`}
    ${members.length > 0 && html` <span>Changed: ${members.map((name) => html`<code>${name}</code> `)}</span>`}
    <ul class="checks">${verdict.checks.map((/** @type {any} */ check) => html`<li class=${check.ok ? 'good' : 'bad'}><span aria-hidden="true">${check.ok ? '✓' : '✗'}</span> <span class="offscreen">${check.ok ? 'holds' : 'fails'}: </span><${AgentText} text=${check.name} step=${300} /> ${check.detail && html`<code class="dim">${check.detail}</code>`}</li>`)}</ul>
    ${verdict.problems.map((/** @type {any} */ problem) => html`<p><code>${problem.code}</code> <${AgentText} text=${problem.message} step=${600} /></p>`)}
  </div>`;
}

/** @param {{runId: string}} props */
export function ReceiptView({ runId }) {
  const loaded = useLoaded(async () => {
    const response = await send(`/v1/runs/${encodeURIComponent(runId)}/receipt`);
    return { bytes: new Uint8Array(await response.arrayBuffer()) };
  }, [runId]);
  return html`<${Loaded} of=${loaded} what="the receipt">${loaded.data && html`<${Checked} runId=${runId} bytes=${loaded.data.bytes} />`}<//>`;
}

/** @param {{runId: string, bytes: Uint8Array}} props */
function Checked({ runId, bytes }) {
  const [state, setState] = useState(/** @type {{verdict: any, problem: string, log: any}} */ ({ verdict: null, problem: '', log: null }));
  useEffect(() => {
    let isCurrent = true;
    (async () => {
      if (!globalThis.crypto?.subtle) {
        setState({ verdict: null, log: null, problem: 'This browser checks receipts only on https or localhost. Use abp receipt verify, or the one-file verifier.' });
        return;
      }
      try {
        const [proof, log] = await Promise.all([getJson(`/v1/log/proof?run_id=${encodeURIComponent(runId)}`), getJson('/v1/log/checkpoint')]);
        const verdict = await verifyWithProof(bytes, proof, log.key);
        if (isCurrent) setState({ verdict, log, problem: '' });
      } catch (error) {
        const verdict = await verifyFile(bytes);
        if (isCurrent) setState({ verdict, log: null, problem: `The log could not be asked: ${error instanceof Error ? error.message : error}` });
      }
    })();
    return () => { isCurrent = false; };
  }, [bytes]);
  const receipt = JSON.parse(new TextDecoder().decode(bytes));
  const text = new TextDecoder().decode(bytes);
  return html`<div class="receipt">
    ${state.problem && html`<div class="note warn"><p>${state.problem}</p></div>`}
    ${state.verdict ? html`<${VerdictView} verdict=${state.verdict} />` : !state.problem && html`<div class="note" role="status"><span class="spinner" aria-hidden="true"></span>Checking …</div>`}
    ${state.log && html`<p class="dim small">Checked in this browser. The key is the one that this server names: <code class="wrap">${state.log.key}</code> Compare it with <code>abp receipt key</code>, or with a copy that you kept. <${CopyButton} text=${state.log.key} /></p>`}
    <div class="bar"><${CopyButton} label="copy receipt" text=${text} /><${Commands} abp=${`abp receipt export ${runId} > proof.json`} path=${`/v1/runs/${runId}/receipt`} /><${CopyButton} label="server's verdict" text=${`abp receipt verify receipt.json`} /></div>
    <${ReceiptFacts} receipt=${receipt} />
  </div>`;
}

/** @param {{title: string, children?: any, isEmpty?: boolean, note?: string}} props */
function Part({ title, children, isEmpty, note }) {
  return html`<section class="part"><h2>${title}</h2>${isEmpty ? html`<p class="dim">${note ?? 'none'}</p>` : children}</section>`;
}

/** @param {{receipt: any}} props */
function ReceiptFacts({ receipt }) {
  const { meta, usage = {}, plan, enforcement = {}, workspace } = receipt;
  const rules = [...(enforcement.rules ?? [])].sort((a, b) => b.denied - a.denied);
  return html`<div class="parts">
    <${Part} title="What ran">
      <dl class="facts">
        <dt>outcome</dt><dd><${State} state=${receipt.outcome} />${receipt.cancel_reason ? ` (${receipt.cancel_reason})` : ''} in ${duration(meta.duration_ms)}</dd>
        <dt>task</dt><dd><${AgentText} text=${receipt.task ?? '–'} step=${400} /></dd>
        <dt>backend</dt><dd>${receipt.backend.id} <span class="dim">${receipt.backend.backend_version ?? ''}</span></dd>
        ${receipt.model && html`<dt>model</dt><dd>asked ${receipt.model.asked ?? '–'}, used ${receipt.model.used ?? '–'} <span class="dim">${receipt.model.source ?? ''}</span></dd>`}
        <dt>mode</dt><dd>${receipt.mode}</dd>
        <dt>usage</dt><dd>${number(usage.input_tokens)} in, ${number(usage.output_tokens)} out, ${money(usage.estimated_cost_usd)} <span class="dim">${receipt.usage_source ?? ''}</span></dd>
        ${receipt.error && html`<dt>error</dt><dd><code>${receipt.error.code}</code> <${AgentText} text=${receipt.error.message} /></dd>`}
      </dl>
    <//>
    <${Part} title="Why this backend" isEmpty=${!plan}>
      <p><${AgentText} text=${plan?.selection?.reason || '–'} /></p>
      ${(plan?.selection?.candidates ?? []).length > 1 && html`<div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>candidate</th><th class="num">score</th><th>reasons</th></tr></thead><tbody>${plan.selection.candidates.map((/** @type {any} */ one) => html`<tr><td>${one.backend}${one.eligible ? '' : html` <span class="dim">not eligible</span>`}</td><td class="num">${one.score.total.toFixed(2)}</td><td class="main"><${AgentText} text=${one.reasons.join('; ')} step=${240} /></td></tr>`)}</tbody></table></div>`}
      ${(plan?.notes ?? []).map((/** @type {string} */ note) => html`<p class="dim"><${AgentText} text=${note} /></p>`)}
    <//>
    <${Part} title="Who enforced each rule" isEmpty=${rules.length === 0} note="the policy had no rules">
      ${enforcement.sandbox && html`<p>sandbox ${enforcement.sandbox.engine} (${(enforcement.sandbox.layers ?? []).join(', ') || 'no layers'}), network ${enforcement.sandbox.network}</p>`}
      ${enforcement.state && html`<p>state of the host: ${enforcement.state}</p>`}
      <div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>list</th><th>pattern</th><th>enforced by</th><th class="num">denied</th></tr></thead>
        <tbody>${rules.map((rule) => html`<tr><td>${rule.list}</td><td class="main"><code><${AgentText} text=${rule.pattern} /></code></td><td><${State} state=${rule.enforced_by} tone=${{ kernel: 'good', host: 'good', advisory: 'warn', none: 'bad' }[/** @type {'kernel'|'host'|'advisory'|'none'} */ (rule.enforced_by)]} /> <span class="dim">${rule.by}</span></td><td class="num">${rule.denied}</td></tr>`)}</tbody></table></div>
    <//>
    <${Part} title="Fidelity" isEmpty=${!plan || ((plan.losses ?? []).length === 0 && (plan.emulation?.applied ?? []).length === 0 && (receipt.adaptations ?? []).length === 0 && (receipt.exchanges ?? []).length === 0)} note="nothing was lost, emulated or adapted">
      ${(plan?.emulation?.applied ?? []).map((/** @type {any} */ entry) => html`<p><${State} state="emulated" /> ${entry.capability} <span class="dim">${entry.strategy.type.replaceAll('_', ' ')}</span></p>`)}
      ${(plan?.losses ?? []).map((/** @type {any} */ loss) => html`<p><${State} state=${loss.kind} tone="warn" /> <code><${AgentText} text=${loss.pointer} /></code> <span class="dim"><${AgentText} text=${loss.reason} /></span></p>`)}
      ${(receipt.adaptations ?? []).map((/** @type {any} */ one) => html`<p><${State} state="adapted" tone="warn" /> ${one.from} → ${one.to}${one.count > 1 ? ` (${one.count}×)` : ''} <span class="dim"><${AgentText} text=${one.reason} /></span></p>`)}
      ${(receipt.exchanges ?? []).length > 0 && html`<p>${receipt.exchanges.length} exchanges with ${[...new Set(receipt.exchanges.map((/** @type {any} */ one) => one.upstream))].join(', ')}</p>`}
    <//>
    <${Part} title="Files" isEmpty=${!workspace}>
      <dl class="facts">
        <dt>mode</dt><dd>${workspace?.mode}${workspace?.stage ? `, ${workspace.stage}` : ''}</dd>
        <dt>changes</dt><dd>${workspace?.changes ? html`${workspace.changes.files_changed} files <span class="plus">+${workspace.changes.insertions}</span> <span class="minus">−${workspace.changes.deletions}</span>` : '–'}${workspace?.applied ? `, applied by ${workspace.applied_by ?? '–'}` : ''}</dd>
        <dt>left out</dt><dd>${workspace?.left_out_count ?? 0}</dd>
      </dl>
    <//>
    <${Part} title="Hashes">
      <dl class="facts">
        <dt>receipt</dt><dd class="mono wrap">${receipt.receipt_sha256}</dd>
        <dt>order</dt><dd class="mono wrap">${meta.work_order_sha256 ?? '–'}</dd>
        <dt>trace</dt><dd class="mono wrap">${receipt.trace_digest?.sha256 ?? '–'} <span class="dim">${receipt.trace_digest?.count ?? 0} events</span></dd>
        ${workspace?.baseline_sha256 && html`<dt>files before</dt><dd class="mono wrap">${workspace.baseline_sha256}</dd>`}
        ${workspace?.final_sha256 && html`<dt>files after</dt><dd class="mono wrap">${workspace.final_sha256}</dd>`}
      </dl>
    <//>
  </div>`;
}
