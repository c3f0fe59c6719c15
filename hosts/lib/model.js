// Where the models of a run are: the address and key that the run gives, never a vendor's own key.

import { Failure, settingOf } from './run.js';

/**
 * The model API of a run: `{url, key}`, `null` where none is given. A host of ABP's names its gateway
 * in `config.vendor.abp.model_api`; otherwise the operator's or the order's environment does, in the
 * variables that the vendor's agent reads. `names` are those variables: `{url, keys}`.
 */
export function modelApiOf(order, names, environment = process.env) {
  const given = settingOf(order, 'model_api');
  if (typeof given?.url === 'string') return { url: trimmed(given.url), key: given.key ?? '', isGateway: true };
  const variables = { ...environment, ...(order.config?.env ?? {}) };
  const url = variables[names.url];
  if (url === undefined || url === '') return null;
  const key = names.keys.map((name) => variables[name]).find((value) => value !== undefined && value !== '');
  return { url: trimmed(url), key: key ?? '', isGateway: false };
}

/** As `modelApiOf`, for agents that cannot work without. */
export function neededModelApi(order, names) {
  const api = modelApiOf(order, names);
  if (api !== null) return api;
  throw new Failure(
    'CONFIG_INVALID',
    `no model API was given to the run: set ${names.url} and ${names.keys[0]} in the order's config.env or in the backend's env`,
  );
}

/** The address with `/v1` at its end, once. */
export function versioned(url) {
  return url.endsWith('/v1') ? url : `${url}/v1`;
}

function trimmed(url) {
  return url.replace(/\/+$/, '');
}
