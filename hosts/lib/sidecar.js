// The agent's side of the sidecar protocol: one import turns a Node program into a backend.
//
//   import { hello } from './sidecar.js';
//
//   const sidecar = hello({ id: 'my-agent' }, { streaming: 'native' });
//   sidecar.serve(async (order, ctx) => {
//     await ctx.emit('assistant_message', { text: `You asked: ${ctx.task}` });
//     await ctx.reportUsage({ input_tokens: 3, output_tokens: 4 });
//   });
//
// Standard output belongs to the protocol alone: what the agent prints goes to standard error. A
// program it starts must not inherit the pipes: give it `stdio: ['ignore', 'pipe', 2]`. Pings are
// answered between two turns of the event loop, so work that computes for seconds belongs in a
// worker thread.
//
// Needs Node 18 and nothing else. The protocol is described in docs/sidecar_protocol.md.

import { once } from 'node:events';
import { createWriteStream, writeSync } from 'node:fs';

import { LineSplitter, ProtocolError, decode, encode } from './frames.js';
import { redact } from './redact.js';
import { CONTRACT_VERSION, Failure, RunContext } from './run.js';

export { Cancelled, Failure } from './run.js';

/** How much of an error's text is sent. */
const MAX_ERROR_CHARS = 4096;
/** How much may wait for the host before a handler that emits has to wait too: a pipe's worth. */
const OUTBOX_BYTES = 64 * 1024;
/** How long a handler may take to end after the host has gone; a host waits two seconds. */
const EXIT_GRACE_MS = 1000;
const STDOUT = 1;

/**
 * Says hello and starts to listen; call it before anything slow, such as importing an SDK.
 *
 * `backend` is `{ id }` with optional `backend_version` and `adapter_version`, `capabilities` maps
 * names of docs/capabilities.md to support levels, `mode` is `mapped` or `passthrough`.
 */
export function hello(backend, capabilities, mode = 'mapped') {
  return new Sidecar({ backend, capabilities, mode });
}

/** A sidecar that has said hello. Made by `hello`. */
class Sidecar {
  #identity;
  #outbox;
  #handler = null;
  /** The run and its order, from the run frame to the run's last frame. */
  #work = null;
  #closed = false;
  #exiting = false;

  constructor(identity) {
    this.#identity = identity;
    // At once, whatever the author does next; the pipe is empty, so it cannot block.
    writeSync(STDOUT, encode({ t: 'hello', contract_version: CONTRACT_VERSION, ...identity }));
    this.#outbox = new Outbox(claimStdout(), () => this.#close());
    const lines = new LineSplitter();
    process.stdin.on('data', (chunk) => this.#guard(() => this.#read(lines.push(chunk))));
    process.stdin.on('end', () => this.#guard(() => lines.finish()) && this.#close());
    process.on('uncaughtException', (error) => {
      console.error(error);
      this.#breakOff(String(error), 'BACKEND_CRASHED');
    });
  }

  /**
   * Calls `handler(order, ctx)` for one run after the other; the process exits when the host
   * closes. A handler that returns has done its work; what it throws ends the run as `fatal`.
   */
  serve(handler) {
    this.#handler = handler;
    if (this.#work !== null) this.#carryOut(this.#work);
  }

  /** Whether the host kept the protocol; otherwise everything ends. */
  #guard(read) {
    if (this.#closed) return false;
    try {
      read();
      return true;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#breakOff(error.message, 'PROTOCOL_INVALID_ENVELOPE');
      return false;
    }
  }

  #read(lines) {
    for (const line of lines) {
      const frame = decode(line);
      if (frame !== null) this.#take(frame);
    }
  }

  #take(frame) {
    switch (frame.t) {
      case 'ping':
        this.#outbox.put(encode({ t: 'pong', seq: frame.seq ?? null }));
        break;
      case 'run':
        this.#accept(frame);
        break;
      case 'cancel':
        // A cancel that crossed the run's end is for nobody.
        if (this.#work?.run.runId === frame.ref_id) this.#work?.run.cancel(frame.reason);
        break;
      case 'permission_response':
        if (this.#work?.run.runId === frame.ref_id) this.#work?.run.answer(frame);
        break;
      default:
        console.error(`ignored a frame of the unknown kind ${JSON.stringify(frame.t)}`);
    }
  }

  #accept({ id, work_order: order }) {
    if (typeof id !== 'string' || order === null || typeof order !== 'object') {
      throw new ProtocolError('a run frame without an id or a work order');
    }
    if (this.#work !== null) {
      const error = `one run at a time: ${this.#work.run.runId} is under way`;
      this.#outbox.put(fatal(id, error, 'PROTOCOL_UNEXPECTED_MESSAGE'));
      return;
    }
    this.#work = { run: new RunContext(id, this.#outbox, order), order };
    if (this.#handler !== null) this.#carryOut(this.#work);
  }

  async #carryOut({ run, order }) {
    const last = await this.#lastLine(run, order);
    this.#work = null;
    run.end(last);
    if (this.#closed) this.#exit(0);
  }

  /** Runs the handler; returns the run's last line. */
  async #lastLine(run, order) {
    try {
      await this.#callHandler(run, order);
      const receipt = run.receipt(order, this.#identity);
      return encode({ t: 'final', ref_id: run.runId, receipt });
    } catch (error) {
      if (error instanceof Failure) return fatal(run.runId, error.message, error.code);
      console.error(error);
      return fatal(run.runId, String(error), 'BACKEND_CRASHED');
    }
  }

  async #callHandler(run, order) {
    try {
      await this.#handler(order, run);
    } catch (error) {
      // Timers and streams throw an AbortError of their own; the receipt says that it was one.
      const cancelled = error === run.signal.reason || error?.name === 'AbortError';
      if (!run.signal.aborted || !cancelled) throw error;
    }
  }

  /** Ends with the run, if there is one: nothing can be trusted any more. */
  #breakOff(error, code) {
    const run = this.#work?.run;
    const line = fatal(run?.runId ?? null, error, code);
    if (run === undefined) this.#outbox.put(line);
    else run.end(line);
    this.#closed = true;
    this.#exit(1);
  }

  /** The host has gone: a handler may wind up, but not for long: nobody is left to kill it. */
  #close() {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#work === null) {
      this.#exit(0);
      return;
    }
    this.#work.run.cancel('the host has gone');
    setTimeout(() => process.exit(1), EXIT_GRACE_MS);
  }

  /** Exits even if the agent left a timer or a connection open. */
  async #exit(code) {
    if (this.#exiting) return;
    this.#exiting = true;
    setTimeout(() => process.exit(1), EXIT_GRACE_MS);
    await this.#outbox.flush();
    process.exit(code);
  }
}

/** Lines on their way to the host. */
class Outbox {
  #stream;
  #drained = null;
  #broken = false;

  constructor(stream, onBroken) {
    this.#stream = stream;
    stream.on('error', () => {
      this.#broken = true;
      onBroken();
    });
  }

  /** Writes at once; the promise is the back-pressure. */
  put(line) {
    if (this.#broken || this.#stream.write(line)) return Promise.resolve();
    this.#drained ??= once(this.#stream, 'drain')
      .catch(() => {})
      .finally(() => (this.#drained = null));
    return this.#drained;
  }

  /** Waits until everything is written; what comes later is dropped. */
  async flush() {
    if (this.#broken) return;
    this.#broken = true;
    await new Promise((done) => this.#stream.end(done));
  }
}

/**
 * Keeps standard output to ourselves. The stream is not `process.stdout`, which would block the
 * event loop while the host is slow.
 */
function claimStdout() {
  const { stderr } = process;
  Object.defineProperty(process, 'stdout', { configurable: true, get: () => stderr });
  return createWriteStream(null, { fd: STDOUT, autoClose: false, highWaterMark: OUTBOX_BYTES });
}

function fatal(runId, error, code) {
  const text = redact(error.slice(0, MAX_ERROR_CHARS));
  return encode({ t: 'fatal', ref_id: runId, error: text, error_code: code });
}
