// `@anthropic-ai/sdk`.

'use strict';

const Anthropic = require('@anthropic-ai/sdk');
const { zodOutputFormat } = require('@anthropic-ai/sdk/helpers/zod');
const { counted, forecast, listed, parameters, seen, withLabels } = require('./seen.cjs');

const source = ({ link, type, data }) =>
  link ? { type: 'url', url: link } : { type: 'base64', media_type: type, data };

class Messages {
  constructor(url, key) {
    this.client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
  }

  request({ model, system, history = [], prompt, image, settings, own }) {
    const content = image
      ? [
          { type: 'text', text: prompt },
          { type: 'image', source: source(image) },
        ]
      : prompt;
    const messages = [
      ...history.map(([role, text]) => ({ role, content: text })),
      { role: 'user', content },
    ];
    const { stop, ...others } = settings;
    return {
      model,
      messages,
      ...(system && { system }),
      ...(stop && { stop_sequences: stop }),
      ...others,
      ...own,
    };
  }

  send(request, stream) {
    if (!stream) return this.client.messages.create(request);
    return this.client.messages.stream(request).finalMessage();
  }

  seen({ content, stop_reason: stop, usage }) {
    const text = content.filter(({ type }) => type === 'text').map((block) => block.text);
    const calls = content
      .filter(({ type }) => type === 'tool_use')
      .map(({ name, input }) => [name, input]);
    const cached = usage.cache_read_input_tokens ?? 0;
    const read = usage.input_tokens + cached + (usage.cache_creation_input_tokens ?? 0);
    return seen(text.join(''), calls, stop, [read, cached, usage.output_tokens]);
  }

  async ask(job) {
    if (job.stream) return this.seen(await this.send(this.request(job), true));
    const { data, response } = await this.client.messages.create(this.request(job)).withResponse();
    return withLabels(this.seen(data), response.headers);
  }

  async use_tools(job) {
    const request = this.request(job);
    request.tools = job.tools.map((tool) => ({
      name: tool.name,
      description: tool.description,
      input_schema: parameters(tool),
    }));
    const first = await this.send(request, job.stream);
    const calls = first.content.filter(({ type }) => type === 'tool_use');
    const results = calls.map(({ id, name }) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: job.results[name],
    }));
    request.messages.push(
      { role: 'assistant', content: first.content },
      { role: 'user', content: results },
    );
    return { calls: this.seen(first), end: this.seen(await this.send(request, job.stream)) };
  }

  async structured(job) {
    const output_config = { format: zodOutputFormat(forecast) };
    return (await this.client.messages.parse({ ...this.request(job), output_config }))
      .parsed_output;
  }

  async count(job) {
    const { max_tokens: _, ...request } = this.request(job);
    const { data, response } = await this.client.messages.countTokens(request).withResponse();
    return counted(data.input_tokens, response.headers);
  }

  models({ model }) {
    return listed(this.client.models, model);
  }
}

module.exports = { Messages };
