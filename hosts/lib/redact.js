// Removes what is obviously a secret from what tools gave back: the same list as in
// python/abp_sidecar.py.

const REDACTED = '[redacted]';
const NAMES = '(?:api[_-]?key|(?:access|auth|refresh)[_-]?token|secret|passw(?:or)?d)';
const SECRET_NAME = new RegExp(`${NAMES}$`, 'i');
const SECRETS = [
  [/\bsk-[A-Za-z0-9_-]{16,}/g, REDACTED],
  [/\b(?:gh[pousr]_|github_pat_|xox[abprs]-|AKIA)[A-Za-z0-9_-]{16,}/g, REDACTED],
  [/\babp_(?:run_)?[0-9a-f]{48}\b/g, REDACTED],
  [/\b(bearer\s+)[\w.~+/=-]{8,}/gi, `$1${REDACTED}`],
  [new RegExp(`(${NAMES}["']?\\s*[:=]\\s*["']?)[^\\s"',;&]{6,}`, 'gi'), `$1${REDACTED}`],
];

/** The members of events that hold what tools gave back. */
const TOOL_OUTPUT = new Map([
  ['tool_result', 'output'],
  ['command_executed', 'output_preview'],
]);

/** The text without what is obviously a secret. */
export function redact(text) {
  return SECRETS.reduce((rest, [pattern, replacement]) => rest.replace(pattern, replacement), text);
}

/** The fields of an event with its tool output redacted. */
export function withoutSecrets(kind, fields) {
  const name = TOOL_OUTPUT.get(kind);
  if (name === undefined || !(name in fields)) return fields;
  return { ...fields, [name]: redactAll(fields[name]) };
}

function redactAll(value) {
  if (typeof value === 'string') return redact(value);
  if (Array.isArray(value)) return value.map(redactAll);
  if (value === null || typeof value !== 'object') return value;
  const members = Object.entries(value).map(([key, member]) => [key, redactMember(key, member)]);
  return Object.fromEntries(members);
}

function redactMember(key, value) {
  return typeof value === 'string' && SECRET_NAME.test(key) ? REDACTED : redactAll(value);
}
