// `openai`: Chat Completions and Responses.

'use strict';

const OpenAI = require('openai');
const { zodResponseFormat, zodTextFormat } = require('openai/helpers/zod');
const { counted, dataUrl, forecast, listed, parameters, seen, withLabels } = require('./seen.cjs');

class Client {
  constructor(url, key) {
    this.client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  }

  models({ model }) {
    return listed(this.client.models, model);
  }
}

class Chat extends Client {
  request({ model, system, history = [], prompt, image, settings, own }) {
    const picture = () => ({ type: 'image_url', image_url: { url: dataUrl(image) } });
    const content = image ? [{ type: 'text', text: prompt }, picture()] : prompt;
    const { max_tokens: max_completion_tokens, ...others } = settings;
    const messages = [
      ...(system ? [{ role: 'system', content: system }] : []),
      ...history.map(([role, text]) => ({ role, content: text })),
      { role: 'user', content },
    ];
    return { model, messages, max_completion_tokens, ...others, ...own };
  }

  async embed({ model, texts }) {
    const { data } = await this.client.embeddings.create({ model, input: texts });
    return { vectors: data.map(({ embedding }) => embedding) };
  }

  // Uploads a file, has it worked on, and reads what came of it.
  async batch({ lines }) {
    const { files, batches } = this.client;
    const file = await OpenAI.toFile(Buffer.from(lines), 'lines.jsonl');
    const sent = await files.create({ file, purpose: 'batch' });
    const begun = await batches.create({
      input_file_id: sent.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const done = await batches.retrieve(begun.id);
    const output = await (await files.content(done.output_file_id)).text();
    const { deleted } = await files.delete(sent.id);
    return { status: done.status, output, deleted };
  }

  send(request, stream) {
    const { completions } = this.client.chat;
    if (!stream) return completions.create(request);
    return completions
      .stream({ ...request, stream_options: { include_usage: true } })
      .finalChatCompletion();
  }

  seen({ choices: [{ message, finish_reason: stop }], usage }) {
    const calls = (message.tool_calls ?? []).map(({ function: { name, arguments: given } }) => [
      name,
      JSON.parse(given),
    ]);
    const counts = [
      usage.prompt_tokens,
      usage.prompt_tokens_details.cached_tokens,
      usage.completion_tokens,
    ];
    return seen(message.content ?? '', calls, stop, counts);
  }

  async ask(job) {
    if (job.stream) return this.seen(await this.send(this.request(job), true));
    const { data, response } = await this.client.chat.completions
      .create(this.request(job))
      .withResponse();
    return withLabels(this.seen(data), response.headers);
  }

  async use_tools(job) {
    const request = this.request(job);
    request.tools = job.tools.map((tool) => ({
      type: 'function',
      function: {
        name: tool.name,
        description: tool.description,
        parameters: parameters(tool),
        strict: true,
      },
    }));
    const first = await this.send(request, job.stream);
    const calls = first.choices[0].message.tool_calls.map(
      ({ id, function: { name, arguments: given } }) => ({
        id,
        type: 'function',
        function: { name, arguments: given },
      }),
    );
    request.messages.push({ role: 'assistant', content: null, tool_calls: calls });
    for (const call of calls) {
      request.messages.push({
        role: 'tool',
        tool_call_id: call.id,
        content: job.results[call.function.name],
      });
    }
    return { calls: this.seen(first), end: this.seen(await this.send(request, job.stream)) };
  }

  async structured(job) {
    const response_format = zodResponseFormat(forecast, 'forecast');
    const done = await this.client.chat.completions.parse({
      ...this.request(job),
      response_format,
    });
    return done.choices[0].message.parsed;
  }
}

// The event of that name, which the SDK hands out like any other.
class ResponseFailed extends Error {}

class Responses extends Client {
  request({ model, system, history = [], prompt, image, settings, own }) {
    const picture = () => ({ type: 'input_image', image_url: dataUrl(image), detail: 'auto' });
    const content = image ? [{ type: 'input_text', text: prompt }, picture()] : prompt;
    const { max_tokens: max_output_tokens, ...others } = settings;
    const input = [
      ...history.map(([role, text]) => ({ role, content: text })),
      { role: 'user', content },
    ];
    const instructions = system && { instructions: system };
    return { model, input, max_output_tokens, ...instructions, ...others, ...own };
  }

  async send(request, stream) {
    if (!stream) return this.client.responses.create(request);
    const events = this.client.responses.stream(request);
    for await (const event of events) {
      if (event.type === 'response.failed') throw new ResponseFailed(event.response.error.message);
    }
    return events.finalResponse();
  }

  seen({ output, output_text: text, incomplete_details: details, status, usage }) {
    const calls = output.filter(({ type }) => type === 'function_call');
    const parts = output.flatMap(({ content }) => content ?? []);
    const refused = parts.some(({ type }) => type === 'refusal');
    const stop = refused ? 'refusal' : (details?.reason ?? status);
    const counts = [
      usage.input_tokens,
      usage.input_tokens_details.cached_tokens,
      usage.output_tokens,
    ];
    return seen(
      text,
      calls.map(({ name, arguments: given }) => [name, JSON.parse(given)]),
      stop,
      counts,
    );
  }

  async ask(job) {
    if (job.stream) return this.seen(await this.send(this.request(job), true));
    const { data, response } = await this.client.responses.create(this.request(job)).withResponse();
    return withLabels(this.seen(data), response.headers);
  }

  async use_tools(job) {
    const request = this.request(job);
    request.tools = job.tools.map((tool) => ({
      type: 'function',
      name: tool.name,
      description: tool.description,
      parameters: parameters(tool),
      strict: true,
    }));
    const first = await this.send(request, job.stream);
    const calls = first.output.filter(({ type }) => type === 'function_call');
    for (const { id, type, call_id, name, arguments: given } of calls) {
      request.input.push({ id, type, call_id, name, arguments: given });
    }
    for (const { call_id, name } of calls) {
      request.input.push({ type: 'function_call_output', call_id, output: job.results[name] });
    }
    return { calls: this.seen(first), end: this.seen(await this.send(request, job.stream)) };
  }

  async structured(job) {
    const text = { format: zodTextFormat(forecast, 'forecast') };
    return (await this.client.responses.parse({ ...this.request(job), text })).output_parsed;
  }

  async count(job) {
    const { max_output_tokens: _, ...request } = this.request(job);
    const { data, response } = await this.client.responses.inputTokens
      .count(request)
      .withResponse();
    return counted(data.input_tokens, response.headers);
  }

  // Goes on from a kept answer, looks at it, and deletes it.
  async store(job) {
    const request = this.request(job);
    const first = await this.send(request, job.stream);
    const second = await this.send(
      { ...request, input: job.next, previous_response_id: first.id },
      job.stream,
    );
    const kept = await this.client.responses.retrieve(second.id);
    const items = [];
    for await (const item of this.client.responses.inputItems.list(second.id, { order: 'asc' }))
      items.push(item);
    await this.client.responses.delete(second.id);
    const gone = await this.client.responses.retrieve(second.id).then(
      ({ status }) => status,
      (error) => error.constructor.name,
    );
    return {
      end: this.seen(second),
      kept: this.seen(kept).text === this.seen(second).text,
      input: items.map(({ role, content }) => [role, content[0].text]),
      gone,
    };
  }
}

module.exports = { Chat, Responses };
