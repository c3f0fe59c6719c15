// A model that does what its prompt says, in the dialects that vendors' agents speak: for tests
// without a vendor. A prompt has its steps in double brackets, one for each turn:
//
//   [[write hello.txt: hi]]   a call of the agent's own tool for writing files
//   [[read hello.txt]]        a call of its tool for reading files
//   [[run touch x]]           a call of its tool for commands
//   [[call grep {"pattern":"x"}]]  a call of the tool whose name ends so, with this input
//   [[wait]]                  a piece of text, and then nothing more
//
// After the last step the model says "All done." Requests without tools (titles, summaries) get a
// few words. Run it alone with `node scripted_model.js`: it prints its address.

import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const STEP = /\[\[(write ([^\]:]+): ([^\]]*)|read ([^\]]+)|run ([^\]]+)|call (\S+) (\{.*?\})|wait)\]\]/g;
/** The tools of the known agents that write a file, read one or run a command, best first. */
const WRITE_TOOLS = ['Write', 'write_file', 'WriteFile', 'create', 'write'];
const READ_TOOLS = ['Read', 'read_file', 'ReadFile', 'view'];
const COMMAND_TOOLS = ['Bash', 'exec_command', 'shell', 'run_shell_command', 'bash', 'Shell', 'shell_command'];
const PATH_MEMBERS = ['file_path', 'path', 'filePath'];
const TEXT_MEMBERS = ['content', 'file_text', 'contents'];
const USAGE = { input: 100, output: 20 };

/**
 * Starts a model on a free port: `{url, requests, seen, results, close}`. `requests` counts those with
 * tools, `seen` has all of them, `results` the messages that came after the last prompt.
 */
export async function startModel(port = 0) {
  const model = { requests: 0, seen: [], results: [] };
  const server = createServer((request, response) => {
    answer(request, response, model).catch((error) => {
      console.error(error);
      response.destroy();
    });
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  model.url = `http://127.0.0.1:${server.address().port}`;
  model.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return model;
}

async function answer(request, response, model) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const path = new URL(request.url, 'http://model').pathname;
  model.seen.push({ method: request.method, path, headers: request.headers });
  const dialect = request.method === 'POST' ? DIALECTS.find(({ matches }) => matches.test(path)) : undefined;
  if (dialect === undefined) {
    sendJson(response, request.method === 'GET' ? modelList() : { input_tokens: 42, totalTokens: 42 });
    return;
  }
  const body = JSON.parse(Buffer.concat(chunks).toString('utf8') || '{}');
  const asked = dialect.read(body);
  if (asked.tools.length > 0) {
    model.requests += 1;
    model.results = asked.after;
  }
  const step = nextStep(asked);
  const isStream = body.stream === true || path.endsWith(':streamGenerateContent');
  if (!isStream) {
    sendJson(response, dialect.whole(step, body));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  for (const [event, data] of dialect.stream(step, body)) {
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    response.write(`${event ? `event: ${event}\n` : ''}data: ${text}\n\n`);
    // The rest never comes.
    if (step.waits && text.includes('Let me')) return;
  }
  response.end();
}

function sendJson(response, value) {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

function modelList() {
  const model = { id: 'scripted', object: 'model', type: 'model', display_name: 'scripted', created: 0 };
  return { object: 'list', data: [model], models: [], has_more: false };
}

/** The step that is due: as many are done as there are results of tools since the last prompt. */
function nextStep({ tools, prompt, results }) {
  if (tools.length === 0) return { text: 'A short title' };
  const steps = [...prompt.matchAll(STEP)];
  const found = steps[results];
  if (found === undefined) return { text: 'All done.' };
  const [, step, path, text, read, command, suffix, input] = found;
  if (step === 'wait') return { text: 'Let me think about it for a while.', waits: true };
  const shell = command ?? (read ? `cat '${read}'` : `printf '%s\\n' '${text}' > '${path}'`);
  const writer = path === undefined ? undefined : chosen(tools, WRITE_TOOLS);
  const id = `call_scripted_${results + 1}`;
  const named = tools.find(({ name }) => suffix !== undefined && name.endsWith(suffix));
  if (named !== undefined) return { call: { id, ...named, input: JSON.parse(input) } };
  if (suffix !== undefined) return { text: `no tool ${suffix} among ${tools.map(({ name }) => name).join(', ')}` };
  if (writer !== undefined) return { call: { id, ...writer, input: fileInput(writer.schema, path, text) } };
  const reader = read === undefined ? undefined : chosen(tools, READ_TOOLS);
  if (reader !== undefined) return { call: { id, ...reader, input: pathInput(reader.schema, read) } };
  const runner = chosen(tools, COMMAND_TOOLS);
  if (runner !== undefined) return { call: { id, ...runner, input: commandInput(runner, shell) } };
  return { text: `no tool for it among ${tools.map(({ name }) => name).join(', ')}` };
}

function chosen(tools, names) {
  const name = names.find((wanted) => tools.some((tool) => tool.name === wanted));
  return tools.find((tool) => tool.name === name);
}

function fileInput(schema, path, text) {
  return { ...pathInput(schema, path), [memberOf(schema, TEXT_MEMBERS)]: `${text}\n` };
}

function pathInput(schema, path) {
  return { ...required(schema), [memberOf(schema, PATH_MEMBERS)]: path };
}

function memberOf(schema, names) {
  return names.find((name) => schema?.properties?.[name] !== undefined) ?? names[0];
}

function commandInput({ schema }, command) {
  const isList = schema?.properties?.command?.type === 'array';
  const name = schema?.properties?.cmd !== undefined ? 'cmd' : 'command';
  return { ...required(schema), [name]: isList ? ['bash', '-lc', command] : command };
}

/** Something for every member that a tool cannot do without. */
function required(schema) {
  const members = schema?.required ?? [];
  return Object.fromEntries(members.map((name) => [name, filler(schema.properties?.[name])]));
}

function filler(schema) {
  if (schema?.enum) return schema.enum[0];
  const fillers = { boolean: false, integer: 1, number: 1, array: [], object: {} };
  return fillers[schema?.type] ?? 'scripted';
}

/** All text of a message, whatever its parts. */
function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return content?.text ?? '';
  return content.map(textOf).join('\n');
}
const pieces = (text) => text.match(/\S+\s*/g) ?? [];
const jsonPieces = (value) => JSON.stringify(value).match(/.{1,24}/gs) ?? [];
/** Results of calls that follow the last prompt with steps in it. */
function resultsAfter(items, isPrompt, countOf) {
  const after = items.slice(items.findLastIndex(isPrompt) + 1);
  return { after, results: after.reduce((sum, item) => sum + countOf(item), 0) };
}
const hasSteps = (text) => text.search(STEP) >= 0;

const MESSAGES = {
  matches: /\/messages$/,
  read(body) {
    const isPrompt = ({ role, content }) => role === 'user' && hasSteps(textOf(content));
    const countOf = ({ content }) => (Array.isArray(content) ? content.filter(({ type }) => type === 'tool_result').length : 0);
    return {
      tools: (body.tools ?? []).map(({ name, input_schema: schema }) => ({ name, schema })),
      prompt: textOf(body.messages.findLast(isPrompt)?.content),
      ...resultsAfter(body.messages, isPrompt, countOf),
    };
  },
  message(step, body) {
    const { id, name, input } = step.call ?? {};
    const block = step.call ? { type: 'tool_use', id, name, input } : { type: 'text', text: step.text };
    const usage = { input_tokens: USAGE.input, output_tokens: USAGE.output, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
    const reason = step.call ? 'tool_use' : 'end_turn';
    return { id: 'msg_1', type: 'message', role: 'assistant', model: body.model, content: [block], stop_reason: reason, stop_sequence: null, usage };
  },
  whole(step, body) {
    return this.message(step, body);
  },
  *stream(step, body) {
    const whole = this.message(step, body);
    const [block] = whole.content;
    const event = (data) => [data.type, data];
    yield event({ type: 'message_start', message: { ...whole, content: [], stop_reason: null } });
    const empty = step.call ? { ...block, input: {} } : { type: 'text', text: '' };
    yield event({ type: 'content_block_start', index: 0, content_block: empty });
    const deltas = step.call
      ? jsonPieces(block.input).map((json) => ({ type: 'input_json_delta', partial_json: json }))
      : pieces(block.text).map((text) => ({ type: 'text_delta', text }));
    for (const delta of deltas) yield event({ type: 'content_block_delta', index: 0, delta });
    yield event({ type: 'content_block_stop', index: 0 });
    yield event({ type: 'message_delta', delta: { stop_reason: whole.stop_reason, stop_sequence: null }, usage: { output_tokens: USAGE.output } });
    yield event({ type: 'message_stop' });
  },
};

const CHAT = {
  matches: /\/chat\/completions$/,
  read(body) {
    const isPrompt = ({ role, content }) => role === 'user' && hasSteps(textOf(content));
    return {
      tools: (body.tools ?? []).map(({ function: tool }) => ({ name: tool?.name, schema: tool?.parameters })),
      prompt: textOf(body.messages.findLast(isPrompt)?.content),
      ...resultsAfter(body.messages, isPrompt, ({ role }) => (role === 'tool' ? 1 : 0)),
    };
  },
  usage: { prompt_tokens: USAGE.input, completion_tokens: USAGE.output, total_tokens: USAGE.input + USAGE.output },
  whole(step, body) {
    const { id, name, input } = step.call ?? {};
    const call = { id, type: 'function', function: { name, arguments: JSON.stringify(input) } };
    const message = step.call ? { role: 'assistant', content: null, tool_calls: [call] } : { role: 'assistant', content: step.text };
    const choice = { index: 0, message, finish_reason: step.call ? 'tool_calls' : 'stop' };
    return { id: 'chatcmpl-1', object: 'chat.completion', created: 0, model: body.model, choices: [choice], usage: this.usage };
  },
  *stream(step, body) {
    const base = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 0, model: body.model };
    const chunk = (delta, reason = null) => ['', { ...base, choices: [{ index: 0, delta, finish_reason: reason }] }];
    yield chunk({ role: 'assistant', content: '' });
    if (step.call) {
      const { id, name, input } = step.call;
      yield chunk({ tool_calls: [{ index: 0, id, type: 'function', function: { name, arguments: '' } }] });
      for (const json of jsonPieces(input)) yield chunk({ tool_calls: [{ index: 0, function: { arguments: json } }] });
    } else {
      for (const text of pieces(step.text)) yield chunk({ content: text });
    }
    yield chunk({}, step.call ? 'tool_calls' : 'stop');
    yield ['', { ...base, choices: [], usage: this.usage }];
    yield ['', '[DONE]'];
  },
};

const RESPONSES = {
  matches: /\/responses$/,
  read(body) {
    const items = typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : body.input ?? [];
    const isPrompt = ({ role, content }) => role === 'user' && hasSteps(textOf(content));
    // Codex groups the tools of an MCP server.
    const groups = (body.tools ?? []).filter(({ type }) => type === 'namespace');
    const grouped = groups.flatMap(({ name, tools }) => tools.map((tool) => ({ ...tool, namespace: name })));
    const tools = [...(body.tools ?? []), ...grouped].filter(({ type }) => type === 'function');
    return {
      tools: tools.map(({ name, namespace, parameters: schema }) => ({ name, namespace, schema })),
      prompt: textOf(items.findLast(isPrompt)?.content),
      ...resultsAfter(items, isPrompt, ({ type }) => (type?.endsWith('_output') ? 1 : 0)),
    };
  },
  item(step) {
    const { id, name, namespace, input } = step.call ?? {};
    if (step.call) return { type: 'function_call', id: `fc_${id}`, call_id: id, name, namespace, arguments: JSON.stringify(input), status: 'completed' };
    const content = [{ type: 'output_text', text: step.text, annotations: [] }];
    return { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content };
  },
  whole(step, body) {
    const total = USAGE.input + USAGE.output;
    const details = { input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };
    const usage = { input_tokens: USAGE.input, output_tokens: USAGE.output, total_tokens: total, ...details };
    return { id: 'resp_1', object: 'response', created_at: 0, status: 'completed', model: body.model, output: [this.item(step)], usage, error: null };
  },
  *stream(step, body) {
    const item = this.item(step);
    const begun = { ...this.whole(step, body), status: 'in_progress', output: [], usage: null };
    let number = 0;
    const event = (type, members) => [type, { type, sequence_number: number++, ...members }];
    yield event('response.created', { response: begun });
    const place = { item_id: item.id, output_index: 0 };
    if (step.call) {
      yield event('response.output_item.added', { output_index: 0, item: { ...item, arguments: '', status: 'in_progress' } });
      for (const delta of jsonPieces(step.call.input)) yield event('response.function_call_arguments.delta', { ...place, delta });
      yield event('response.function_call_arguments.done', { ...place, arguments: item.arguments });
    } else {
      yield event('response.output_item.added', { output_index: 0, item: { ...item, content: [], status: 'in_progress' } });
      yield event('response.content_part.added', { ...place, content_index: 0, part: { type: 'output_text', text: '', annotations: [] } });
      for (const delta of pieces(step.text)) yield event('response.output_text.delta', { ...place, content_index: 0, delta });
      yield event('response.output_text.done', { ...place, content_index: 0, text: step.text });
      yield event('response.content_part.done', { ...place, content_index: 0, part: item.content[0] });
    }
    yield event('response.output_item.done', { output_index: 0, item });
    yield event('response.completed', { response: this.whole(step, body) });
  },
};

const GEMINI = {
  matches: /:(?:streamG|g)enerateContent$/,
  read(body) {
    const tools = (body.tools ?? []).flatMap(({ functionDeclarations = [] }) => functionDeclarations);
    const isPrompt = ({ role, parts }) => role === 'user' && hasSteps(textOf(parts));
    const countOf = ({ parts = [] }) => parts.filter(({ functionResponse }) => functionResponse !== undefined).length;
    return {
      tools: tools.map(({ name, parametersJsonSchema, parameters }) => ({ name, schema: parametersJsonSchema ?? parameters })),
      prompt: textOf(body.contents.findLast(isPrompt)?.parts),
      ...resultsAfter(body.contents, isPrompt, countOf),
    };
  },
  candidate(parts, reason) {
    const usageMetadata = { promptTokenCount: USAGE.input, candidatesTokenCount: USAGE.output, totalTokenCount: USAGE.input + USAGE.output };
    const candidate = { content: { role: 'model', parts }, index: 0, ...(reason ? { finishReason: reason } : {}) };
    return { candidates: [candidate], usageMetadata, modelVersion: 'scripted' };
  },
  parts(step) {
    if (!step.call) return pieces(step.text).map((text) => ({ text }));
    const { id, name, input } = step.call;
    return [{ functionCall: { id, name, args: input }, thoughtSignature: 'c2NyaXB0ZWQ=' }];
  },
  whole(step, body) {
    const wantsJson = body.generationConfig?.responseMimeType === 'application/json';
    return this.candidate(wantsJson ? [{ text: '{}' }] : this.parts(step), 'STOP');
  },
  *stream(step) {
    const parts = this.parts(step);
    for (const [index, part] of parts.entries()) yield ['', this.candidate([part], index === parts.length - 1 ? 'STOP' : null)];
  },
};

const DIALECTS = [MESSAGES, CHAT, RESPONSES, GEMINI];

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const model = await startModel(Number(process.argv[2] ?? 0));
  console.log(model.url);
}
