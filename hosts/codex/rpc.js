// The JSON-RPC of Codex's app-server over its standard streams.

import { Failure } from '../lib/run.js';

/** Calls methods and hands on notifications; requests of the server are answered by `onRequest`. */
export class RpcClient {
  #process;
  #calls = new Map();
  #last = 0;

  constructor(process) {
    this.#process = process;
  }

  call(method, params) {
    this.#last += 1;
    const id = this.#last;
    const answered = new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject, method }));
    this.#process.send({ id, method, params });
    return answered;
  }

  notify(method) {
    this.#process.send({ method });
  }

  /** Reads until the output ends or `onNotification` returns true. */
  async read(onNotification, onRequest) {
    for await (const message of this.#process.objects()) {
      if (message.method === undefined) this.#settle(message);
      else if (message.id !== undefined) this.#answer(message, onRequest);
      else if (await onNotification(message)) return;
    }
    const over = new Failure('BACKEND_CRASHED', 'Codex closed its output');
    for (const { reject } of this.#calls.values()) reject(over);
  }

  #settle({ id, result, error }) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error === undefined) call?.resolve(result);
    else call?.reject(new Failure('BACKEND_BROKEN_ANSWER', `Codex refused ${call.method}: ${error.message}`));
  }

  async #answer({ id, method, params }, onRequest) {
    const result = await onRequest(method, params);
    if (result === undefined) this.#process.send({ id, error: { code: -32601, message: 'not supported' } });
    else this.#process.send({ id, result });
  }
}
