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

// The schema of a tool that takes one text.
const parameters = ({ argument }) => ({
  type: 'object',
  properties: { [argument]: { type: 'string' } },
  required: [argument],
  additionalProperties: false,
});

const dataUrl = ({ link, type, data }) => link ?? `data:${type};base64,${data}`;

module.exports = { dataUrl, forecast, parameters, seen, withMode };
