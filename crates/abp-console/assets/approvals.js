// @ts-check
// Questions of runs that wait for a person, and the card that answers one.

import { html, AgentText, Age, ActionButton, Commands, Empty, Loaded, State, notify, short, span, useLoaded, useState, useTick, quote } from './ui.js';
import { ApiError, getJson, postJson } from './api.js';

/** Answers of runs that ended or were answered elsewhere are told apart by this code. */
const ANSWERED = 'APPROVAL_ANSWERED';

export function ApprovalsPage() {
  const [isAll, setAll] = useState(false);
  const loaded = useLoaded(() => getJson(`/v1/approvals?limit=200${isAll ? '' : '&open=true'}`), [isAll], { every: 1500 });
  const approvals = loaded.data?.approvals ?? [];
  return html`<section>
    <div class="head">
      <h1>Approvals</h1>
      <label class="dim"><input type="checkbox" checked=${isAll} onChange=${() => setAll(!isAll)} /> answered ones, too</label>
      <span class="grow"></span>
      <${Commands} abp="abp approvals" path="/v1/approvals?open=true" />
    </div>
    <${Loaded} of=${loaded} what="approvals">
      ${approvals.length === 0
        ? html`<${Empty} title="Nothing waits for you"><p>Runs ask here when their policy says <code>require_approval_for</code>. An unanswered question is denied when it expires.</p><//>`
        : html`<ul class="cards">${approvals.map((/** @type {any} */ approval) => html`<li key=${approval.id}><${ApprovalCard} approval=${approval} onAnswered=${loaded.reload} showRun=${true} /></li>`)}</ul>`}
    <//>
  </section>`;
}

/** @param {{approval: any, onAnswered: () => void, showRun?: boolean}} props */
export function ApprovalCard({ approval, onAnswered, showRun }) {
  const [reason, setReason] = useState('');
  useTick(1000);
  const left = Date.parse(approval.expires_at) - Date.now();
  const answer = (/** @type {boolean} */ approve) => async () => {
    const body = reason.trim() ? { approve, reason: reason.trim() } : { approve };
    try {
      await postJson(`/v1/approvals/${approval.id}`, body);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== ANSWERED) throw error;
      notify(`${error.message}: your answer came second`);
    }
    onAnswered();
  };
  const isOpen = approval.state === 'open';
  return html`<article class="approval ${isOpen ? 'open' : ''}" aria-label=${`approval for ${approval.tool}`}>
    <div class="approval-head">
      <${State} state=${approval.state} />
      <strong><${AgentText} text=${approval.tool} /></strong>
      <span class="grow"></span>
      <span class="dim"><${Age} time=${approval.asked_at} />${isOpen ? (left > 0 ? `, denied in ${span(left)}` : ', expiring') : ''}</span>
    </div>
    ${approval.target && html`<pre class="value"><${AgentText} text=${approval.target} /></pre>`}
    <p><${AgentText} text=${approval.reason} />${approval.rule ? html` <span class="dim">rule <code><${AgentText} text=${approval.rule} /></code></span>` : ''}</p>
    ${showRun && html`<p><a href=${`#/runs/${approval.run_id}`}>run ${short(approval.run_id)}</a></p>`}
    ${isOpen
      ? html`<div class="answer">
          <input type="text" placeholder="reason (the receipt states it)" aria-label="reason" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} />
          <div class="bar">
            <${ActionButton} class="primary" act=${answer(true)}>Allow<//>
            <${ActionButton} class="danger" act=${answer(false)}>Deny<//>
            <span class="grow"></span>
            <${Commands} abp=${`abp approve ${approval.id}${reason.trim() ? ` --reason ${quote(reason.trim())}` : ''}`} path=${`/v1/approvals/${approval.id}`} body=${{ approve: true }} />
          </div>
        </div>`
      : html`<p class="dim">${approval.answered_by ? html`${approval.state} by ${approval.answered_by} via ${approval.answered_via}, <${Age} time=${approval.answered_at} />` : ''}${approval.answer_reason ? html`: <${AgentText} text=${approval.answer_reason} />` : ''}</p>`}
  </article>`;
}
