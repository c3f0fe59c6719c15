// From the lines of Gemini CLI's `stream-json` output to ABP's events. No I/O.

import { CallList, workspacePath } from '../lib/agent.js';

const CHANGING_TOOLS = new Set(['write_file', 'replace', 'edit']);

/** Keeps the calls of tools, and the answer that arrives in pieces. */
export class GeminiEvents {
  #root;
  /** The calls so far, for the hook. */
  calls = new CallList();
  #text = '';

  constructor(root = process.cwd()) {
    this.#root = root;
  }

  /** The events of a line, as `[kind, fields]`. Calls of tools are told by the hook before them. */
  map(line) {
    switch (line.type) {
      case 'init':
        return [['session_started', { session_id: line.session_id }]];
      case 'message':
        return this.#message(line);
      case 'tool_use':
        this.calls.add(line.tool_id, line.tool_name, line.parameters);
        return this.#endMessage();
      case 'tool_result':
        return this.#toolResult(line);
      case 'error':
        return [['warning', { message: line.message }]];
      case 'result':
        return [...this.#endMessage(), ...usageOf(line.stats)];
      default:
        return [];
    }
  }

  #message({ role, content, delta }) {
    if (role !== 'assistant' || content === '') return [];
    this.#text += content;
    const piece = [['assistant_delta', { text: content }]];
    return delta ? piece : [...piece, ...this.#endMessage()];
  }

  #endMessage() {
    const text = this.#text;
    this.#text = '';
    return text === '' ? [] : [['assistant_message', { text }]];
  }

  #toolResult({ tool_id: id, status, output, error }) {
    const call = this.calls.get(id);
    if (call === undefined) return [];
    const failed = status !== 'success';
    const result = { tool_name: call.name, tool_use_id: id, output: output ?? error?.message ?? '', is_error: failed };
    return [...(failed ? [] : this.#change(call)), ['tool_result', result]];
  }

  #change({ name, input }) {
    const path = input?.file_path;
    if (!CHANGING_TOOLS.has(name) || typeof path !== 'string') return [];
    return [['file_changed', { path: workspacePath(path, this.#root), summary: 'written' }]];
  }
}

function usageOf(stats) {
  if (stats === undefined) return [];
  const cached = stats.cached ?? 0;
  const input = Math.max(0, (stats.input_tokens ?? 0) - cached);
  return [['usage_updated', { usage: { input_tokens: input, output_tokens: stats.output_tokens ?? 0, cache_read_tokens: cached } }]];
}

/** Why a run that ended with this line failed, as `[code, message]`; null where it did its work. */
export function failureOf({ status, error }) {
  if (status === 'success') return null;
  const message = error?.message ?? `Gemini CLI ended as ${status}`;
  return [codeOf(message), message];
}

function codeOf(message) {
  if (/API key|unauthori[sz]ed|\b40[13]\b/i.test(message)) return 'BACKEND_AUTH_FAILED';
  if (/\b404\b|not found/i.test(message)) return 'BACKEND_MODEL_NOT_FOUND';
  if (/\b429\b|quota|rate limit/i.test(message)) return 'BACKEND_RATE_LIMITED';
  if (/turn limit|max.*turns/i.test(message)) return 'TURN_LIMIT_EXCEEDED';
  return 'BACKEND_UNAVAILABLE';
}
