// `@google/genai`.

'use strict';

const { createPartFromBase64, createPartFromUri, GoogleGenAI } = require('@google/genai');
const { z } = require('zod');
const { counted, forecast, parameters, seen, withLabels } = require('./seen.cjs');

const part = ({ link, type, data }) =>
  link ? createPartFromUri(link, type) : createPartFromBase64(data, type);

class GenerateContent {
  constructor(url, key) {
    this.client = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url } });
  }

  request({ model, system, history = [], prompt, image, settings, own }) {
    const roles = { user: 'user', assistant: 'model' };
    const contents = [
      ...history.map(([role, text]) => ({ role: roles[role], parts: [{ text }] })),
      { role: 'user', parts: [{ text: prompt }, ...(image ? [part(image)] : [])] },
    ];
    const { max_tokens: maxOutputTokens, temperature, stop: stopSequences } = settings;
    return {
      model,
      contents,
      config: { systemInstruction: system, maxOutputTokens, temperature, stopSequences, ...own },
    };
  }

  async embed({ model, texts }) {
    const { embeddings } = await this.client.models.embedContent({ model, contents: texts });
    return { vectors: embeddings.map(({ values }) => values) };
  }

  async send(request, stream) {
    if (!stream) return [await this.client.models.generateContent(request)];
    const pieces = [];
    for await (const piece of await this.client.models.generateContentStream(request))
      pieces.push(piece);
    return pieces;
  }

  seen(pieces) {
    const parts = pieces.flatMap(({ candidates: [{ content }] }) => content?.parts ?? []);
    const calls = parts
      .filter(({ functionCall }) => functionCall)
      .map(({ functionCall: { name, args } }) => [name, args]);
    const {
      candidates: [{ finishReason }],
      usageMetadata: usage,
    } = pieces.at(-1);
    const counts = [
      usage.promptTokenCount,
      usage.cachedContentTokenCount,
      usage.candidatesTokenCount,
    ];
    return seen(parts.map(({ text }) => text ?? '').join(''), calls, finishReason, counts);
  }

  async ask(job) {
    const pieces = await this.send(this.request(job), job.stream);
    const told = this.seen(pieces);
    return job.stream ? told : withLabels(told, pieces[0].sdkHttpResponse.headers);
  }

  async use_tools(job) {
    const request = this.request(job);
    const functionDeclarations = job.tools.map((tool) => ({
      name: tool.name,
      description: tool.description,
      parametersJsonSchema: parameters(tool),
    }));
    request.config.tools = [{ functionDeclarations }];
    const first = await this.send(request, job.stream);
    const calls = first
      .flatMap(({ candidates: [{ content }] }) => content.parts)
      .filter(({ functionCall }) => functionCall);
    const results = calls.map(({ functionCall: { id, name } }) => ({
      functionResponse: { id, name, response: { output: job.results[name] } },
    }));
    request.contents.push({ role: 'model', parts: calls }, { role: 'user', parts: results });
    return { calls: this.seen(first), end: this.seen(await this.send(request, job.stream)) };
  }

  async structured(job) {
    const request = this.request(job);
    Object.assign(request.config, {
      responseMimeType: 'application/json',
      responseJsonSchema: z.toJSONSchema(forecast),
    });
    return forecast.parse(JSON.parse((await this.client.models.generateContent(request)).text));
  }

  async count(job) {
    const { model, contents } = this.request(job);
    const found = await this.client.models.countTokens({ model, contents });
    return counted(found.totalTokens, found.sdkHttpResponse.headers);
  }

  async models({ model }) {
    const bare = ({ name }) => name.replace('models/', '');
    const names = [];
    for await (const found of await this.client.models.list()) names.push(bare(found));
    return { names: names.sort(), one: bare(await this.client.models.get({ model })) };
  }
}

module.exports = { GenerateContent };
