// Claude Code behind the sidecar protocol, through the Claude Agent SDK.
//
// Every use of a tool is asked about in a PreToolUse hook, which also covers tools that Claude Code
// uses without asking (Read, Grep, subagents); `canUseTool` answers what is asked all the same. The
// agent reads neither the user's nor the repository's settings: a hook in a repository would run
// commands that nobody was asked about.

import { agentEnvironment, agentHome, installedVersion, promptOf, ToolGate } from '../lib/agent.js';
import { HOOK_TIMEOUT_SECONDS } from '../lib/hooks.js';
import { modelApiOf } from '../lib/model.js';
import { Failure, hello } from '../lib/sidecar.js';
import { settingOf } from '../lib/run.js';
import capabilities from './capabilities.js';
import { ClaudeEvents, failureOf } from './events.js';

const PACKAGE = '@anthropic-ai/claude-agent-sdk';
const MODEL_API = { url: 'ANTHROPIC_BASE_URL', keys: ['ANTHROPIC_AUTH_TOKEN', 'ANTHROPIC_API_KEY'] };
/** The prefix of the run's MCP servers, which judge calls themselves. */
const MCP_PREFIX = 'mcp__abp__';
const QUIET = {
  DISABLE_AUTOUPDATER: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_ERROR_REPORTING: '1',
  DISABLE_BUG_COMMAND: '1',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  // Ours is outside.
  IS_SANDBOX: '1',
  // Tools that the model has to search for first are a feature of one vendor's API.
  ENABLE_TOOL_SEARCH: 'false',
};

const version = installedVersion(import.meta.url, PACKAGE);
const sidecar = hello({ id: 'claude', backend_version: version ?? undefined, adapter_version: '0.1.0' }, capabilities);
sidecar.serve(run);

async function run(order, ctx) {
  const { query } = await loadSdk();
  const events = new ClaudeEvents();
  const gate = new ToolGate(ctx);
  const abortController = new AbortController();
  ctx.signal.addEventListener('abort', () => abortController.abort(), { once: true });
  const options = { ...optionsOf(order, ctx), ...permissionsOf(gate, events), abortController };
  const conversation = query({ prompt: promptOf(order, ctx), options });
  let result = null;
  for await (const message of conversation) {
    if (message.type === 'result') result = message;
    for (const [kind, fields] of events.map(message)) await emit(ctx, gate, kind, fields, result);
  }
  ctx.signal.throwIfAborted();
  if (result === null) throw new Failure('BACKEND_CRASHED', 'Claude Code ended without a result');
  const failure = failureOf(result);
  if (failure !== null) throw new Failure(...failure);
}

async function loadSdk() {
  try {
    return await import(PACKAGE);
  } catch (error) {
    throw new Failure('SIDECAR_SPAWN_FAILED', `${PACKAGE} cannot be loaded; run npm ci --ignore-scripts in hosts/claude (${error.message})`);
  }
}

async function emit(ctx, gate, kind, fields, result) {
  if (kind === 'usage_updated') {
    await ctx.reportUsage(fields.usage, result?.usage);
    return;
  }
  // A call that was denied was not made, so it has no result.
  if (kind === 'tool_result' && gate.announcedName(fields.tool_use_id) === undefined) return;
  const name = kind === 'tool_result' ? { tool_name: gate.announcedName(fields.tool_use_id) } : {};
  await ctx.emit(kind, { ...fields, ...name });
}

function optionsOf(order, ctx) {
  const { model, max_turns: maxTurns } = order.config ?? {};
  const session = settingOf(order, 'session');
  return {
    cwd: process.cwd(),
    env: environmentOf(order),
    includePartialMessages: true,
    permissionMode: 'default',
    settingSources: [],
    strictMcpConfig: true,
    systemPrompt: { type: 'preset', preset: 'claude_code' },
    disallowedTools: ['AskUserQuestion', 'EnterWorktree', 'ExitWorktree', 'CronCreate', 'ScheduleWakeup'],
    stderr: (text) => process.stderr.write(text),
    ...(model ? { model } : {}),
    ...(maxTurns ? { maxTurns } : {}),
    ...(typeof session?.id === 'string' ? { resume: session.id, forkSession: session.fork === true } : {}),
    ...(ctx.mcp ? { mcpServers: { abp: { type: 'http', ...ctx.mcp } } } : {}),
  };
}

function environmentOf(order) {
  const environment = agentEnvironment(order, { ...QUIET, CLAUDE_CONFIG_DIR: agentHome('claude') });
  const api = modelApiOf(order, MODEL_API);
  if (api === null) return environment;
  const { ANTHROPIC_API_KEY: _, ...rest } = environment;
  return { ...rest, ANTHROPIC_BASE_URL: api.url, ANTHROPIC_AUTH_TOKEN: api.key, ...sideModels(order) };
}

/** Claude Code asks other models for titles and the like; all of it goes to the one of the order. */
function sideModels(order) {
  const model = order.config?.model;
  if (!model) return {};
  return {
    ANTHROPIC_DEFAULT_OPUS_MODEL: model,
    ANTHROPIC_DEFAULT_SONNET_MODEL: model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
    CLAUDE_CODE_SUBAGENT_MODEL: model,
  };
}

function permissionsOf(gate, events) {
  const decide = async (name, input, id) => {
    const parent = events.call(id)?.parent ?? null;
    if (!name.startsWith(MCP_PREFIX)) return gate.decide({ name, input, id, parent });
    // The host's MCP gateway judges the call itself, by the names of server and tool.
    if (gate.announcedName(id) === undefined) {
      await gate.announce({ name: `mcp__${name.slice(MCP_PREFIX.length)}`, input, id, parent });
    }
    return { approved: true, reason: '' };
  };
  const beforeTool = async ({ tool_name: name, tool_input: input, tool_use_id: id }) => {
    const { approved, reason } = await decide(name, input, id);
    const permissionDecision = approved ? 'allow' : 'deny';
    return { hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision, permissionDecisionReason: reason } };
  };
  const canUseTool = async (name, input, { toolUseID }) => {
    const { approved, reason } = await decide(name, input, toolUseID);
    return approved ? { behavior: 'allow', updatedInput: input } : { behavior: 'deny', message: reason };
  };
  return { hooks: { PreToolUse: [{ hooks: [beforeTool], timeout: HOOK_TIMEOUT_SECONDS }] }, canUseTool };
}
