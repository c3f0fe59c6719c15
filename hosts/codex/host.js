// Codex behind the sidecar protocol, through its app-server.
//
// Codex runs a PreToolUse hook of ours before every command, patch and MCP call. Its own questions
// are off: they leave out commands that it takes for harmless. Its own sandbox is off too, because it
// does not work inside ABP's.

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { agentEnvironment, agentHome, AgentProcess, endedEarly, installedVersion, promptOf, ToolGate } from '../lib/agent.js';
import { HOOK_TIMEOUT_SECONDS, HookServer } from '../lib/hooks.js';
import { modelApiOf, versioned } from '../lib/model.js';
import { settingOf } from '../lib/run.js';
import { Failure, hello } from '../lib/sidecar.js';
import capabilities from './capabilities.js';
import { failureOf, mapNotification } from './events.js';
import { RpcClient } from './rpc.js';

const PACKAGE = '@openai/codex';
const MODEL_API = { url: 'OPENAI_BASE_URL', keys: ['OPENAI_API_KEY', 'CODEX_API_KEY'] };
const KEY_VARIABLE = 'ABP_MODEL_KEY';
/** The prefix of the run's MCP servers, which judge calls themselves. */
const MCP_PREFIX = 'mcp__abp__';
/** No telemetry, no updates, no plugins, no tools that run elsewhere. */
const SETTINGS = {
  'analytics.enabled': false,
  check_for_update_on_startup: false,
  'features.apps': false,
  'features.plugins': false,
  'features.remote_plugin': false,
  'features.plugin_sharing': false,
  'features.hooks': true,
  web_search: 'disabled',
};

const version = installedVersion(import.meta.url, PACKAGE);
hello({ id: 'codex', backend_version: version ?? undefined, adapter_version: '0.1.0' }, capabilities).serve(run);

async function run(order, ctx) {
  const gate = new ToolGate(ctx);
  const hooks = await HookServer.start((input) => decide(gate, input));
  try {
    await converse(order, ctx, gate, hooks);
  } finally {
    hooks.close();
  }
}

async function converse(order, ctx, gate, hooks) {
  const environment = agentEnvironment(order, { CODEX_HOME: agentHome('codex') });
  const settings = { ...SETTINGS, ...hookSettings(hooks), ...mcpSettings(ctx), ...modelSettings(order, environment) };
  const args = [...flags(settings), 'app-server'];
  const agent = new AgentProcess(programPath(), args, { env: environment, signal: ctx.signal, input: 'pipe' });
  const rpc = new RpcClient(agent);
  let turn = null;
  const reading = rpc.read(
    async (notification) => {
      if (notification.method === 'turn/completed') turn = notification.params.turn;
      for (const [kind, fields] of mapNotification(notification)) await emit(ctx, gate, kind, fields, notification);
      return turn !== null;
    },
    // Whatever is asked in another way than by the hook: nobody is there to answer.
    (method) => (method.endsWith('requestApproval') ? { decision: 'decline' } : undefined),
  );
  try {
    await Promise.race([reading, begin(rpc, order, ctx).then(() => reading)]);
  } finally {
    agent.stop();
  }
  const finished = turn;
  ctx.signal.throwIfAborted();
  if (finished === null) throw endedEarly('Codex', await agent.ended, agent.stderrTail);
  const failure = failureOf(finished);
  if (failure !== null) throw new Failure(...failure);
}

async function begin(rpc, order, ctx) {
  await rpc.call('initialize', { clientInfo: { name: 'abp', title: 'Agent Backplane', version: '0.1.0' } });
  rpc.notify('initialized');
  await trustHook(rpc);
  const thread = await openThread(rpc, order);
  await ctx.emit('session_started', { session_id: thread.id });
  await rpc.call('turn/start', { threadId: thread.id, input: [{ type: 'text', text: promptOf(order, ctx) }] });
}

/**
 * Codex runs only hooks that were trusted, by the hash of their definition. The settings are in a
 * directory of our own. A hook that would not run must not go unnoticed.
 */
async function trustHook(rpc) {
  const [found] = await listHooks(rpc);
  if (found !== undefined && found.trustStatus !== 'trusted') {
    const value = { [found.key]: { trusted_hash: found.currentHash, enabled: true } };
    await rpc.call('config/batchWrite', { edits: [{ keyPath: 'hooks.state', value, mergeStrategy: 'upsert' }], reloadUserConfig: true });
  }
  const [trusted] = await listHooks(rpc);
  if (trusted?.trustStatus !== 'trusted' || trusted.enabled !== true) {
    throw new Failure('POLICY_INVALID', 'Codex does not run the hook that asks before every tool');
  }
}

async function listHooks(rpc) {
  const { data } = await rpc.call('hooks/list', { cwds: [process.cwd()] });
  const hooks = data.flatMap((entry) => entry.hooks);
  return hooks.filter(({ source, eventName }) => source === 'sessionFlags' && eventName === 'preToolUse');
}

async function openThread(rpc, order) {
  const session = settingOf(order, 'session');
  const settings = { cwd: process.cwd(), approvalPolicy: 'never', sandbox: 'danger-full-access' };
  if (typeof session?.id !== 'string') return (await rpc.call('thread/start', settings)).thread;
  const method = session.fork === true ? 'thread/fork' : 'thread/resume';
  return (await rpc.call(method, { threadId: session.id, ...settings })).thread;
}

async function decide(gate, { tool_name: name, tool_input: input, tool_use_id: id }) {
  if (!name.startsWith(MCP_PREFIX)) return gate.decide({ name, input, id });
  // The host's MCP gateway judges the call itself, by the names of server and tool.
  await gate.announce({ name: `mcp__${name.slice(MCP_PREFIX.length)}`, input, id });
  return { approved: true, reason: '' };
}

async function emit(ctx, gate, kind, fields, notification) {
  if (kind === 'usage_updated') {
    await ctx.reportUsage(fields.usage, notification.params.tokenUsage.total);
    return;
  }
  if (kind !== 'tool_result') {
    await ctx.emit(kind, fields);
    return;
  }
  // A call that was denied was not made, so it has no result.
  const name = gate.announcedName(fields.tool_use_id);
  if (name !== undefined) await ctx.emit(kind, { tool_name: name, ...fields });
}

function hookSettings({ command }) {
  const hook = { type: 'command', command, timeout: HOOK_TIMEOUT_SECONDS };
  return { 'hooks.PreToolUse': [{ matcher: '.*', hooks: [hook] }] };
}

function mcpSettings({ mcp }) {
  if (mcp === null) return {};
  return { 'mcp_servers.abp': { url: mcp.url, http_headers: mcp.headers } };
}

function modelSettings(order, environment) {
  const { model } = order.config ?? {};
  const chosen = model ? { model } : {};
  const api = modelApiOf(order, MODEL_API);
  if (api === null) return chosen;
  environment[KEY_VARIABLE] = api.key;
  for (const name of MODEL_API.keys) delete environment[name];
  const provider = { name: 'Agent Backplane', base_url: versioned(api.url), env_key: KEY_VARIABLE, wire_api: 'responses' };
  return { ...chosen, model_provider: 'abp', 'model_providers.abp': provider };
}

function flags(settings) {
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${toml(value)}`]);
}

/** A value as TOML writes it inline. */
function toml(value) {
  if (Array.isArray(value)) return `[${value.map(toml).join(', ')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const members = Object.entries(value).map(([name, member]) => `${JSON.stringify(name)} = ${toml(member)}`);
  return `{ ${members.join(', ')} }`;
}

/** The program itself, which the package's own script would start: one process less. */
function programPath() {
  const packages = fileURLToPath(new URL('node_modules/@openai/', import.meta.url));
  const platform = `codex-${process.platform}-${process.arch}`;
  const vendor = join(packages, platform, 'vendor');
  const targets = existsSync(vendor) ? readdirSync(vendor) : [];
  const programs = targets.map((target) => join(vendor, target, 'bin', 'codex')).filter(existsSync);
  if (programs.length === 0) {
    throw new Failure('SIDECAR_SPAWN_FAILED', `${PACKAGE} has no program for ${platform}; run npm ci --ignore-scripts in hosts/codex`);
  }
  return programs[0];
}
