// From the notifications of Codex's app-server to ABP's events. No I/O.

import { workspacePath } from '../lib/agent.js';

const PLAN_STATUS = { pending: 'pending', inProgress: 'in_progress', completed: 'completed' };
const CHANGES = { add: 'created', delete: 'deleted', update: 'changed' };

/**
 * The events of a notification, as `[kind, fields]`. Calls of tools are told by the hook before them;
 * `root` is the working directory.
 */
export function mapNotification({ method, params }, root = process.cwd()) {
  switch (method) {
    case 'item/agentMessage/delta':
      return [['assistant_delta', { text: params.delta }]];
    case 'item/reasoning/summaryTextDelta':
    case 'item/reasoning/textDelta':
      return [['thinking_delta', { text: params.delta }]];
    case 'item/completed':
      return mapItem(params.item, root);
    case 'turn/plan/updated':
      return [['plan_updated', { entries: params.plan.map(planEntry) }]];
    case 'thread/tokenUsage/updated':
      return [['usage_updated', { usage: usageOf(params.tokenUsage.total) }]];
    case 'warning':
      return [['warning', { message: params.message }]];
    case 'error':
      return params.willRetry ? [['warning', { message: `${params.error.message}; Codex tries again` }]] : [];
    default:
      return [];
  }
}

function mapItem(item, root) {
  switch (item.type) {
    case 'agentMessage':
      return item.text === '' ? [] : [['assistant_message', { text: item.text }]];
    case 'commandExecution':
      return [['tool_result', result(item, { output: item.aggregatedOutput ?? '', exit_code: item.exitCode })]];
    case 'fileChange':
      return [...changesOf(item, root), ['tool_result', result(item, item.changes.map(({ path }) => workspacePath(path, root)))]];
    case 'mcpToolCall':
      return [['tool_result', result(item, item.error?.message ?? item.result?.content ?? null)]];
    default:
      return [];
  }
}

function result({ id, status }, output) {
  return { tool_use_id: id, output, is_error: status !== 'completed' };
}

function changesOf({ status, changes }, root) {
  if (status !== 'completed') return [];
  return changes.map(({ path, kind }) => ['file_changed', { path: workspacePath(path, root), summary: CHANGES[kind?.type] ?? 'changed' }]);
}

function planEntry({ step, status }) {
  return { content: step, status: PLAN_STATUS[status] ?? 'pending' };
}

/** Codex counts cached tokens as input tokens; ABP counts them apart. */
function usageOf(total) {
  const cached = total.cachedInputTokens ?? 0;
  return {
    input_tokens: Math.max(0, (total.inputTokens ?? 0) - cached),
    output_tokens: total.outputTokens ?? 0,
    cache_read_tokens: cached,
    cache_write_tokens: total.cacheWriteInputTokens ?? 0,
  };
}

/** Why a turn failed, as `[code, message]`; null where it did its work. */
export function failureOf({ status, error }) {
  if (status === 'completed') return null;
  const message = error?.message ?? `the turn ended as ${status}`;
  return [codeOf(error?.codexErrorInfo), message];
}

function codeOf(info) {
  const name = typeof info === 'string' ? info : Object.keys(info ?? {})[0];
  const codes = {
    contextWindowExceeded: 'BACKEND_CONTEXT_LENGTH',
    usageLimitExceeded: 'BACKEND_RATE_LIMITED',
    serverOverloaded: 'BACKEND_UNAVAILABLE',
    unauthorized: 'BACKEND_AUTH_FAILED',
    httpConnectionFailed: 'BACKEND_UNAVAILABLE',
    responseStreamConnectionFailed: 'BACKEND_UNAVAILABLE',
    responseStreamDisconnected: 'BACKEND_UNAVAILABLE',
    responseTooManyFailedAttempts: 'BACKEND_UNAVAILABLE',
    badRequest: 'BACKEND_BROKEN_ANSWER',
  };
  return codes[name] ?? 'BACKEND_BROKEN_ANSWER';
}
