// From the session events of the Copilot SDK to ABP's events. No I/O.

import { CallList, workspacePath } from '../lib/agent.js';

/** Tools that change the file at `path`. */
const CHANGES = { create: 'created', edit: 'changed', str_replace: 'changed', insert: 'changed' };

/** Keeps the calls of tools, and the totals of usage, which arrive request by request. */
export class CopilotEvents {
  #root;
  /** The calls so far, for the hook. */
  calls = new CallList();
  #total = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 };

  constructor(root = process.cwd()) {
    this.#root = root;
  }

  /** The events of a session event, as `[kind, fields]`. Calls of tools are told by the hook before them. */
  map({ type, data }) {
    switch (type) {
      case 'assistant.message_delta':
        return data.parentToolCallId ? [] : [['assistant_delta', { text: data.deltaContent }]];
      case 'assistant.reasoning_delta':
        return [['thinking_delta', { text: data.deltaContent }]];
      case 'assistant.message':
        for (const call of data.toolRequests ?? []) this.calls.add(call.toolCallId, call.name, call.arguments);
        return data.content && !data.parentToolCallId ? [['assistant_message', { text: data.content }]] : [];
      case 'tool.execution_complete':
        return this.#toolResult(data);
      case 'assistant.usage':
        return this.#usage(data);
      case 'session.warning':
        return [['warning', { message: data.message }]];
      default:
        return [];
    }
  }

  #toolResult({ toolCallId: id, success, result, error }) {
    const output = success ? (result?.content ?? '') : (error?.message ?? '');
    return [...(success ? this.#change(id) : []), ['tool_result', { tool_use_id: id, output, is_error: !success }]];
  }

  #change(id) {
    const { name, input } = this.calls.get(id) ?? {};
    if (!(name in CHANGES) || typeof input?.path !== 'string') return [];
    return [['file_changed', { path: workspacePath(input.path, this.#root), summary: CHANGES[name] }]];
  }

  /** Copilot counts cached tokens as input tokens; ABP counts them apart. */
  #usage({ inputTokens = 0, outputTokens = 0, cacheReadTokens = 0, cacheWriteTokens = 0 }) {
    this.#total.input_tokens += Math.max(0, inputTokens - cacheReadTokens);
    this.#total.output_tokens += outputTokens;
    this.#total.cache_read_tokens += cacheReadTokens;
    this.#total.cache_write_tokens += cacheWriteTokens;
    return [['usage_updated', { usage: { ...this.#total } }]];
  }
}

/** The code and words of a `session.error` event. */
export function failureOf({ errorType, statusCode, message }) {
  if (statusCode === 401 || statusCode === 403 || errorType === 'authentication') return ['BACKEND_AUTH_FAILED', message];
  if (statusCode === 404) return ['BACKEND_MODEL_NOT_FOUND', message];
  if (statusCode === 429 || errorType === 'rate_limit' || errorType === 'quota') return ['BACKEND_RATE_LIMITED', message];
  if (errorType === 'context_limit') return ['BACKEND_CONTEXT_LENGTH', message];
  return ['BACKEND_UNAVAILABLE', message];
}
