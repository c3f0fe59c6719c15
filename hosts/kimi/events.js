// From the lines of Kimi Code's `stream-json` output to ABP's events. No I/O.

import { workspacePath } from '../lib/agent.js';

const CHANGING_TOOLS = new Set(['Write', 'Edit', 'WriteFile', 'StrReplaceFile']);
const TODO_STATUS = { pending: 'pending', in_progress: 'in_progress', done: 'completed', completed: 'completed' };

/** Keeps the calls of tools: results name only their ids. */
export class KimiEvents {
  #root;
  #calls = new Map();

  constructor(root = process.cwd()) {
    this.#root = root;
  }

  /** The events of a line, as `[kind, fields]`. Calls of tools are told by the hook before them. */
  map(line) {
    switch (line.role) {
      case 'meta':
        return line.type === 'session.resume_hint' ? [['session_started', { session_id: line.session_id }]] : [];
      case 'assistant':
        return this.#assistant(line);
      case 'tool':
        return this.#toolResult(line);
      default:
        return [];
    }
  }

  #assistant({ content, reasoning_content: thinking, tool_calls: calls = [] }) {
    for (const { id, function: called } of calls) this.#calls.set(id, { name: called.name, input: parsed(called.arguments) });
    const events = [];
    if (thinking) events.push(['thinking_delta', { text: thinking }]);
    if (content) events.push(['assistant_message', { text: textOf(content) }]);
    return events;
  }

  #toolResult({ tool_call_id: id, content, is_error: isError }) {
    const call = this.#calls.get(id);
    if (call === undefined) return [];
    const failed = isError === true;
    const result = { tool_name: call.name, tool_use_id: id, output: textOf(content), is_error: failed };
    return [...(failed ? [] : this.#effects(call)), ['tool_result', result]];
  }

  #effects({ name, input }) {
    if (name === 'TodoList' || name === 'SetTodoList') return planOf(input);
    const path = input?.path ?? input?.file_path;
    if (!CHANGING_TOOLS.has(name) || typeof path !== 'string') return [];
    return [['file_changed', { path: workspacePath(path, this.#root), summary: 'written' }]];
  }
}

function planOf(input) {
  if (!Array.isArray(input?.todos)) return [];
  const entries = input.todos.map(({ title, content, status }) => ({ content: title ?? content ?? '', status: TODO_STATUS[status] ?? 'pending' }));
  return [['plan_updated', { entries }]];
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part) => part.text ?? `[${part.type}]`).join('\n');
}

/** The usage of a session since a moment, from the lines of its own record. */
export function usageSince(record, since) {
  const total = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 };
  for (const line of record.split('\n')) {
    const { type, time, usage } = parsed(line);
    if (type !== 'usage.record' || !(time >= since)) continue;
    total.input_tokens += usage?.inputOther ?? 0;
    total.output_tokens += usage?.output ?? 0;
    total.cache_read_tokens += usage?.inputCacheRead ?? 0;
    total.cache_write_tokens += usage?.inputCacheCreation ?? 0;
  }
  return total;
}
