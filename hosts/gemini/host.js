// Gemini CLI behind the sidecar protocol, by its headless mode.
//
// Headless Gemini CLI asks nobody: every tool is allowed by its own policy and asked about in a
// BeforeTool hook of ours. It refuses to work headless in a directory that is not trusted, and in a
// trusted one it reads the repository's settings: MCP servers of a repository are left out, its hooks
// cannot be, so that a run in such a repository begins with a warning.

import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { agentEnvironment, agentHome, AgentProcess, endedEarly, installedVersion, promptOf, ToolGate } from '../lib/agent.js';
import { HOOK_TIMEOUT_SECONDS, HookServer } from '../lib/hooks.js';
import { neededModelApi } from '../lib/model.js';
import { settingOf } from '../lib/run.js';
import { Failure, hello } from '../lib/sidecar.js';
import capabilities from './capabilities.js';
import { failureOf, GeminiEvents } from './events.js';

const PACKAGE = '@google/gemini-cli';
const MODEL_API = { url: 'GOOGLE_GEMINI_BASE_URL', keys: ['GEMINI_API_KEY'] };
/** The prefix of the run's MCP servers, which judge calls themselves. */
const MCP_PREFIX = 'mcp_abp_';
const REPOSITORY_SETTINGS = '.gemini/settings.json';
const QUIET = {
  GEMINI_TELEMETRY_ENABLED: 'false',
  GEMINI_CLI_NO_RELAUNCH: 'true',
  GEMINI_CLI_TRUST_WORKSPACE: 'true',
  NO_COLOR: '1',
};
/** Every tool, at the level of the user. */
const ALLOW_ALL = '[[rule]]\ntoolName = "*"\ndecision = "allow"\npriority = 999\n';

const version = installedVersion(import.meta.url, PACKAGE);
hello({ id: 'gemini', backend_version: version ?? undefined, adapter_version: '0.1.0' }, capabilities).serve(run);

async function run(order, ctx) {
  const gate = new ToolGate(ctx);
  const events = new GeminiEvents();
  const hooks = await HookServer.start((input) => decide(gate, events, input));
  try {
    await converse(order, ctx, gate, events, hooks);
  } finally {
    hooks.close();
  }
}

async function converse(order, ctx, gate, events, hooks) {
  const home = agentHome('gemini');
  writeSettings(home, ctx, hooks);
  if (existsSync(REPOSITORY_SETTINGS)) {
    await ctx.emit('warning', { message: `Gemini CLI reads ${REPOSITORY_SETTINGS}; hooks in it run without being asked about` });
  }
  const program = fileURLToPath(new URL(`node_modules/${PACKAGE}/bundle/gemini.js`, import.meta.url));
  const agent = new AgentProcess(process.execPath, [program, ...argumentsOf(order, ctx, home)], { env: environmentOf(order, home), signal: ctx.signal });
  let result = null;
  for await (const line of agent.objects()) {
    if (line.type === 'result') result = line;
    for (const [kind, fields] of events.map(line)) await emit(ctx, gate, kind, fields, line);
  }
  ctx.signal.throwIfAborted();
  if (result === null) throw endedEarly('Gemini CLI', await agent.ended, agent.stderrTail);
  const failure = failureOf(result);
  if (failure !== null) throw new Failure(...failure);
}

function argumentsOf(order, ctx, home) {
  const { model } = order.config ?? {};
  const session = settingOf(order, 'session');
  return [
    ...['--output-format', 'stream-json', '--policy', join(home, 'allow-all.toml')],
    ...['--allowed-mcp-server-names', 'abp'],
    ...(model ? ['--model', model] : []),
    ...(typeof session?.id === 'string' ? ['--resume', session.id] : []),
    ...['--prompt', promptOf(order, ctx)],
  ];
}

function environmentOf(order, home) {
  const { url, key } = neededModelApi(order, MODEL_API);
  const environment = agentEnvironment(order, { ...QUIET, GEMINI_CLI_HOME: home });
  for (const name of ['GOOGLE_API_KEY', 'GOOGLE_GENAI_USE_GCA', 'GOOGLE_GENAI_USE_VERTEXAI']) delete environment[name];
  return { ...environment, GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: key };
}

function writeSettings(home, ctx, { command }) {
  const hook = { type: 'command', name: 'abp', command, timeout: HOOK_TIMEOUT_SECONDS * 1000 };
  const settings = {
    security: { auth: { selectedType: 'gemini-api-key' } },
    general: { enableAutoUpdate: false, enableAutoUpdateNotification: false },
    privacy: { usageStatisticsEnabled: false },
    telemetry: { enabled: false },
    tools: { sandbox: false },
    hooksConfig: { enabled: true },
    hooks: { BeforeTool: [{ matcher: '.*', hooks: [hook] }] },
    ...(ctx.mcp ? { mcpServers: { abp: { httpUrl: ctx.mcp.url, headers: ctx.mcp.headers, trust: true } } } : {}),
  };
  const directory = join(home, '.gemini');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  writeFileSync(join(directory, 'settings.json'), JSON.stringify(settings), { mode: 0o600 });
  writeFileSync(join(home, 'allow-all.toml'), ALLOW_ALL);
}

async function decide(gate, events, { tool_name: name, tool_input: input }) {
  const id = await events.calls.find(name, input, (known) => !gate.isKnown(known));
  if (!name.startsWith(MCP_PREFIX)) return gate.decide({ name, input, id });
  // The host's MCP gateway judges the call itself, by the names of server and tool.
  await gate.announce({ name: `mcp__${name.slice(MCP_PREFIX.length)}`, input, id });
  return { approved: true, reason: '' };
}

async function emit(ctx, gate, kind, fields, line) {
  if (kind === 'usage_updated') {
    await ctx.reportUsage(fields.usage, line.stats);
    return;
  }
  // A call that was denied was not made, so it has no result.
  const name = kind === 'tool_result' ? gate.announcedName(fields.tool_use_id) : '';
  if (name !== undefined) await ctx.emit(kind, name === '' ? fields : { ...fields, tool_name: name });
}
