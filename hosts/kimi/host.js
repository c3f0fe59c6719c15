// Kimi Code behind the sidecar protocol, by its headless mode.
//
// Headless Kimi Code asks nobody, and over ACP it does not ask either: a PreToolUse hook of ours is
// asked before every tool. Such a hook may take ten minutes at most, and Kimi Code goes on without an
// answer then, so a question that nobody answers is denied before.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { agentEnvironment, agentHome, AgentProcess, endedEarly, installedVersion, promptOf, ToolGate } from '../lib/agent.js';
import { HookServer } from '../lib/hooks.js';
import { neededModelApi, versioned } from '../lib/model.js';
import { settingOf } from '../lib/run.js';
import { Failure, hello } from '../lib/sidecar.js';
import capabilities from './capabilities.js';
import { KimiEvents, usageSince } from './events.js';

const PACKAGE = '@moonshot-ai/kimi-code';
const MODEL_API = { url: 'KIMI_BASE_URL', keys: ['KIMI_API_KEY'] };
const NEEDED_NODE = [22, 19];
const HOOK_TIMEOUT_SECONDS = 600;
/** Before Kimi Code gives up on its hook. */
const ANSWER_WITHIN_MS = 580 * 1000;
/** The prefix of the run's MCP servers, which judge calls themselves. */
const MCP_PREFIX = 'mcp__abp__';
const QUIET = { KIMI_CODE_NO_AUTO_UPDATE: '1', KIMI_DISABLE_TELEMETRY: '1', NO_COLOR: '1' };

const version = installedVersion(import.meta.url, PACKAGE);
hello({ id: 'kimi', backend_version: version ?? undefined, adapter_version: '0.1.0' }, capabilities).serve(run);

async function run(order, ctx) {
  const gate = new ToolGate(ctx);
  const hooks = await HookServer.start((input) => decide(gate, input), ANSWER_WITHIN_MS);
  try {
    await converse(order, ctx, gate, hooks);
  } finally {
    hooks.close();
  }
}

async function converse(order, ctx, gate, hooks) {
  const home = agentHome('kimi');
  writeSettings(home, ctx, hooks);
  const events = new KimiEvents();
  const program = fileURLToPath(new URL(`node_modules/${PACKAGE}/dist/main.mjs`, import.meta.url));
  const args = [program, ...argumentsOf(order, ctx)];
  const agent = new AgentProcess(nodeProgram(), args, { env: environmentOf(order, home), signal: ctx.signal });
  const started = Date.now();
  let session = null;
  for await (const line of agent.objects()) {
    session = line.session_id ?? session;
    for (const [kind, fields] of events.map(line)) await emit(ctx, gate, kind, fields);
  }
  const ended = await agent.ended;
  ctx.signal.throwIfAborted();
  if (session !== null) await reportUsage(ctx, home, session, started);
  if (ended.code !== 0) throw endedEarly('Kimi Code', ended, agent.stderrTail);
}

/** Headless Kimi Code does not tell its usage; the record of its session does. */
async function reportUsage(ctx, home, session, started) {
  const sessions = join(home, 'sessions');
  const directories = readdirSync(sessions).map((name) => join(sessions, name, session, 'agents'));
  const agents = directories.filter(existsSync).flatMap((directory) => readdirSync(directory).map((name) => join(directory, name, 'wire.jsonl')));
  const records = agents.filter(existsSync).map((path) => readFileSync(path, 'utf8'));
  if (records.length > 0) await ctx.reportUsage(usageSince(records.join('\n'), started));
}

/** A Node that is new enough for Kimi Code: this one, or the one among the host's own packages. */
function nodeProgram() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > NEEDED_NODE[0] || (major === NEEDED_NODE[0] && minor >= NEEDED_NODE[1])) return process.execPath;
  const own = fileURLToPath(new URL(`node_modules/node-${process.platform}-${process.arch}/bin/node`, import.meta.url));
  if (existsSync(own)) return own;
  throw new Failure('SIDECAR_SPAWN_FAILED', `Kimi Code needs Node ${NEEDED_NODE.join('.')} or newer, this is ${process.versions.node}`);
}

function argumentsOf(order, ctx) {
  const session = settingOf(order, 'session');
  const resumed = typeof session?.id === 'string' ? ['--session', session.id] : [];
  return [...resumed, '--output-format', 'stream-json', '--prompt', promptOf(order, ctx)];
}

function environmentOf(order, home) {
  const { url, key } = neededModelApi(order, MODEL_API);
  const { model } = order.config ?? {};
  if (!model) throw new Failure('CONFIG_INVALID', 'Kimi Code has no model of its own choice: name one in the order');
  return {
    ...agentEnvironment(order, { ...QUIET, KIMI_CODE_HOME: home }),
    KIMI_MODEL_NAME: model,
    KIMI_MODEL_PROVIDER_TYPE: 'kimi',
    KIMI_MODEL_BASE_URL: versioned(url),
    KIMI_MODEL_API_KEY: key,
  };
}

function writeSettings(home, ctx, { command }) {
  const hook = `[[hooks]]\nevent = "PreToolUse"\nmatcher = ".*"\ncommand = ${JSON.stringify(command)}\ntimeout = ${HOOK_TIMEOUT_SECONDS}\n`;
  writeFileSync(join(home, 'config.toml'), `telemetry = false\n\n${hook}`, { mode: 0o600 });
  const servers = ctx.mcp ? { abp: { url: ctx.mcp.url, headers: ctx.mcp.headers } } : {};
  writeFileSync(join(home, 'mcp.json'), JSON.stringify({ mcpServers: servers }), { mode: 0o600 });
}

async function decide(gate, question) {
  const { tool_name: name, tool_input: input, tool_call_id: id } = question;
  if (!name.startsWith(MCP_PREFIX)) return gate.decide({ name, input, id });
  // The host's MCP gateway judges the call itself, by the names of server and tool.
  await gate.announce({ name: `mcp__${name.slice(MCP_PREFIX.length)}`, input, id });
  return { approved: true, reason: '' };
}

async function emit(ctx, gate, kind, fields) {
  // A call that was denied was not made, so it has no result.
  const name = kind === 'tool_result' ? gate.announcedName(fields.tool_use_id) : '';
  if (name !== undefined) await ctx.emit(kind, name === '' ? fields : { ...fields, tool_name: name });
}
