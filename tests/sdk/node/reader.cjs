// Reads answers with the vendors' Node SDKs, pointed at another address and otherwise as they are.
//
// The jobs and results are those of ../python/reader.py; `invalid` is always empty, because these
// SDKs have no model to check against at run time.

'use strict';

const readline = require('node:readline');
const Anthropic = require('@anthropic-ai/sdk');
const { ApiError, GoogleGenAI } = require('@google/genai');
const OpenAI = require('openai');

const model = 'model';
const prompt = 'Hi';
const messages = [{ role: 'user', content: prompt }];

const openai = (url) => new OpenAI({ baseURL: url, apiKey: 'none' });
const anthropic = (url) => new Anthropic({ baseURL: url, apiKey: 'none' });
const gemini = (url) => new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: url } });

const readers = {
  openai: {
    response: (url) => openai(url).chat.completions.create({ model, messages }),
    stream: (url) => openai(url).chat.completions.stream({ model, messages }).finalChatCompletion(),
  },
  codex: {
    response: (url) => openai(url).responses.create({ model, input: prompt }),
    stream: (url) => openai(url).responses.stream({ model, input: prompt }).finalResponse(),
  },
  claude: {
    response: (url) => anthropic(url).messages.create({ model, max_tokens: 9, messages }),
    stream: (url) => anthropic(url).messages.stream({ model, max_tokens: 9, messages }).finalMessage(),
  },
  gemini: {
    response: (url) => gemini(url).models.generateContent({ model, contents: prompt }),
    // Has no accumulator: its users get the pieces.
    stream: async (url) => {
      const pieces = [];
      for await (const piece of await gemini(url).models.generateContentStream({ model, contents: prompt })) {
        pieces.push(piece);
      }
      return pieces;
    },
  },
};

async function read({ dialect, kind, url }) {
  try {
    return { answer: await readers[dialect][kind](url), invalid: [] };
  } catch (error) {
    const reported = [OpenAI.APIError, Anthropic.APIError, ApiError].some((kind) => error instanceof kind);
    return reported ? { failure: error.message } : { unreadable: String(error) };
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await read(JSON.parse(line))));
  }
}

main();
