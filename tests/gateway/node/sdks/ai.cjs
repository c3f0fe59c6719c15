// `ai`, with `@ai-sdk/openai`, `@ai-sdk/anthropic` and `@ai-sdk/google`.

'use strict';

const { createAnthropic } = require('@ai-sdk/anthropic');
const { createGoogleGenerativeAI } = require('@ai-sdk/google');
const { createOpenAI } = require('@ai-sdk/openai');
const { generateText, jsonSchema, Output, streamText, tool } = require('ai');
const { forecast, parameters, seen, withLabels } = require('./seen.cjs');

// The same for every provider: that is what the SDK is for.
class Provider {
  constructor(url, key) {
    // The address of the API with its version, unlike other SDKs.
    this.provider = this.create({ baseURL: `${url}/${this.version}`, apiKey: key });
  }

  get version() {
    return 'v1';
  }

  model(name) {
    return this.provider(name);
  }

  request({ model, system, history = [], prompt, image, settings }) {
    const picture = () => ({
      type: 'image',
      image: image.link ? new URL(image.link) : image.data,
      mediaType: image.type,
    });
    const content = image ? [{ type: 'text', text: prompt }, picture()] : prompt;
    const messages = [
      ...history.map(([role, text]) => ({ role, content: text })),
      { role: 'user', content },
    ];
    const { max_tokens: maxOutputTokens, temperature, stop: stopSequences } = settings;
    const limits = { maxOutputTokens, temperature, stopSequences, maxRetries: 0 };
    return { model: this.model(model), system, messages, ...limits };
  }

  async send(request, stream) {
    if (!stream) return generateText(request);
    const result = streamText({ ...request, onError: () => {} });
    for await (const part of result.fullStream) {
      if (part.type === 'error') throw part.error;
    }
    const [text, toolCalls, finishReason, usage, response] = await Promise.all([
      result.text,
      result.toolCalls,
      result.finishReason,
      result.usage,
      result.response,
    ]);
    return { text, toolCalls, finishReason, usage, response };
  }

  seen({ text, toolCalls, finishReason, usage }) {
    const calls = toolCalls.map(({ toolName, input }) => [toolName, input]);
    const counts = [usage.inputTokens, usage.inputTokenDetails.cacheReadTokens, usage.outputTokens];
    return seen(text, calls, finishReason, counts);
  }

  async ask(job) {
    const result = await this.send(this.request(job), job.stream);
    const told = this.seen(result);
    return job.stream ? told : withLabels(told, result.response.headers);
  }

  async use_tools(job) {
    const request = this.request(job);
    request.tools = Object.fromEntries(
      job.tools.map((given) => [
        given.name,
        tool({ description: given.description, inputSchema: jsonSchema(parameters(given)) }),
      ]),
    );
    const first = await this.send(request, job.stream);
    const content = first.toolCalls.map(({ toolCallId, toolName }) => ({
      type: 'tool-result',
      toolCallId,
      toolName,
      output: { type: 'text', value: job.results[toolName] },
    }));
    request.messages.push(...first.response.messages, { role: 'tool', content });
    return { calls: this.seen(first), end: this.seen(await this.send(request, job.stream)) };
  }

  async structured(job) {
    const output = Output.object({ schema: forecast });
    return (await generateText({ ...this.request(job), output })).output;
  }
}

class OpenAIChat extends Provider {
  create(options) {
    return createOpenAI(options);
  }

  model(name) {
    return this.provider.chat(name);
  }
}

class OpenAIResponses extends Provider {
  create(options) {
    return createOpenAI(options);
  }
}

class Anthropic extends Provider {
  create(options) {
    return createAnthropic(options);
  }
}

class Google extends Provider {
  create(options) {
    return createGoogleGenerativeAI(options);
  }

  get version() {
    return 'v1beta';
  }
}

module.exports = { Anthropic, Google, OpenAIChat, OpenAIResponses };
