// Does jobs with the vendors' Node SDKs. Jobs and results are those of ../python/client.py.

'use strict';

const readline = require('node:readline');
const { parseArgs } = require('node:util');
const ai = require('./sdks/ai.cjs');
const anthropic = require('./sdks/anthropic.cjs');
const google = require('./sdks/google.cjs');
const openai = require('./sdks/openai.cjs');
const { header } = require('./sdks/seen.cjs');

// Words about models that the SDKs do not know by name.
globalThis.AI_SDK_LOG_WARNINGS = false;

const SDKS = {
  'openai chat': openai.Chat,
  'openai responses': openai.Responses,
  '@anthropic-ai/sdk': anthropic.Messages,
  '@google/genai': google.GenerateContent,
  '@ai-sdk/openai chat': ai.OpenAIChat,
  '@ai-sdk/openai responses': ai.OpenAIResponses,
  '@ai-sdk/anthropic': ai.Anthropic,
  '@ai-sdk/google': ai.Google,
};

// An exception, as far as its class lets a program tell what happened.
function raised(error) {
  const name = error.name && error.name !== 'Error' ? error.name : error.constructor.name;
  const status = error.status ?? error.statusCode;
  const later = header(error.headers ?? error.responseHeaders, 'retry-after');
  return {
    error: name,
    message: error.message,
    ...(status && { status }),
    ...(later && { retry_after: later }),
  };
}

async function main() {
  const { values } = parseArgs({ options: { url: { type: 'string' }, key: { type: 'string' } } });
  const clients = {};
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    const key = job.key ?? values.key;
    const client = (clients[`${job.sdk} ${key}`] ??= new SDKS[job.sdk](values.url, key));
    let seen;
    try {
      seen = await client[job.do](job);
    } catch (error) {
      // Whatever an SDK raises is a result.
      seen = raised(error);
    }
    console.log(JSON.stringify(seen));
  }
}

main();
