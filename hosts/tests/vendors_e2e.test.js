// Every vendor's agent through `abp run`, in the sandbox, against the scripted model. Opt-in: set
// ABP_BIN to the `abp` binary and ABP_HOSTS_DIR to a copy of hosts/ in which `npm ci --ignore-scripts`
// was run for the vendors. A vendor without its packages is skipped.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { startModel } from './scripted_model.js';

const { ABP_BIN: ABP, ABP_HOSTS_DIR: HOSTS } = process.env;
const MCP_SERVER = fileURLToPath(new URL('../../tests/mcp/server.py', import.meta.url));
/** What each agent needs to be installed, and how it calls the tool that the step uses. */
const VENDORS = {
  claude: { package: '@anthropic-ai/claude-agent-sdk', tool: 'Write', reader: 'Read', step: '[[write hello.txt: hi]]' },
  codex: { package: '@openai/codex', tool: 'Bash', reader: 'Bash', step: '[[run echo hi > hello.txt]]' },
  gemini: { package: '@google/gemini-cli', tool: 'write_file', reader: 'read_file', step: '[[write hello.txt: hi]]' },
  copilot: { package: '@github/copilot-sdk', tool: 'create', reader: 'view', step: '[[write hello.txt: hi]]' },
  kimi: { package: '@moonshot-ai/kimi-code', tool: 'Write', reader: 'Read', step: '[[write hello.txt: hi]]' },
};
/** The content of the file that is there before. */
const KEPT = 'kept-0417';
/** Steps that use the tools of a capability, and what the diff or the model then shows. */
const TOOLS = {
  claude: [
    ['tool_edit', `[[read existing.txt]] [[call Edit {"file_path":"existing.txt","old_string":"${KEPT}","new_string":"new"}]]`, /\+new/],
    ['tool_bash', '[[run echo from-bash]]', /from-bash/],
  ],
  codex: [['tool_edit', '[[run apply_patch "*** Begin Patch\\n*** Add File: added.txt\\n+new\\n*** End Patch"]]', /\+new/]],
  gemini: [
    ['tool_edit', `[[call replace {"file_path":"existing.txt","old_string":"${KEPT}","new_string":"new","instruction":"x"}]]`, /\+new/],
    ['tool_bash', '[[run echo from-bash]]', /from-bash/],
    ['tool_glob', '[[call glob {"pattern":"*.txt"}]]', /existing\.txt/],
    ['tool_grep', `[[call grep_search {"pattern":"${KEPT}"}]]`, /existing\.txt/],
  ],
  copilot: [
    ['tool_edit', `[[call edit {"path":"existing.txt","old_str":"${KEPT}","new_str":"new"}]]`, /\+new/],
    ['tool_bash', '[[run echo from-bash]]', /from-bash/],
    ['tool_glob', '[[call glob {"pattern":"*.txt"}]]', /existing\.txt/],
    ['tool_grep', `[[call grep {"pattern":"${KEPT}"}]]`, /existing\.txt/],
  ],
  kimi: [
    ['tool_edit', `[[read existing.txt]] [[call Edit {"path":"existing.txt","old_string":"${KEPT}","new_string":"new"}]]`, /\+new/],
    ['tool_bash', '[[run echo from-bash]]', /from-bash/],
  ],
};
const CANCEL_WITHIN_MS = 2000;
const RUN_LIMIT_MS = 60_000;

function whyNot(vendor) {
  if (!ABP || !HOSTS) return 'ABP_BIN and ABP_HOSTS_DIR are not set';
  const installed = existsSync(join(HOSTS, vendor, 'node_modules', VENDORS[vendor].package));
  return installed ? false : `npm ci --ignore-scripts was not run in hosts/${vendor}`;
}

/** A desk of its own: a workspace, a state directory, a model. */
class Desk {
  static async open() {
    const desk = new Desk();
    desk.model = await startModel();
    return desk;
  }

  constructor() {
    this.directory = mkdtempSync(join(tmpdir(), 'abp-vendors-'));
    for (const name of ['work', 'state']) mkdirSync(join(this.directory, name), { mode: 0o700 });
    // The model is on this machine's loopback, which a closed network does not reach.
    const server = JSON.stringify([MCP_SERVER, 'files', 'legacy', '']);
    writeFileSync(this.path('backplane.toml'), `[sandbox]\nnetwork = "open"\n[mcp.servers.files]\ncommand = "python3"\nargs = ${server}\n`);
    writeFileSync(this.path('work/existing.txt'), `${KEPT}\n`);
  }

  path(name) {
    return join(this.directory, name);
  }

  close() {
    this.model.close();
    rmSync(this.directory, { recursive: true });
  }

  start(vendor, task, policy, ...more) {
    writeFileSync(this.path('policy.json'), JSON.stringify(policy));
    const configured = more.includes('--config') ? [] : ['--config', this.path('backplane.toml')];
    const places = [...configured, '--state-dir', this.path('state'), '--root', this.path('work')];
    const run = ['run', ...places, '--backend', `sidecar:${vendor}`, '--policy', this.path('policy.json'), '--out', this.path('receipt.json')];
    const model = ['--model', 'scripted', ...this.variables().flatMap(([name, value]) => ['--env', `${name}=${value}`])];
    rmSync(this.path('receipt.json'), { force: true });
    const child = spawn(ABP, [...run, ...model, '--task', task, '--json', ...more], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, SCRIPTED_KEY: 'upstream-key-0001' } });
    const timer = setTimeout(() => child.kill('SIGKILL'), RUN_LIMIT_MS);
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].on('data', (chunk) => (output[name] += chunk));
    child.done = new Promise((resolve) => child.on('close', (code) => resolve({ code, ...output })));
    child.done.then(() => clearTimeout(timer));
    return child;
  }

  /** The address of the model in the variables that each agent reads. */
  variables() {
    const { url } = this.model;
    return [
      ['ANTHROPIC_BASE_URL', url], ['ANTHROPIC_API_KEY', 'run-key-0001'],
      ['OPENAI_BASE_URL', `${url}/v1`], ['OPENAI_API_KEY', 'run-key-0001'],
      ['GOOGLE_GEMINI_BASE_URL', url], ['GEMINI_API_KEY', 'run-key-0001'],
      ['COPILOT_PROVIDER_BASE_URL', `${url}/v1`], ['COPILOT_PROVIDER_API_KEY', 'run-key-0001'],
      ['KIMI_BASE_URL', `${url}/v1`], ['KIMI_API_KEY', 'run-key-0001'],
    ];
  }

  /** Runs to the end: the exit code, the diff, the receipt, and the events of its trace. */
  async run(vendor, task, policy = {}, ...more) {
    const { code, stdout, stderr } = await this.start(vendor, task, policy, ...more).done;
    assert.ok(existsSync(this.path('receipt.json')), `exit ${code}: ${stdout}${stderr}`);
    const receipt = JSON.parse(readFileSync(this.path('receipt.json'), 'utf8'));
    const diff = receipt.verification.git_diff ?? '';
    return { code, diff, error: receipt.error, receipt, events: receipt.trace };
  }

  async verify() {
    const child = spawn(ABP, ['receipt', 'verify', this.path('receipt.json'), '--state-dir', this.path('state')], { stdio: 'ignore' });
    return new Promise((resolve) => child.on('close', resolve));
  }
}

const ofType = (events, type) => events.filter((event) => event.type === type);

for (const [vendor, { tool, reader, step }] of Object.entries(VENDORS)) {
  describe(vendor, { skip: whyNot(vendor) }, () => {
    let desk;
    before(async () => (desk = await Desk.open()));
    after(() => desk.close());

    test('does a task of two turns in the stage', async () => {
      const { code, diff, error, receipt, events } = await desk.run(vendor, `Do it. ${step}`);
      assert.equal(code, 0, JSON.stringify(error));
      assert.equal(receipt.outcome, 'complete');
      assert.match(diff, /\+\+\+ b\/hello\.txt\n@@ -0,0 \+1 @@\n\+hi\n/);
      assert.deepEqual(readdirSync(desk.path('work')), ['existing.txt']);
      assert.equal(await desk.verify(), 0);
      assert.deepEqual(ofType(events, 'tool_call').map(({ tool_name }) => tool_name), [tool]);
      assert.deepEqual(ofType(events, 'tool_result').map(({ is_error }) => is_error), [false]);
      assert.equal(ofType(events, 'session_started').length, 1);
      assert.equal(ofType(events, 'assistant_message').at(-1).text, 'All done.');
      assert.deepEqual([receipt.usage.input_tokens, receipt.usage.output_tokens], [200, 40]);
      // The only key that ever left is the run's.
      for (const { headers } of desk.model.seen) {
        for (const name of ['authorization', 'x-api-key', 'x-goog-api-key']) assert.match(headers[name] ?? 'run-key-0001', /run-key-0001$/);
      }
    });

    test('does not use a tool that the policy denies, and is told why', async () => {
      const { code, diff, receipt, events } = await desk.run(vendor, `Do it. ${step}`, { disallowed_tools: [tool] });
      assert.equal(code, 0);
      assert.equal(diff, '');
      assert.deepEqual(ofType(events, 'tool_call'), []);
      const [denied] = ofType(events, 'permission_resolved');
      assert.equal(denied.outcome, 'denied');
      assert.match(denied.reason, /denied by disallowed_tools\[\d+\]/);
      const rule = receipt.enforcement.rules.find(({ list, pattern }) => list === 'disallowed_tools' && pattern === tool);
      assert.deepEqual([rule.enforced_by, rule.by, rule.denied], ['host', 'permission request', 1]);
    });

    test('asks before it reads, too', async () => {
      const task = 'Do it. [[read existing.txt]]';
      const allowed = await desk.run(vendor, task);
      assert.deepEqual(ofType(allowed.events, 'tool_call').map(({ tool_name }) => tool_name), [reader]);
      assert.match(JSON.stringify(desk.model.results), new RegExp(KEPT));
      desk.model.results = [];
      const denied = await desk.run(vendor, task, { disallowed_tools: [reader] });
      assert.deepEqual(ofType(denied.events, 'tool_call'), []);
      assert.equal(ofType(denied.events, 'permission_resolved')[0].outcome, 'denied');
      assert.doesNotMatch(JSON.stringify(desk.model.results), new RegExp(KEPT));
    });

    test('has the tools that it declares', async () => {
      for (const [capability, steps, expected] of TOOLS[vendor]) {
        const { code, diff, error } = await desk.run(vendor, `Do it. ${steps}`);
        assert.equal(code, 0, `${capability}: ${JSON.stringify(error)}`);
        assert.match(diff + JSON.stringify(desk.model.results), expected, capability);
      }
    });

    test('calls the tools of the run\'s MCP servers, which the policy judges', async () => {
      const call = 'Do it. [[call echo {"text":"from-mcp"}]]';
      const mcp = ['--param', 'abp.mcp=true'];
      const allowed = await desk.run(vendor, call, {}, ...mcp);
      assert.equal(allowed.code, 0, JSON.stringify(allowed.error));
      assert.deepEqual(ofType(allowed.events, 'tool_call').map(({ tool_name }) => tool_name), ['mcp__echo']);
      assert.equal(ofType(allowed.events, 'tool_result')[0].is_error, false);
      assert.match(JSON.stringify(desk.model.results), /from-mcp/);
      const denied = await desk.run(vendor, call, { disallowed_tools: ['*echo'] }, ...mcp);
      assert.deepEqual(ofType(denied.events, 'tool_result').filter(({ is_error }) => !is_error), []);
    });

    test('uses a tool that was approved in advance, and no other', async () => {
      const policy = { require_approval_for: [tool] };
      const approved = await desk.run(vendor, `Do it. ${step}`, policy, '--approve', tool);
      assert.match(approved.diff, /\+hi/);
      const resolved = ofType(approved.events, 'permission_resolved');
      assert.deepEqual(resolved.map(({ outcome }) => outcome), ['approved']);
      const refused = await desk.run(vendor, `Do it. ${step}`, policy);
      assert.equal(refused.diff, '');
      assert.match(ofType(refused.events, 'permission_resolved')[0].reason, /nobody can be asked/);
    });

    test('cannot change a path that may not be written', async () => {
      const overwrite = step.replace('hello.txt', 'existing.txt');
      const { diff, receipt } = await desk.run(vendor, `Do it. ${overwrite}`, { deny_write: ['existing.txt'] });
      assert.equal(diff, '');
      const rule = receipt.enforcement.rules.find(({ list, pattern }) => list === 'deny_write' && pattern === 'existing.txt');
      assert.equal(rule.enforced_by, 'kernel');
      assert.equal(readFileSync(desk.path('work/existing.txt'), 'utf8'), `${KEPT}\n`);
    });

    test('asks a model of another vendor through the gateway, without a network', async () => {
      const upstream = `[upstreams.scripted]\ndialect = "claude"\nbase_url = "${desk.model.url}"\napi_key_env = "SCRIPTED_KEY"\nmodels = ["scripted"]\n`;
      writeFileSync(desk.path('gateway.toml'), upstream);
      const { code, diff, error, receipt } = await desk.run(vendor, `Do it. ${step}`, {}, ...['--config', desk.path('gateway.toml')]);
      assert.equal(code, 0, JSON.stringify(error));
      assert.match(diff, /\+hi/);
      assert.ok(receipt.enforcement.sandbox.layers.includes('network namespace'));
      assert.deepEqual([receipt.usage_source, receipt.usage.input_tokens, receipt.usage.output_tokens], ['measured', 200, 40]);
      assert.deepEqual(receipt.exchanges.map(({ upstream }) => upstream), ['scripted', 'scripted']);
      const dialects = new Set(receipt.exchanges.map(({ fidelity }) => fidelity.upstream_dialect));
      assert.deepEqual([...dialects], ['claude']);
      assert.match(desk.model.seen.at(-1).headers['x-api-key'], /upstream-key-0001/);
    });

    test('ends within two seconds of a cancel and leaves no process', async () => {
      const seen = desk.model.requests;
      const child = desk.start(vendor, 'Do it. [[wait]]', {});
      const limit = Date.now() + RUN_LIMIT_MS;
      while (desk.model.requests === seen && Date.now() < limit) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.ok(desk.model.requests > seen, 'the agent never asked its model');
      const cancelled = Date.now();
      child.kill('SIGINT');
      await child.done;
      const took = Date.now() - cancelled;
      assert.ok(took < CANCEL_WITHIN_MS, `it took ${took} ms`);
      const receipt = JSON.parse(readFileSync(desk.path('receipt.json'), 'utf8'));
      assert.equal(receipt.outcome, 'cancelled');
      assert.deepEqual(processesOf(join(HOSTS, vendor)), []);
    });
  });
}

/** Processes that were started from an installation. */
function processesOf(installation) {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`${installation}/`);
    } catch {
      return false;
    }
  });
}
