// @ts-check
// The timeline of a run: events become items, and of the items only those in view become elements.
//
// A run may have a hundred thousand events. `TimelineModel` joins deltas to texts and results to their calls
// as the events come; `VirtualList` keeps a height per item, summed by blocks of 64, so that finding the item
// at a scroll position costs a walk over the blocks and not over the items.

import { html, AgentText, AgentValue, State, number, money, useState, useEffect, useRef, useLayoutEffect } from './ui.js';
import { Markdown, isMarkdown } from './markdown.js';

/**
 * @typedef {{
 *   key: number, kind: string, seq: number|null, at: string, event: any, text?: string, pieces?: string[],
 *   result?: any, isWhole?: boolean, version: number, answer?: any,
 * }} Item
 */

/** Items of a run, made from its events in order. */
export class TimelineModel {
  constructor() {
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, Item>} */
    this.calls = new Map();
    /** @type {Map<string, Item>} */
    this.questions = new Map();
    /** @type {any} */
    this.usage = null;
    /** @type {{at: string, input: number, output: number, cost: number}[]} */
    this.usageOverTime = [];
    /** @type {any[]|null} */
    this.plan = null;
    this.events = 0;
    this.denials = 0;
    /** @type {number|null} */
    this.lastSeq = null;
  }

  /** @param {{seq: number|null, event: any}[]} batch */
  add(batch) {
    for (const { seq, event } of batch) {
      if (seq !== null) this.lastSeq = seq;
      this.events += 1;
      this.#addOne(seq, event);
    }
  }

  /** @param {number|null} seq @param {any} event */
  #addOne(seq, event) {
    const last = this.items.at(-1);
    switch (event.type) {
      case 'assistant_delta':
      case 'thinking_delta': {
        const kind = event.type === 'assistant_delta' ? 'text' : 'thinking';
        if (last?.kind === kind && last.pieces && !last.isWhole) {
          last.pieces.push(String(event.text ?? ''));
          last.text = undefined;
          last.version += 1;
          return;
        }
        const item = this.#push(kind, seq, event);
        item.pieces = [String(event.text ?? '')];
        return;
      }
      case 'assistant_message': {
        // The whole message repeats the deltas before it.
        if (last?.kind === 'text' && last.pieces && textOf(last) === event.text) {
          last.isWhole = true;
          return;
        }
        const item = this.#push('text', seq, event);
        item.text = String(event.text ?? '');
        item.isWhole = true;
        return;
      }
      case 'tool_call': {
        const item = this.#push('tool', seq, event);
        if (event.tool_use_id) this.calls.set(event.tool_use_id, item);
        return;
      }
      case 'tool_result': {
        const call = event.tool_use_id ? this.calls.get(event.tool_use_id) : undefined;
        if (call && !call.result) {
          call.result = event;
          call.version += 1;
          return;
        }
        const item = this.#push('tool', seq, event);
        item.result = event;
        return;
      }
      case 'permission_requested': {
        const item = this.#push('question', seq, event);
        if (event.approval_id) this.questions.set(event.approval_id, item);
        return;
      }
      case 'permission_resolved': {
        if (event.outcome === 'denied') this.denials += 1;
        const question = event.approval_id ? this.questions.get(event.approval_id) : undefined;
        if (question) {
          question.answer = event;
          question.version += 1;
          return;
        }
        this.#push('decision', seq, event);
        return;
      }
      case 'usage_updated':
        this.usage = event.usage;
        this.usageOverTime.push({
          at: event.ts,
          input: event.usage?.input_tokens ?? 0,
          output: event.usage?.output_tokens ?? 0,
          cost: event.usage?.estimated_cost_usd ?? 0,
        });
        return;
      case 'plan_updated':
        this.plan = event.entries;
        return;
      default:
        this.#push(event.type, seq, event);
    }
  }

  /** @param {string} kind @param {number|null} seq @param {any} event @returns {Item} */
  #push(kind, seq, event) {
    const item = { key: this.items.length, kind, seq, at: event.ts, event, version: 0 };
    this.items.push(item);
    return item;
  }
}

/** @param {Item} item */
export function textOf(item) {
  if (item.text === undefined) {
    item.text = (item.pieces ?? []).join('');
    // One piece is enough to go on from; the others are garbage now.
    if (item.pieces) item.pieces = [item.text];
  }
  return item.text;
}

const BLOCK = 64;
const GUESS = 34;
const OVERSCAN = 400;

/** The heights of items and where they begin. */
class Heights {
  constructor() {
    /** @type {number[]} */
    this.all = [];
    /** @type {number[]} */
    this.blocks = [];
    this.total = 0;
  }

  /** @param {number} count */
  grow(count) {
    while (this.all.length < count) {
      const block = (this.all.length / BLOCK) | 0;
      this.blocks[block] = (this.blocks[block] ?? 0) + GUESS;
      this.all.push(GUESS);
      this.total += GUESS;
    }
  }

  /** @param {number} index @param {number} height */
  set(index, height) {
    const change = height - this.all[index];
    if (!change) return 0;
    this.all[index] = height;
    this.blocks[(index / BLOCK) | 0] += change;
    this.total += change;
    return change;
  }

  /** @param {number} top @returns {{index: number, top: number}} */
  at(top) {
    let sum = 0;
    let block = 0;
    while (block < this.blocks.length - 1 && sum + this.blocks[block] <= top) sum += this.blocks[block++];
    let index = block * BLOCK;
    while (index < this.all.length - 1 && sum + this.all[index] <= top) sum += this.all[index++];
    return { index, top: sum };
  }
}

/**
 * A list whose items are elements only while they are near the view. The page scrolls, not the list.
 * @param {{items: Item[], version: number, row: (item: Item) => any, follow: boolean}} props
 */
export function VirtualList({ items, version, row, follow }) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const heights = useRef(/** @type {Heights|null} */ (null));
  heights.current ??= new Heights();
  const [view, setView] = useState({ from: 0, to: 40, offset: 0, round: 0 });
  heights.current.grow(items.length);

  const place = () => {
    const element = box.current;
    const sizes = heights.current;
    if (!element || !sizes) return;
    const above = -element.getBoundingClientRect().top;
    const first = sizes.at(Math.max(0, above - OVERSCAN));
    const limit = above + innerHeight + OVERSCAN;
    let to = first.index;
    let bottom = first.top;
    while (to < sizes.all.length && bottom < limit) bottom += sizes.all[to++];
    setView((/** @type {any} */ old) =>
      old.from === first.index && old.to === to && old.offset === first.top ? old : { from: first.index, to, offset: first.top, round: old.round });
  };

  useEffect(() => {
    let isAsked = false;
    const ask = () => {
      if (isAsked) return;
      isAsked = true;
      requestAnimationFrame(() => { isAsked = false; place(); });
    };
    addEventListener('scroll', ask, { passive: true });
    addEventListener('resize', ask);
    place();
    return () => { removeEventListener('scroll', ask); removeEventListener('resize', ask); };
  }, []);

  useLayoutEffect(() => {
    place();
    if (follow) scrollTo({ top: document.documentElement.scrollHeight });
  }, [version, follow]);

  // Rows tell their height when it changes. The observer calls with what changed only.
  const observer = useRef(/** @type {ResizeObserver|null} */ (null));
  observer.current ??= new ResizeObserver((entries) => {
    const sizes = heights.current;
    if (!sizes) return;
    let change = 0;
    for (const entry of entries) {
      const index = Number(/** @type {HTMLElement} */ (entry.target).dataset.index);
      const height = entry.borderBoxSize[0].blockSize;
      if (height > 0 && index < sizes.all.length) change += Math.abs(sizes.set(index, height));
    }
    if (change) {
      if (box.current) box.current.style.height = `${sizes.total}px`;
      place();
    }
  });
  useEffect(() => () => observer.current?.disconnect(), []);

  // A row that is still in view and did not change keeps its element: scrolling renders only what comes into view.
  const rendered = useRef({ row, rows: new Map() });
  const known = rendered.current.row === row ? rendered.current.rows : new Map();
  const rows = new Map();
  for (let index = view.from; index < Math.min(view.to, items.length); index += 1) {
    const item = items[index];
    const old = known.get(item.key);
    const isSame = old && old.version === item.version && old.index === index;
    const element = isSame ? old.element : html`<${Row} key=${item.key} index=${index} observer=${observer.current} item=${item} row=${row} />`;
    rows.set(item.key, { version: item.version, index, element });
  }
  rendered.current = { row, rows };
  return html`<div class="virtual" ref=${box} style=${{ height: `${heights.current.total}px` }}>
    <ol class="virtual-window" aria-label="timeline" style=${{ transform: `translateY(${view.offset}px)` }}>
      ${[...rows.values()].map(({ element }) => element)}
    </ol>
  </div>`;
}

/** @param {{index: number, observer: ResizeObserver, item: Item, row: (item: Item) => any}} props */
function Row({ index, observer, item, row }) {
  const element = useRef(/** @type {HTMLElement|null} */ (null));
  useLayoutEffect(() => {
    const observed = element.current;
    if (!observed) return;
    observer.observe(observed);
    return () => observer.unobserve(observed);
  }, []);
  return html`<li ref=${element} data-index=${index} class="item">${row(item)}</li>`;
}

/** @param {string} at */
function clock(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? '' : time.toLocaleTimeString([], { hour12: false });
}

/** @param {{item: Item, label: string, tone?: string, children?: any}} props */
function Line({ item, label, tone = '', children }) {
  return html`<div class="line ${tone}">
    <span class="gutter"><time title=${item.at}>${clock(item.at)}</time>${item.event.origin === 'backend' ? html`<span class="claim" title="the backend says so; the host did not see it itself">claim</span>` : ''}</span>
    <span class="label">${label}</span>
    <div class="content">${children}</div>
  </div>`;
}

/** Renders an item. @param {Item} item @param {(item: Item) => any} question */
export function timelineRow(item, question) {
  const { event } = item;
  switch (item.kind) {
    case 'text': {
      const text = textOf(item);
      return html`<${Line} item=${item} label="agent">${isMarkdown(text) ? html`<${Markdown} text=${text} />` : html`<div class="prose"><${AgentText} text=${text} /></div>`}<//>`;
    }
    case 'thinking':
      return html`<${Line} item=${item} label="thinking" tone="quiet"><${Fold} title=${firstLine(textOf(item))}><div class="prose"><${AgentText} text=${textOf(item)} /></div><//><//>`;
    case 'tool':
      return html`<${Line} item=${item} label="tool" tone=${item.result?.is_error ? 'bad' : ''}><${ToolCard} item=${item} /><//>`;
    case 'command_executed':
      return html`<${Line} item=${item} label="command" tone=${event.exit_code ? 'bad' : ''}>
        <code class="cmd"><${AgentText} text=${event.command} /></code>
        ${event.exit_code !== null && event.exit_code !== undefined && html` <span class="dim">exit ${event.exit_code}</span>`}
        ${event.output_preview && html`<${Fold} title="output"><pre class="value"><${AgentText} text=${event.output_preview} /></pre><//>`}
      <//>`;
    case 'file_changed':
      return html`<${Line} item=${item} label="file"><code><${AgentText} text=${event.path} /></code> <span class="dim"><${AgentText} text=${event.summary} /></span><//>`;
    case 'warning':
      return html`<${Line} item=${item} label="warning" tone="warn"><${AgentText} text=${event.message} /><//>`;
    case 'error':
      return html`<${Line} item=${item} label="error" tone="bad"><${AgentText} text=${event.message} /> ${event.error_code && html`<code>${event.error_code}</code>`}<//>`;
    case 'question':
      return html`<${Line} item=${item} label="approval" tone="ask">${question(item)}<//>`;
    case 'decision':
      return html`<${Line} item=${item} label=${event.outcome} tone=${event.outcome === 'denied' ? 'bad' : ''}>
        <strong><${AgentText} text=${event.tool_name} /></strong> <code><${AgentText} text=${event.target ?? ''} /></code>
        <span class="dim"> by ${event.decided_by}: <${AgentText} text=${event.reason} /></span>
      <//>`;
    case 'network_connection':
      return html`<${Line} item=${item} label="network" tone=${event.allowed ? '' : 'bad'}>
        <code><${AgentText} text=${event.host} />${event.port ? `:${event.port}` : ''}</code> ${event.allowed ? 'allowed' : 'refused'}
        <span class="dim"> by ${event.rule}, ${number(event.bytes_up)} B up, ${number(event.bytes_down)} B down</span>
      <//>`;
    case 'run_started':
    case 'run_completed':
      return html`<${Line} item=${item} label=${item.kind === 'run_started' ? 'start' : 'end'} tone="quiet"><${AgentText} text=${event.message} /><//>`;
    case 'run_resumed':
      return html`<${Line} item=${item} label="resumed" tone="warn">attempt ${event.attempt}, from event ${event.from_seq}<//>`;
    case 'session_started':
      return html`<${Line} item=${item} label="session" tone="quiet"><code><${AgentText} text=${event.session_id} /></code><//>`;
    case 'adapted':
      return html`<${Line} item=${item} label="adapted" tone="quiet"><${AgentText} text=${`${event.adaptation?.from} → ${event.adaptation?.to}: ${event.adaptation?.reason}`} /><//>`;
    case 'content_block':
      return html`<${Line} item=${item} label="block"><${AgentText} text=${event.block_type} /><${Fold} title="content"><${AgentValue} value=${event.data} /><//><//>`;
    default:
      return html`<${Line} item=${item} label=${item.kind.slice(0, 24)} tone="quiet"><${Fold} title="an event of a kind that this console does not know"><${AgentValue} value=${event} /><//><//>`;
  }
}

/** @param {string} text */
function firstLine(text) {
  const line = text.trimStart().split('\n', 1)[0] ?? '';
  return line.length > 90 ? `${line.slice(0, 90)}…` : line || '…';
}

/** @param {{title: string, children?: any}} props */
function Fold({ title, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`<div class="fold"><button class="fold-title" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><${AgentText} text=${title} /></button>${isOpen && html`<div class="fold-body">${children}</div>`}</div>`;
}

/** @param {{item: Item}} props */
function ToolCard({ item }) {
  const { event, result } = item;
  const input = event.type === 'tool_call' ? event.input : undefined;
  const state = result ? (result.is_error ? 'failed' : 'complete') : event.type === 'tool_call' ? 'running' : 'complete';
  return html`<div class="tool">
    <div class="tool-head"><strong><${AgentText} text=${event.tool_name} /></strong> <span class="dim"><${AgentText} text=${summary(input)} step=${160} /></span> <${State} state=${state} /></div>
    ${input !== undefined && html`<${Fold} title="input"><${AgentValue} value=${input} /><//>`}
    ${result && html`<${Fold} title=${result.is_error ? 'error' : 'output'}><${ToolOutput} output=${result.output} /><//>`}
  </div>`;
}

/** @param {any} input */
function summary(input) {
  if (input === null || input === undefined) return '';
  if (typeof input === 'string') return input.slice(0, 120);
  for (const name of ['path', 'file_path', 'command', 'cmd', 'url', 'pattern', 'query']) {
    if (typeof input[name] === 'string') return input[name].slice(0, 120);
  }
  return '';
}

const IMAGE_TYPES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** @param {{output: any}} props */
function ToolOutput({ output }) {
  const blocks = Array.isArray(output) ? output : Array.isArray(output?.content) ? output.content : [output];
  const images = blocks.filter((/** @type {any} */ block) => block?.type === 'image' && IMAGE_TYPES.has(block.mimeType) && typeof block.data === 'string');
  return html`${images.map((/** @type {any} */ image) => html`<${ToolImage} image=${image} />`)}<${AgentValue} value=${output} />`;
}

/** @param {{image: {mimeType: string, data: string}}} props */
function ToolImage({ image }) {
  const [isBroken, setBroken] = useState(false);
  const isPlain = /^[A-Za-z0-9+/=\s]*$/.test(image.data) && image.data.length < 8_000_000;
  if (isBroken || !isPlain) return html`<p class="dim">an image that cannot be shown (${image.mimeType}, ${number(image.data.length)} characters)</p>`;
  return html`<img class="tool-image" alt="an image that a tool returned" src=${`data:${image.mimeType};base64,${image.data}`} onError=${() => setBroken(true)} />`;
}

/** Usage so far as a small chart. @param {{points: {at: string, input: number, output: number, cost: number}[], usage: any}} props */
export function UsageChart({ points, usage }) {
  if (!usage) return null;
  const series = points.length > 200 ? points.filter((_, i) => i % Math.ceil(points.length / 200) === 0) : points;
  const top = Math.max(1, ...series.map((point) => point.input + point.output));
  const line = series.map((point, i) => `${(i / Math.max(1, series.length - 1)) * 120},${30 - ((point.input + point.output) / top) * 28}`).join(' ');
  return html`<span class="usage">
    ${series.length > 1 && html`<svg viewBox="0 0 120 32" width="120" height="32" role="img" aria-label="tokens over time"><polyline points=${line} fill="none" stroke="currentColor" stroke-width="1.5" /></svg>`}
    <span>${number(usage.input_tokens)} in · ${number(usage.output_tokens)} out${usage.cache_read_tokens ? ` · ${number(usage.cache_read_tokens)} cached` : ''} · ${money(usage.estimated_cost_usd)}</span>
  </span>`;
}
