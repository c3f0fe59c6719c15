// @ts-check
// One run: what it does while it does it, what it asks, what it changed, and its receipt.

import { html, ActionButton, AgentText, Age, Commands, Loaded, Problem, State, duration, short, useEffect, useLoaded, useMemo, useRef, useState, quote } from './ui.js';
import { ApiError, followRun, getJson } from './api.js';
import { TimelineModel, UsageChart, VirtualList, timelineRow } from './timeline.js';
import { ApprovalCard } from './approvals.js';
import { Changes } from './diff.js';
import { ReceiptView } from './receipt.js';
import { cancelRun } from './runs.js';

const CHANGES_STATE = new Set(['run_started', 'run_resumed', 'permission_requested', 'permission_resolved']);
const FINAL = ['complete', 'partial', 'failed', 'cancelled'];

/** @param {{runId: string, tab: string}} props */
export function RunPage({ runId, tab }) {
  const run = useLoaded(() => getJson(`/v1/runs/${encodeURIComponent(runId)}`), [runId], { every: 2000 });
  const isFinal = FINAL.includes(run.data?.state);
  const view = tab || 'timeline';
  return html`<section>
    <${Loaded} of=${run} what="the run">
      ${run.data && html`
        <${RunHead} run=${run.data} reload=${run.reload} />
        <nav class="tabs" aria-label="parts of the run">
          ${[['timeline', 'Timeline'], ['changes', 'Changes'], ['receipt', 'Receipt']].map(([name, title]) => html`<a href=${`#/runs/${runId}/${name}`} aria-current=${view === name ? 'page' : undefined}>${title}</a>`)}
        </nav>
        <div hidden=${view !== 'timeline'}><${Timeline} key=${runId} runId=${runId} isFinal=${isFinal} isShown=${view === 'timeline'} onChange=${run.reload} /></div>
        ${view === 'changes' && (isFinal ? html`<${RunChanges} runId=${runId} />` : html`<div class="note">The changes are shown when the run has ended.</div>`)}
        ${view === 'receipt' && (isFinal ? html`<${ReceiptView} runId=${runId} />` : html`<div class="note">The receipt is written when the run has ended.</div>`)}
      `}
    <//>
  </section>`;
}

/** @param {{run: any, reload: () => void}} props */
function RunHead({ run, reload }) {
  const took = (run.ended_at ? Date.parse(run.ended_at) : Date.now()) - Date.parse(run.accepted_at);
  const isFinal = FINAL.includes(run.state);
  return html`<header class="run-head">
    <h1><${AgentText} text=${run.task} step=${300} /></h1>
    <div class="bar">
      <${State} state=${run.is_cancelling ? 'cancelling' : run.state} />
      <span class="dim">${run.backend || run.backend_asked || '–'}</span>
      <span class="dim"><${Age} time=${run.accepted_at} />, ${duration(took)}</span>
      ${run.attempt > 1 && html`<span class="dim">attempt ${run.attempt}</span>`}
      ${run.principal && html`<span class="dim">by ${run.principal}</span>`}
      <span class="mono dim" title=${run.run_id}>${short(run.run_id)}</span>
      <span class="grow"></span>
      ${!isFinal && html`<${ActionButton} class="danger" confirm="Cancel this run?" act=${async () => { await cancelRun(run.run_id); reload(); }} disabled=${run.is_cancelling}>Cancel<//>`}
      ${isFinal && html`<${Commands} abp=${`abp run --fork ${run.run_id} --task ${quote('…')}`} path=${`/v1/runs/${run.run_id}`} />`}
      ${!isFinal && html`<${Commands} abp=${`abp logs -f ${run.run_id}`} path=${`/v1/runs/${run.run_id}/events`} accept="text/event-stream" />`}
    </div>
  </header>`;
}

/** @param {{runId: string, isFinal: boolean, isShown: boolean, onChange: () => void}} props */
function Timeline({ runId, isFinal, isShown, onChange }) {
  const model = useMemo(() => new TimelineModel(), [runId]);
  const [version, setVersion] = useState(0);
  const [state, setState] = useState(/** @type {{connection: string, ended: string, error: ApiError|null}} */ ({ connection: 'waiting', ended: '', error: null }));
  // A run that has ended is read from its beginning.
  const [isFollowing, setFollowing] = useState(!isFinal);
  const isReplay = useRef(isFinal);
  const approvals = useLoaded(() => getJson(`/v1/approvals?run_id=${runId}`), [runId], { every: 1500 });
  const questions = model.questions.size;
  useEffect(() => { if (questions) approvals.reload(); }, [questions, state.ended]);
  const frame = useRef(0);
  useEffect(() => {
    const show = () => {
      frame.current = 0;
      setVersion((/** @type {number} */ n) => n + 1);
    };
    const stop = followRun(runId, {
      after: model.lastSeq,
      onEvents: (batch) => {
        model.add(batch);
        // These change the state of the run, which the head of the page shows.
        if (batch.some(({ event }) => CHANGES_STATE.has(event.type))) onChange();
        frame.current ||= requestAnimationFrame(show);
      },
      onEnd: (ended) => {
        setState((/** @type {any} */ old) => ({ ...old, ended, connection: 'ended' }));
        setVersion((/** @type {number} */ n) => n + 1);
        onChange();
      },
      onConnection: (connection) => setState((/** @type {any} */ old) => ({ ...old, connection })),
      onError: (error) => setState((/** @type {any} */ old) => ({ ...old, error })),
    });
    return () => { stop(); cancelAnimationFrame(frame.current); };
  }, [runId]);
  useEffect(() => {
    // Whoever scrolls up wants to read; at the end of the page the view follows again.
    const onScroll = () => {
      const page = document.documentElement;
      setFollowing(page.scrollHeight - innerHeight - scrollY < 80);
    };
    addEventListener('scroll', onScroll, { passive: true });
    return () => removeEventListener('scroll', onScroll);
  }, []);
  if (state.error) return html`<${Problem} error=${state.error} what="the events" />`;
  const open = (approvals.data?.approvals ?? []).filter((/** @type {any} */ approval) => approval.state === 'open');
  /** @type {Map<string, any>} */
  const byId = new Map((approvals.data?.approvals ?? []).map((/** @type {any} */ approval) => [approval.id, approval]));
  const question = (/** @type {any} */ item) => {
    const approval = byId.get(item.event.approval_id);
    if (approval && (approval.state === 'open' || !item.answer)) return html`<${ApprovalCard} approval=${approval} onAnswered=${approvals.reload} />`;
    const { answer } = item;
    return html`<strong><${AgentText} text=${item.event.tool_name} /></strong> <code><${AgentText} text=${item.event.target ?? ''} /></code>
      ${answer ? html` <${State} state=${answer.outcome} /> <span class="dim">by ${answer.decided_by}${answer.decided_via ? ` via ${answer.decided_via}` : ''}: <${AgentText} text=${answer.reason} /></span>` : html` <span class="dim">${item.event.reason}</span>`}`;
  };
  const isLive = !state.ended;
  return html`
    ${open.length > 0 && html`<div class="waiting" aria-label="questions of this run">${open.map((/** @type {any} */ approval) => html`<${ApprovalCard} key=${approval.id} approval=${approval} onAnswered=${approvals.reload} />`)}</div>`}
    <div class="bar status" role="status">
      ${isLive ? html`<${State} state=${state.connection === 'live' ? 'live' : 'reconnecting'} tone=${state.connection === 'live' ? 'busy' : 'warn'} />` : html`<${State} state=${state.ended} />`}
      <span class="dim">${model.events} events${model.denials ? `, ${model.denials} denied` : ''}</span>
      <${UsageChart} points=${model.usageOverTime} usage=${model.usage} />
      <span class="grow"></span>
      ${!isFollowing && isLive && html`<button class="link" onClick=${() => scrollTo({ top: document.documentElement.scrollHeight })}>follow</button>`}
    </div>
    ${model.plan && html`<ol class="plan" aria-label="plan of the agent">${model.plan.slice(0, 100).map((entry) => html`<li class=${entry.status}><${State} state=${entry.status} tone=${entry.status === 'completed' ? 'good' : entry.status === 'in_progress' ? 'busy' : 'idle'} /> <${AgentText} text=${entry.content} step=${300} /></li>`)}</ol>`}
    ${model.items.length === 0 ? html`<div class="note" role="status"><span class="spinner" aria-hidden="true"></span>${isLive ? 'Waiting for the first event …' : 'This run has no events.'}</div>` : html`<${VirtualList} items=${model.items} version=${version} follow=${isFollowing && isLive && isShown && !isReplay.current} row=${(/** @type {any} */ item) => timelineRow(item, question)} />`}`;
}

/** @param {{runId: string}} props */
function RunChanges({ runId }) {
  const changes = useLoaded(() => getJson(`/v1/runs/${runId}/diff`), [runId]);
  return html`<${Loaded} of=${changes} what="the changes">${changes.data && html`<${Changes} changes=${changes.data} runId=${runId} onDecided=${changes.reload} mayApply=${true} />`}<//>`;
}
