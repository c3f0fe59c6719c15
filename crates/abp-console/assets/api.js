// @ts-check
// Requests to the public endpoints, with the key of this tab.
//
// The key lives in sessionStorage: it is gone with the tab, and no cookie is ever sent. Errors have one form
// (`ApiError`), so that every page can tell a wrong key, a missing scope and a server that is gone apart.

/** @typedef {'unauthenticated'|'forbidden'|'not_found'|'offline'|'busy'|'failed'} ErrorKind */

const KEY = 'abp.key';

/** A request that failed, in a form that pages can show. */
export class ApiError extends Error {
  /**
   * @param {ErrorKind} kind
   * @param {string} message
   * @param {{code?: string, hint?: string, place?: string, status?: number}} [detail]
   */
  constructor(kind, message, detail = {}) {
    super(message);
    this.kind = kind;
    this.code = detail.code;
    this.hint = detail.hint;
    this.place = detail.place;
    this.status = detail.status;
  }
}

/** @type {Set<(online: boolean) => void>} */
const watchers = new Set();
let isOnline = true;

/** Tells a watcher whenever the server stops or begins to answer. @param {(online: boolean) => void} watcher */
export function watchConnection(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** @param {boolean} online */
function setOnline(online) {
  if (online === isOnline) return;
  isOnline = online;
  for (const watcher of watchers) watcher(online);
}

export function savedKey() {
  return sessionStorage.getItem(KEY) ?? '';
}

/** @param {string} key */
export function saveKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/**
 * @param {Response} response
 * @returns {Promise<ApiError>}
 */
async function errorOf(response) {
  /** @type {any} */
  let body = null;
  try {
    body = await response.json();
  } catch {
    body = null;
  }
  const error = body?.error ?? {};
  const detail = { code: error.code, hint: error.hint, place: error.place, status: response.status };
  /** @type {ErrorKind} */
  let kind = 'failed';
  if (response.status === 401) kind = 'unauthenticated';
  else if (response.status === 403) kind = 'forbidden';
  else if (response.status === 404) kind = 'not_found';
  else if (response.status === 429 || response.status === 503) kind = 'busy';
  return new ApiError(kind, error.message ?? `the server answered ${response.status}`, detail);
}

/**
 * Sends a request and returns the response, or throws an `ApiError`.
 * @param {string} path
 * @param {{method?: string, body?: unknown, accept?: string, headers?: Record<string, string>, signal?: AbortSignal, key?: string}} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: options.accept ?? 'application/json', ...options.headers };
  const key = options.key ?? savedKey();
  if (key) headers.authorization = `Bearer ${key}`;
  let body;
  if (options.body !== undefined) {
    headers['content-type'] = 'application/json';
    body = typeof options.body === 'string' ? options.body : JSON.stringify(options.body);
  }
  let response;
  try {
    response = await fetch(path, {
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      headers,
      body,
      signal: options.signal,
      cache: 'no-store',
      credentials: 'omit',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    setOnline(false);
    throw new ApiError('offline', 'the server does not answer');
  }
  setOnline(true);
  if (!response.ok) throw await errorOf(response);
  return response;
}

/**
 * @param {string} path
 * @param {Parameters<typeof send>[1]} [options]
 * @returns {Promise<any>}
 */
export async function getJson(path, options) {
  return (await send(path, options)).json();
}

/**
 * @param {string} path
 * @param {unknown} body
 * @param {Parameters<typeof send>[1]} [options]
 * @returns {Promise<any>}
 */
export async function postJson(path, body, options) {
  return (await send(path, { ...options, method: 'POST', body })).json();
}

/** Builds a query from the members that have a value. @param {Record<string, string|number|boolean|null|undefined>} members */
export function query(members) {
  const pairs = Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== '');
  if (pairs.length === 0) return '';
  return `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}`;
}

/**
 * Reads server-sent events from a response, one call per batch of complete events.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {(events: {id: string, name: string, data: string}[]) => void} onEvents
 */
export async function readEvents(stream, onEvents) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  /** @type {string[]} */
  let pieces = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const text = decoder.decode(value, { stream: true });
    const end = text.lastIndexOf('\n\n');
    // A long event arrives in many reads: its pieces are joined once, when it is complete.
    if (end < 0 && !(text.startsWith('\n') && pieces.at(-1)?.endsWith('\n'))) {
      pieces.push(text);
      continue;
    }
    const whole = pieces.join('') + text;
    const last = whole.lastIndexOf('\n\n');
    pieces = [whole.slice(last + 2)];
    onEvents(parseEvents(whole.slice(0, last)));
  }
}

/** @param {string} text */
function parseEvents(text) {
  const events = [];
  for (const block of text.split('\n\n')) {
    const event = { id: '', name: 'message', data: '' };
    for (const line of block.split('\n')) {
      if (line.startsWith('data: ')) event.data += event.data ? `\n${line.slice(6)}` : line.slice(6);
      else if (line.startsWith('id: ')) event.id = line.slice(4);
      else if (line.startsWith('event: ')) event.name = line.slice(7);
    }
    if (event.data) events.push(event);
  }
  return events;
}

/**
 * Follows the events of a run until it ends, and takes the stream up again by sequence number whenever the
 * connection breaks: after a reload, a restart of the server, or a lost network.
 *
 * @param {string} runId
 * @param {{
 *   after: number|null,
 *   onEvents: (events: {seq: number|null, event: any}[]) => void,
 *   onEnd: (state: string) => void,
 *   onConnection: (state: 'live'|'waiting') => void,
 *   onError: (error: ApiError) => void,
 * }} listener
 * @returns {() => void} ends the following
 */
export function followRun(runId, listener) {
  const ended = new AbortController();
  let after = listener.after;
  const attempt = async () => {
    /** @type {Record<string, string>} */
    const headers = after === null ? {} : { 'last-event-id': String(after) };
    const path = `/v1/runs/${encodeURIComponent(runId)}/events`;
    const response = await send(path, { accept: 'text/event-stream', headers, signal: ended.signal });
    listener.onConnection('live');
    let state = '';
    if (!response.body) throw new ApiError('failed', 'the stream has no body');
    await readEvents(response.body, (events) => {
      const batch = [];
      for (const { id, name, data } of events) {
        const seq = id === '' ? null : Number(id);
        if (name === 'end') {
          state = JSON.parse(data).state;
          continue;
        }
        if (seq !== null && after !== null && seq <= after) continue;
        if (seq !== null) after = seq;
        batch.push({ seq, event: JSON.parse(data) });
      }
      if (batch.length) listener.onEvents(batch);
    });
    return state;
  };
  (async () => {
    let wait = 250;
    while (!ended.signal.aborted) {
      try {
        const state = await attempt();
        wait = 250;
        if (state) return listener.onEnd(state);
      } catch (error) {
        if (ended.signal.aborted) return;
        const isFinal = error instanceof ApiError && !['offline', 'busy'].includes(error.kind);
        if (isFinal) return listener.onError(/** @type {ApiError} */ (error));
        setOnline(false);
      }
      if (ended.signal.aborted) return;
      listener.onConnection('waiting');
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 4000);
    }
  })();
  return () => ended.abort();
}
