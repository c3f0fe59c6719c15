// A sidecar to start from. It needs nothing but Node 18.
//
// Say hello, wait for a run, send events, end it with `final`. Standard output is for messages only:
// print to standard error.

import { createInterface } from 'node:readline';

console.log = console.error;

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function now() {
  return new Date().toISOString();
}

// Does the work. This is the place for your agent. Await often: pings are answered meanwhile.
async function work(order, emit, signal) {
  for (const word of ['You ', 'asked: ', order.task]) {
    if (signal.aborted) return 'partial';
    emit({ type: 'assistant_delta', text: word });
    await new Promise(setImmediate);
  }
  return 'complete';
}

async function run({ id, work_order: order }, signal) {
  const started = now();
  const emit = (event) => say({ t: 'event', ref_id: id, event: { ts: now(), ...event } });
  let outcome;
  try {
    outcome = await work(order, emit, signal);
  } catch (error) {
    say({ t: 'fatal', ref_id: id, error: String(error), error_code: 'BACKEND_CRASHED' });
    return;
  }
  const meta = {
    run_id: id,
    work_order_id: order.id,
    contract_version: 'abp/v0.1',
    started_at: started,
    finished_at: now(),
    duration_ms: 0,
  };
  const receipt = {
    meta,
    backend: { id: 'my-agent' },
    usage: { input_tokens: order.task.split(/\s+/).length },
    verification: { harness_ok: false },
    outcome,
  };
  say({ t: 'final', ref_id: id, receipt });
}

say({
  t: 'hello',
  contract_version: 'abp/v0.1',
  backend: { id: 'my-agent', backend_version: '0.1.0' },
  capabilities: { streaming: 'native' },
});

let cancel = new AbortController();
const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
lines.on('line', (line) => {
  const message = JSON.parse(line);
  if (message.t === 'run') {
    cancel = new AbortController();
    run(message, cancel.signal);
  } else if (message.t === 'cancel') {
    cancel.abort(message.reason);
  } else if (message.t === 'ping') {
    say({ t: 'pong', seq: message.seq });
  }
});
// The host closes the input at the end; nothing else keeps the process alive.
lines.on('close', () => cancel.abort('the host closed the input'));
