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

// A header, in whatever form an SDK hands them out.
const header = (headers, name) => (headers?.get ? headers.get(name) : headers?.[name]) ?? null;

const emulated = (headers) => header(headers, 'x-abp-emulated');

// With what the gateway says of its way.
const withLabels = (told, headers) => ({
  ...told,
  mode: header(headers, 'x-abp-mode'),
  emulated: emulated(headers),
});

// The count, and whether the gateway says that it is an estimate.
const counted = (tokens, headers) => ({ tokens, emulated: emulated(headers) });

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

module.exports = {
  counted,
  dataUrl,
  forecast,
  header,
  listed,
  parameters,
  seen,
  withLabels,
};
