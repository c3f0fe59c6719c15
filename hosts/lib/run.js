// One run, from the handler's side.

import { encode } from './frames.js';
import { withoutSecrets } from './redact.js';

export const CONTRACT_VERSION = 'abp/v0.1';

/** Kinds of events that only the host sends; it ends a run in which a sidecar sends one. */
const HOST_ONLY_KINDS = new Set([
  'run_started',
  'run_resumed',
  'run_completed',
  'permission_requested',
  'permission_resolved',
  'adapted',
  'network_connection',
]);
/** The lines around the instructions that ABP puts at the end of a task. */
const INSTRUCTIONS_BEGIN = '<abp-instructions>';
const INSTRUCTIONS_END = '</abp-instructions>';

/** Thrown by a handler that cannot do its work; the code is one of docs/error_codes.md. */
export class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The reason of an aborted signal, thrown by `emit` once the run is cancelled. */
export class Cancelled extends Error {}

/** What a handler is given besides the order: its way to the host. */
export class RunContext {
  #outbox;
  #cancel = new AbortController();
  #usage = {};
  #usageRaw = null;
  #artifacts = [];
  /** Questions that wait for their answers, by id. */
  #questions = new Map();
  #asked = 0;
  #startedAt = Date.now();
  #started = performance.now();
  #ended = false;

  constructor(runId, outbox, order) {
    this.runId = runId;
    /**
     * The run's MCP servers as one, over Streamable HTTP: `{url, headers}`, to be sent with every
     * request; `null` where the order asks for none. The key in it is a secret.
     */
    this.mcp = mcpOf(order);
    /** What is to be done, with ABP's instructions at its end. A model is given all of it. */
    this.task = order.task ?? '';
    /**
     * What ABP adds for capabilities that the sidecar does not have:
     * `[{capability, strategy, instruction}]`.
     */
    this.emulation = emulationOf(order);
    this.#outbox = outbox;
  }

  /** The texts that ABP adds to the task, for agents that want them apart from it. */
  get instructions() {
    return this.emulation.map(({ instruction }) => instruction);
  }

  /** The task without ABP's instructions. */
  get ownTask() {
    const begin = this.task.lastIndexOf(`\n\n${INSTRUCTIONS_BEGIN}\n`);
    const added = this.emulation.length > 0 && this.task.endsWith(`\n${INSTRUCTIONS_END}`);
    return added && begin >= 0 ? this.task.slice(0, begin) : this.task;
  }

  /** Aborted when the run is to end; the reason's message is the host's. */
  get signal() {
    return this.#cancel.signal;
  }

  /**
   * Sends an event. Await it: the promise waits while the host is slow. Throws once the run is
   * cancelled, after its end, and for kinds that only the host sends.
   */
  async emit(kind, fields = {}, ext = undefined) {
    if (HOST_ONLY_KINDS.has(kind)) {
      throw new TypeError(`events of the kind ${kind} are sent by the host alone`);
    }
    this.signal.throwIfAborted();
    if (this.#ended) throw new Error('the run is over');
    const event = { ts: new Date().toISOString(), type: kind, ...withoutSecrets(kind, fields) };
    if (ext !== undefined) event.ext = ext;
    await this.#outbox.put(encode({ t: 'event', ref_id: this.runId, event }));
  }

  /**
   * Reports the totals so far; they are part of the receipt, however the run ends. Totals are
   * `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `request_units`,
   * `estimated_cost_usd`; `raw` is the usage in the vendor's own words.
   */
  async reportUsage(totals, raw) {
    Object.assign(this.#usage, totals);
    if (raw !== undefined) this.#usageRaw = raw;
    await this.emit('usage_updated', { usage: this.#usage });
  }

  /**
   * Asks the host whether a tool may be used, and waits for the policy's or a person's answer:
   * `{approved, reason}`. The `tool_call` that follows must have the same name, id and input. Throws
   * once the run is cancelled. A host that does not know the question never answers it.
   */
  async requestPermission(toolName, input, toolUseId = undefined) {
    this.signal.throwIfAborted();
    if (this.#ended) throw new Error('the run is over');
    this.#asked += 1;
    const id = `permission-${this.#asked}`;
    const answer = withResolvers();
    this.#questions.set(id, answer);
    const question = { id, tool_name: toolName, tool_use_id: toolUseId, input };
    await this.#outbox.put(encode({ t: 'permission_request', ref_id: this.runId, ...question }));
    return answer.promise;
  }

  /** Takes the host's answer to a question. */
  answer({ id, approved, reason }) {
    this.#questions.get(id)?.resolve({ approved: approved === true, reason: reason ?? '' });
    this.#questions.delete(id);
  }

  /** Names something the run leaves behind besides changed files. */
  addArtifact(kind, path) {
    this.#artifacts.push({ kind, path });
  }

  /** Asks the handler to end; the first reason given is the one that counts. */
  cancel(reason) {
    this.#cancel.abort(new Cancelled(reason ?? 'the run was cancelled'));
    for (const { reject } of this.#questions.values()) reject(this.signal.reason);
    this.#questions.clear();
  }

  /** Sends the run's last line, unless one was sent before. */
  end(line) {
    if (this.#ended) return;
    this.#ended = true;
    this.#outbox.put(line);
  }

  /** Names the capabilities whose instructions the handler was given. */
  #acknowledged() {
    if (this.emulation.length === 0) return {};
    return { emulation: this.emulation.map(({ capability }) => capability) };
  }

  receipt(order, identity) {
    const durationMs = Math.floor(performance.now() - this.#started);
    return {
      meta: {
        run_id: this.runId,
        work_order_id: order.id ?? this.runId,
        contract_version: CONTRACT_VERSION,
        started_at: new Date(this.#startedAt).toISOString(),
        finished_at: new Date(this.#startedAt + durationMs).toISOString(),
        duration_ms: durationMs,
      },
      ...identity,
      usage_raw: this.#usageRaw,
      usage: this.#usage,
      artifacts: this.#artifacts,
      // The host verifies the workspace; a sidecar has nothing to vouch for.
      verification: { harness_ok: false },
      outcome: this.signal.aborted ? 'partial' : 'complete',
      ...this.#acknowledged(),
    };
  }
}

/** A promise with its two ends; Node 18 and 20 have no `Promise.withResolvers`. */
export function withResolvers() {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  // The one who asked may have gone; that is no error of the process.
  parts.promise.catch(() => {});
  return parts;
}

/** Where a run's MCP servers are; an order of an older host says only that it wants some. */
function mcpOf(order) {
  const found = settingOf(order, 'mcp');
  return typeof found === 'object' && !Array.isArray(found) ? found : null;
}

/** What ABP adds to the task; nothing where the host does not say so in the form we know. */
function emulationOf(order) {
  const found = settingOf(order, 'emulation');
  if (!Array.isArray(found)) return [];
  const isText = (value) => typeof value === 'string';
  return found.filter((entry) => isText(entry?.capability) && isText(entry?.instruction));
}

/** One of ABP's own settings. */
export function settingOf(order, name) {
  const vendor = order.config?.vendor ?? {};
  return vendor.abp?.[name] ?? vendor[`abp.${name}`] ?? null;
}
