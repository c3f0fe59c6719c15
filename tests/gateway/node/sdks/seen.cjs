// What the SDKs are told and tell, in one form: see ../../python/sdks/__init__.py.

'use strict';

const { z } = require('zod');

// The weather at a place, as a structured answer.
const forecast = z.object({
  place: z.object({ city: z.string(), zone: z.string() }),
  degrees: z.number().int(),
  sunny: z.boolean(),
});

const seen = (text, calls, stop, usage) => ({ text, calls, stop, usage });

// With what the gateway says of its way.
const withMode = (told, headers) => ({ ...told, mode: headers.get('x-abp-mode') });

// The count, and whether the gateway says that it only estimates.
const counted = (tokens, emulated) => ({ tokens, emulated: emulated ?? null });

// The models that the clients of OpenAI and Anthropic find, and one of them by its name.
async function listed(models, name) {
  const names = [];
  for await (const found of models.list()) names.push(found.id);
  return { names: names.sort(), one: (await models.retrieve(name)).id };
}

// The schema of a tool that takes one text.
const parameters = ({ argument }) => ({
  type: 'object',
  properties: { [argument]: { type: 'string' } },
  required: [argument],
  additionalProperties: false,
});

const dataUrl = ({ link, type, data }) => link ?? `data:${type};base64,${data}`;

module.exports = { counted, dataUrl, forecast, listed, parameters, seen, withMode };
