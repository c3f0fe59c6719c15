// The mappings of vendors' messages to ABP's events, and what hosts share. The messages are made up
// in the form in which the vendors' agents send them.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { ClaudeEvents, failureOf as claudeFailure } from '../claude/events.js';
import { failureOf as codexFailure, mapNotification } from '../codex/events.js';
import { CopilotEvents, failureOf as copilotFailure } from '../copilot/events.js';
import { failureOf as geminiFailure, GeminiEvents } from '../gemini/events.js';
import { KimiEvents, usageSince } from '../kimi/events.js';
import { CallList, endedEarly, promptOf, ToolGate, workspacePath } from '../lib/agent.js';
import { HookServer } from '../lib/hooks.js';
import { modelApiOf, versioned } from '../lib/model.js';
import { run as runHook } from './hook_run.js';
import { documents } from './matrix.js';

const ROOT = '/stage';
const VENDORS = ['claude', 'codex', 'copilot', 'gemini', 'kimi'];
const tables = JSON.parse(readFileSync(new URL('vendors.json', import.meta.url)));

/** The mapper of each vendor, from nothing: messages in, events out. */
const MAPPERS = {
  claude: () => new ClaudeEvents(ROOT),
  codex: () => ({ map: (message) => mapNotification(message, ROOT) }),
  copilot: () => new CopilotEvents(ROOT),
  gemini: () => new GeminiEvents(ROOT),
  kimi: () => new KimiEvents(ROOT),
};

for (const vendor of VENDORS) {
  test(`the messages of ${vendor} become events`, () => {
    assert.ok(tables.conversations[vendor].length > 0);
    for (const { about, messages, events } of tables.conversations[vendor]) {
      const mapper = MAPPERS[vendor]();
      const mapped = messages.flatMap((message) => mapper.map(message));
      assert.deepEqual(mapped, events, about);
    }
  });

  test(`${vendor} passes over messages that it does not know`, () => {
    const unknown = [{ type: 'from_the_future' }, { method: 'from/the/future', params: {} }, { role: 'x' }];
    for (const message of unknown) assert.deepEqual(MAPPERS[vendor]().map(message), []);
  });

  test(`the packages of ${vendor} are exact and locked by hash`, () => {
    const folder = new URL(`../${vendor}/`, import.meta.url);
    const read = (name) => readFileSync(new URL(name, folder), 'utf8');
    const { dependencies, optionalDependencies = {} } = JSON.parse(read('package.json'));
    for (const version of Object.values({ ...dependencies, ...optionalDependencies })) assert.match(version, /^\d+\.\d+\.\d+$/);
    const lock = read('package-lock.json');
    assert.doesNotMatch(lock, /"resolved"|https?:\/\/[^"]*regist/);
    const packages = Object.entries(JSON.parse(lock).packages).filter(([name]) => name !== '');
    assert.ok(packages.length > 0);
    for (const [name, { integrity }] of packages) assert.match(integrity ?? '', /^sha512-/, name);
    assert.match(read('.npmrc'), /^ignore-scripts=true$/m);
  });

  test(`${vendor} says of every capability of the matrix what it is, or nothing`, async () => {
    const { default: capabilities } = await import(`../${vendor}/capabilities.js`);
    for (const [name, level] of Object.entries(capabilities)) {
      assert.ok(tables.capabilities.includes(name), name);
      const restricted = typeof level === 'object' && level.restricted?.reason.length > 0;
      assert.ok(restricted || ['native', 'emulated', 'unsupported'].includes(level), name);
    }
  });
}

test('a failed end has a code and the words of the agent', () => {
  const failures = { claude: claudeFailure, codex: codexFailure, copilot: copilotFailure, gemini: geminiFailure };
  for (const [vendor, input, expected] of tables.failures) assert.deepEqual(failures[vendor](input), expected, `${vendor} ${JSON.stringify(input)}`);
});

test('usage of kimi is counted from the beginning of the run', () => {
  const record = (time, output) => JSON.stringify({ type: 'usage.record', time, usage: { inputOther: 10, output, inputCacheRead: 3, inputCacheCreation: 1 } });
  const lines = [record(5, 1), record(10, 2), record(11, 4), '{"type":"other","time":12}', 'not json'].join('\n');
  assert.deepEqual(usageSince(lines, 10), { input_tokens: 20, output_tokens: 6, cache_read_tokens: 6, cache_write_tokens: 2 });
});

/** A run that records what is emitted and answers questions by a table of tools. */
function fakeRun(answers) {
  const emitted = [];
  const asked = [];
  return {
    emitted,
    asked,
    emit: async (kind, fields) => void emitted.push([kind, fields]),
    requestPermission: async (name, input, id) => {
      asked.push([name, input, id]);
      return answers[name] ?? { approved: true, reason: '' };
    },
  };
}

test('a tool is announced once it is allowed, and asked about once', async () => {
  const run = fakeRun({ Bash: { approved: false, reason: 'denied by a rule' } });
  const gate = new ToolGate(run);
  const write = { name: 'Write', input: { path: 'a' }, id: 'w' };
  const [first, again] = await Promise.all([gate.decide(write), gate.decide(write)]);
  assert.deepEqual([first.approved, again.approved], [true, true]);
  assert.deepEqual(await gate.decide({ name: 'Bash', input: {}, id: 'b' }), { approved: false, reason: 'denied by a rule' });
  assert.deepEqual(run.asked, [['Write', { path: 'a' }, 'w'], ['Bash', {}, 'b']]);
  assert.deepEqual(run.emitted, [['tool_call', { tool_name: 'Write', tool_use_id: 'w', parent_tool_use_id: null, input: { path: 'a' } }]]);
  assert.equal(gate.announcedName('w'), 'Write');
  assert.equal(gate.announcedName('b'), undefined);
});

test('a hook without an id finds the call it is about', async () => {
  const calls = new CallList();
  calls.add('1', 'shell', { command: 'ls' });
  calls.add('2', 'shell', { command: 'ls' });
  setTimeout(() => calls.add('3', 'shell', { command: 'late' }), 40);
  const decided = new Set(['1']);
  const find = (input) => calls.find('shell', input, (id) => !decided.has(id));
  assert.equal(await find({ command: 'ls' }), '2');
  assert.equal(await find({ command: 'late' }), '3');
  assert.equal(await find({ command: 'never' }), undefined);
});

test('a hook allows and denies as the host says, and denies where it cannot ask', async () => {
  const decide = async ({ tool_name: name }) => {
    if (name === 'broken') throw new Error('no run');
    return { approved: name === 'Read', reason: 'denied by a rule' };
  };
  const server = await HookServer.start(decide);
  const { command } = server;
  assert.deepEqual(await runHook(command, { tool_name: 'Read' }), { code: 0, stdout: '{}\n', stderr: '' });
  assert.deepEqual(await runHook(command, { tool_name: 'Write' }), { code: 2, stdout: '', stderr: 'denied by a rule\n' });
  assert.deepEqual(await runHook(command, { tool_name: 'broken' }), { code: 2, stdout: '', stderr: 'not decided: no run\n' });
  server.close();
  const gone = await runHook(command, { tool_name: 'Read' });
  assert.equal(gone.code, 2);
  assert.match(gone.stderr, /could not be asked/);
});

test('a question that nobody answers is denied in time', async () => {
  const server = await HookServer.start(() => new Promise(() => {}), 50);
  const answer = await runHook(server.command, { tool_name: 'Read' });
  server.close();
  assert.equal(answer.code, 2);
  assert.match(answer.stderr, /nobody answered within 0.05 s/);
});

test('the model API is what the run gives, the gateway first', () => {
  const names = { url: 'X_BASE_URL', keys: ['X_TOKEN', 'X_KEY'] };
  const check = (order, environment, expected) => assert.deepEqual(modelApiOf(order, names, environment), expected);
  const gateway = { config: { vendor: { abp: { model_api: { url: 'http://127.0.0.1:1/', key: 'run' } } }, env: { X_BASE_URL: 'http://other' } } };
  check(gateway, {}, { url: 'http://127.0.0.1:1', key: 'run', isGateway: true });
  check({ config: { env: { X_BASE_URL: 'http://order', X_KEY: 'o' } } }, { X_BASE_URL: 'http://operator', X_KEY: 'p' }, { url: 'http://order', key: 'o', isGateway: false });
  check({ config: {} }, { X_BASE_URL: 'http://operator/', X_TOKEN: 't', X_KEY: 'p' }, { url: 'http://operator', key: 't', isGateway: false });
  check({ config: {} }, { X_KEY: 'p' }, null);
  assert.equal(versioned('http://a/v1'), 'http://a/v1');
  assert.equal(versioned('http://a'), 'http://a/v1');
});

test('the prompt has the task and the context', () => {
  const order = { context: { files: ['src/a.c'], snippets: [{ name: 'log', content: 'failed' }] } };
  const prompt = promptOf(order, { task: 'Fix it.' });
  assert.equal(prompt, 'Fix it.\n\nFiles that matter:\n- src/a.c\n\n<context name="log">\nfailed\n</context>');
  assert.equal(promptOf({}, { task: 'Fix it.' }), 'Fix it.');
});

test('paths of the workspace are relative, others stay', () => {
  const cases = [['/stage/a/b', 'a/b'], ['a/b', 'a/b'], ['/elsewhere/a', '/elsewhere/a'], ['/stage', '/stage'], ['/stage/..x', '..x']];
  for (const [path, expected] of cases) assert.equal(workspacePath(path, ROOT), expected);
});

test('an agent that ends early says how', () => {
  assert.equal(endedEarly('X', { code: 3 }, 'a\nb\nc\nd').message, 'X exited with status 3 before its work was done: b c d');
  assert.equal(endedEarly('X', { signal: 'SIGKILL' }, '').message, 'X was ended by SIGKILL before its work was done');
  assert.equal(endedEarly('X', { error: new Error('ENOENT') }, '').code, 'SIDECAR_SPAWN_FAILED');
});

test('the page on hosts has the table of their capabilities', async () => {
  const { current, wanted } = await documents();
  assert.ok(current.includes('<!-- generated:host-capabilities -->'));
  assert.equal(current, wanted, 'run node hosts/tests/matrix.js --write');
});

test('every host has what the others have', () => {
  for (const vendor of VENDORS) {
    const files = readdirSync(new URL(`../${vendor}/`, import.meta.url)).filter((name) => name !== 'node_modules');
    for (const name of ['.npmrc', 'capabilities.js', 'events.js', 'host.js', 'package-lock.json', 'package.json']) assert.ok(files.includes(name), `${vendor}/${name}`);
  }
});
