// From the messages of the Claude Agent SDK to ABP's events. No I/O.

import { workspacePath } from '../lib/agent.js';

/** Tools that change a file, with the member of their result that names it. */
const CHANGING_TOOLS = new Set(['Write', 'Edit', 'MultiEdit', 'NotebookEdit']);
const TASK_STATUS = new Set(['pending', 'in_progress', 'completed']);

/** Keeps what later messages need: names of calls, tasks of the plan, usage so far. */
export class ClaudeEvents {
  #root;
  #calls = new Map();
  #tasks = new Map();
  #total = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  /** Of the model's message that is under way. */
  #current = null;

  constructor(root = process.cwd()) {
    this.#root = root;
  }

  /** The call that an id stands for: `{name, input, parent}`. */
  call(id) {
    return this.#calls.get(id);
  }

  /** The events of a message, as `[kind, fields]`. Calls of tools are told by the hook before them. */
  map(message) {
    switch (message.type) {
      case 'system':
        return this.#system(message);
      case 'stream_event':
        return message.parent_tool_use_id ? [] : this.#piece(message.event);
      case 'assistant':
        return this.#assistant(message);
      case 'user':
        return this.#results(message);
      case 'result':
        return this.#result(message);
      default:
        return [];
    }
  }

  #system(message) {
    switch (message.subtype) {
      case 'init':
        return [['session_started', { session_id: message.session_id }]];
      case 'api_retry':
        return [['warning', { message: `the model's API failed (${message.error_status ?? 'no answer'}); attempt ${message.attempt} of ${message.max_retries}` }]];
      case 'compact_boundary':
        return [['warning', { message: 'the conversation was shortened to a summary' }]];
      default:
        return [];
    }
  }

  #piece(event) {
    switch (event.type) {
      case 'message_start':
        this.#current = usageOf(event.message?.usage);
        return [];
      case 'content_block_delta':
        if (event.delta.type === 'text_delta') return [['assistant_delta', { text: event.delta.text }]];
        if (event.delta.type === 'thinking_delta') return [['thinking_delta', { text: event.delta.thinking }]];
        return [];
      case 'message_delta':
        return this.#messageUsage(event.usage);
      default:
        return [];
    }
  }

  #messageUsage(usage) {
    const of = { ...(this.#current ?? usageOf({})), ...defined({ output: usage?.output_tokens }) };
    this.#current = null;
    for (const name of Object.keys(this.#total)) this.#total[name] += of[name];
    return [['usage_updated', { usage: normalized(this.#total) }]];
  }

  #assistant({ message, parent_tool_use_id: parent }) {
    const blocks = Array.isArray(message?.content) ? message.content : [];
    for (const block of blocks) {
      if (block.type === 'tool_use') this.#calls.set(block.id, { name: block.name, input: block.input, parent });
    }
    if (parent) return [];
    const text = blocks.filter(({ type }) => type === 'text').map((block) => block.text).join('');
    return text === '' ? [] : [['assistant_message', { text }]];
  }

  #results({ message, tool_use_result: detail }) {
    const blocks = Array.isArray(message?.content) ? message.content : [];
    return blocks.filter(({ type }) => type === 'tool_result').flatMap((block) => this.#toolResult(block, detail));
  }

  #toolResult({ tool_use_id: id, content, is_error: isError }, detail) {
    const call = this.#calls.get(id);
    if (call === undefined) return [];
    const failed = isError === true;
    const result = { tool_name: call.name, tool_use_id: id, output: textOf(content), is_error: failed };
    const changed = failed ? [] : [...this.#change(call, detail), ...this.#plan(call, detail)];
    return [...changed, ['tool_result', result]];
  }

  #change({ name, input }, detail) {
    if (!CHANGING_TOOLS.has(name)) return [];
    const path = detail?.filePath ?? input?.file_path ?? input?.notebook_path;
    if (typeof path !== 'string') return [];
    const summary = detail?.type === 'create' ? 'created' : 'changed';
    return [['file_changed', { path: workspacePath(path, this.#root), summary }]];
  }

  /** The list of tasks that the agent keeps, whichever of its tools it uses for it. */
  #plan({ name, input }, detail) {
    if (name === 'TodoWrite') {
      const todos = Array.isArray(input?.todos) ? input.todos : [];
      return [['plan_updated', { entries: todos.map(({ content, status }) => ({ content, status })) }]];
    }
    if (name === 'TaskCreate' && detail?.task?.id !== undefined) {
      this.#tasks.set(String(detail.task.id), { content: input?.subject ?? '', status: 'pending' });
    } else if (name === 'TaskUpdate' && this.#tasks.has(String(input?.taskId))) {
      this.#updateTask(String(input.taskId), input);
    } else {
      return [];
    }
    return [['plan_updated', { entries: [...this.#tasks.values()].map((task) => ({ ...task })) }]];
  }

  #updateTask(id, { status, subject }) {
    if (status === 'deleted') {
      this.#tasks.delete(id);
      return;
    }
    const task = this.#tasks.get(id);
    if (TASK_STATUS.has(status)) task.status = status;
    if (typeof subject === 'string') task.content = subject;
  }

  #result({ usage }) {
    if (usage === undefined) return [];
    return [['usage_updated', { usage: normalized(usageOf(usage)) }]];
  }
}

/** Why a run that ended with this result failed, as `[code, message]`; null where it did its work. */
export function failureOf(result) {
  const words = result.errors?.join('; ') || result.result || result.subtype;
  switch (result.subtype) {
    case 'success':
      return result.is_error ? [codeOfError(result), words] : null;
    case 'error_max_turns':
      return ['TURN_LIMIT_EXCEEDED', words];
    case 'error_max_budget_usd':
      return ['BUDGET_EXCEEDED', words];
    default:
      return ['BACKEND_BROKEN_ANSWER', words];
  }
}

function codeOfError({ api_error_status: status, result }) {
  const found = status ?? Number(/API Error: (\d{3})/.exec(result ?? '')?.[1]);
  if (found === 401 || found === 403) return 'BACKEND_AUTH_FAILED';
  if (found === 404) return 'BACKEND_MODEL_NOT_FOUND';
  if (found === 429) return 'BACKEND_RATE_LIMITED';
  return 'BACKEND_UNAVAILABLE';
}

function usageOf(usage) {
  return {
    input: usage?.input_tokens ?? 0,
    output: usage?.output_tokens ?? 0,
    cacheRead: usage?.cache_read_input_tokens ?? 0,
    cacheWrite: usage?.cache_creation_input_tokens ?? 0,
  };
}

function normalized({ input, output, cacheRead, cacheWrite }) {
  return { input_tokens: input, output_tokens: output, cache_read_tokens: cacheRead, cache_write_tokens: cacheWrite };
}

function defined(members) {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((block) => (block.type === 'text' ? block.text : `[${block.type}]`)).join('\n');
}
