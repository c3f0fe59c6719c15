// GitHub Copilot behind the sidecar protocol, through the Copilot SDK.
//
// Every use of a tool is asked about in the SDK's hook before it; the SDK's permission requests, which
// are not about every tool, get the same answer. Models are asked at the run's address alone: the
// runtime is offline, and no login of the user is used.

import { agentEnvironment, agentHome, installedVersion, promptOf, ToolGate } from '../lib/agent.js';
import { neededModelApi, versioned } from '../lib/model.js';
import { settingOf, withResolvers } from '../lib/run.js';
import { Failure, hello } from '../lib/sidecar.js';
import capabilities from './capabilities.js';
import { CopilotEvents, failureOf } from './events.js';

const PACKAGE = '@github/copilot-sdk';
const MODEL_API = { url: 'COPILOT_PROVIDER_BASE_URL', keys: ['COPILOT_PROVIDER_BEARER_TOKEN', 'COPILOT_PROVIDER_API_KEY'] };
/** The prefix of the run's MCP servers, which judge calls themselves. */
const MCP_PREFIX = 'abp-';
/** How long a runtime may take to end after it was asked to. */
const STOP_MS = 400;
const QUIET = { COPILOT_OFFLINE: 'true', COPILOT_AUTO_UPDATE: 'false', NO_COLOR: '1' };

const version = installedVersion(import.meta.url, PACKAGE);
hello({ id: 'copilot', backend_version: version ?? undefined, adapter_version: '0.1.0' }, capabilities).serve(run);

async function run(order, ctx) {
  const { CopilotClient, RuntimeConnection } = await loadSdk();
  const home = agentHome('copilot');
  const environment = agentEnvironment(order, { ...QUIET, COPILOT_HOME: home });
  for (const name of Object.keys(environment)) if (name.startsWith('COPILOT_PROVIDER_')) delete environment[name];
  const client = new CopilotClient({
    connection: RuntimeConnection.forStdio(),
    baseDirectory: home,
    workingDirectory: process.cwd(),
    env: environment,
    logLevel: 'error',
    useLoggedInUser: false,
  });
  const stop = () => client.forceStop().catch(() => {});
  ctx.signal.addEventListener('abort', stop, { once: true });
  try {
    await client.start();
    await converse(order, ctx, client);
  } finally {
    await Promise.race([client.stop().catch(() => {}), new Promise((resolve) => setTimeout(resolve, STOP_MS))]);
    await stop();
  }
}

async function loadSdk() {
  try {
    return await import(PACKAGE);
  } catch (error) {
    throw new Failure('SIDECAR_SPAWN_FAILED', `${PACKAGE} cannot be loaded; run npm ci --ignore-scripts in hosts/copilot (${error.message})`);
  }
}

async function converse(order, ctx, client) {
  const gate = new ToolGate(ctx);
  const ended = withResolvers();
  ctx.signal.addEventListener('abort', () => ended.reject(ctx.signal.reason), { once: true });
  const events = new CopilotEvents();
  // One after the other, in the order in which they came.
  let last = Promise.resolve();
  const onEvent = (event) => {
    const mapped = events.map(event);
    last = last.then(() => emitAll(ctx, gate, mapped, event)).catch(ended.reject);
    if (event.type === 'session.idle') last.then(ended.resolve);
    if (event.type === 'session.error') ended.reject(new Failure(...failureOf(event.data)));
  };
  const settings = { ...settingsOf(order, ctx), ...permissionsOf(gate, events.calls), onEvent };
  const session = await openSession(client, order, settings);
  await ctx.emit('session_started', { session_id: session.sessionId });
  await session.send({ prompt: promptOf(order, ctx) });
  await ended.promise;
}

function openSession(client, order, settings) {
  const session = settingOf(order, 'session');
  return typeof session?.id === 'string' ? client.resumeSession(session.id, settings) : client.createSession(settings);
}

function settingsOf(order, ctx) {
  const { url, key } = neededModelApi(order, MODEL_API);
  const { model } = order.config ?? {};
  if (!model) throw new Failure('CONFIG_INVALID', 'Copilot has no model of its own choice here: name one in the order');
  return {
    model,
    provider: { type: 'openai', wireApi: 'completions', baseUrl: versioned(url), bearerToken: key },
    workingDirectory: process.cwd(),
    streaming: true,
    enableConfigDiscovery: false,
    enableSessionTelemetry: false,
    enableFileHooks: false,
    excludedTools: ['ask_user'],
    ...(ctx.mcp ? { mcpServers: { abp: { type: 'http', url: ctx.mcp.url, headers: ctx.mcp.headers, tools: ['*'] } } } : {}),
  };
}

function permissionsOf(gate, calls) {
  const decide = async (name, input, id) => {
    if (!name.startsWith(MCP_PREFIX)) return gate.decide({ name, input, id });
    // The host's MCP gateway judges the call itself, by the names of server and tool.
    if (gate.announcedName(id) === undefined) await gate.announce({ name: `mcp__${name.slice(MCP_PREFIX.length)}`, input, id });
    return { approved: true, reason: '' };
  };
  const onPreToolUse = async ({ toolName, toolArgs }) => {
    const input = typeof toolArgs === 'string' ? parsed(toolArgs) : toolArgs;
    const id = await calls.find(toolName, input, (known) => !gate.isKnown(known));
    const { approved, reason } = await decide(toolName, input, id);
    return { permissionDecision: approved ? 'allow' : 'deny', permissionDecisionReason: reason };
  };
  const onPermissionRequest = async ({ toolCallId }) => {
    const known = toolCallId !== undefined && gate.isKnown(toolCallId);
    // The hook comes first; what it was not asked about is not allowed here either.
    const { approved, reason } = known ? await gate.answerOf(toolCallId) : { approved: false, reason: 'it was not asked about before' };
    return approved ? { kind: 'approve-once' } : { kind: 'reject', feedback: reason };
  };
  return { hooks: { onPreToolUse }, onPermissionRequest };
}

async function emitAll(ctx, gate, mapped, event) {
  for (const [kind, fields] of mapped) {
    if (kind === 'usage_updated') await ctx.reportUsage(fields.usage, event.data);
    else if (kind !== 'tool_result') await ctx.emit(kind, fields);
    // A call that was denied was not made, so it has no result.
    else if (gate.announcedName(fields.tool_use_id) !== undefined) {
      await ctx.emit(kind, { tool_name: gate.announcedName(fields.tool_use_id), ...fields });
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { text };
  }
}
