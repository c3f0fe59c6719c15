// @ts-check
// Verifies receipts, independently of the program that wrote them.
//
// Written from the specification, without imports, so that it also works as one file without a server:
//
// - A receipt is hashed as canonical JSON (RFC 8785) in which `receipt_sha256` is null. `member_sha256` has
//   the hash of every other member, which tells the member that was changed.
// - The log is a Merkle tree (RFC 9162). The entry of a run's end is a leaf; its content is canonical JSON.
// - A checkpoint is a signed note: origin, size and root of the log, signed with Ed25519.
// - An exported receipt is a DSSE envelope with the document, beside the entry, the path and the checkpoint.
//
// The verdict is `proven`, `self_consistent` (its own hashes hold; nobody vouches for it) or `wrong`.

/** @typedef {{code: string, message: string, members: string[]}} Problem */
/**
 * @typedef {{
 *   verdict: 'proven'|'self_consistent'|'wrong', runId: string|null, receiptSha256: string|null,
 *   problems: Problem[], receipt: any, provenBy: {origin: string, seq: number, key: string}|null,
 *   checks: {name: string, ok: boolean, detail: string}[], because: string,
 * }} Verdict
 */

const CONTRACT_VERSION = 'abp/v0.1';
const MAX_BYTES = 32 << 20;
const MAX_BUNDLE_BYTES = 48 << 20;
const MAX_DEPTH = 128;
const MAX_NODES = 4 << 20;
const MAX_ROTATIONS = 1000;
const MAX_SIGNATURES = 64;
const RECEIPT_TYPE = 'application/vnd.abp.receipt+json';
const ROTATION_TYPE = 'application/vnd.abp.key-rotation+json';

// ---------------------------------------------------------------------------------------------- strict JSON

/** A number as it is written: a double may not hold it. */
class NumberText {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/** @typedef {null|boolean|string|NumberText|any[]|Map<string, any>} Json */

class VerifyError extends Error {
  /** @param {string} code @param {string} message @param {string[]} [members] */
  constructor(code, message, members = []) {
    super(message);
    this.code = code;
    this.members = members;
  }
}

/** @param {string} message */
const malformed = (message) => new VerifyError('CONTRACT_SCHEMA_VIOLATION', message);

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
/** @type {Record<string, string>} */
const ESCAPES = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** Reads JSON and refuses what other readers might read differently: duplicate keys, lone surrogates, bytes that are no UTF-8. */
class StrictReader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = 0;
    /** The member of the root that is being read: where a document breaks off, it is the one that was changed. */
    this.member = '';
  }

  /** @returns {Json} */
  document() {
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) throw this.wrong('something follows the document');
    return value;
  }

  /** @param {string} problem */
  wrong(problem) {
    const before = this.text.slice(0, this.at).split('\n');
    const message = `not valid JSON at line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${problem}`;
    return new VerifyError('CONTRACT_SCHEMA_VIOLATION', message, this.member ? [this.member] : []);
  }

  space() {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      this.at += 1;
    }
  }

  /** @param {number} depth @returns {Json} */
  value(depth) {
    this.space();
    if (++this.nodes > MAX_NODES) throw this.wrong('too many values');
    const first = this.text[this.at];
    if (first === '{' || first === '[') {
      if (depth >= MAX_DEPTH) throw this.wrong('nested too deeply');
      return first === '{' ? this.object(depth + 1) : this.array(depth + 1);
    }
    if (first === '"') return this.string();
    for (const [word, value] of /** @type {[string, null|boolean][]} */ ([['true', true], ['false', false], ['null', null]])) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    if (!found) throw this.wrong('expected a value');
    this.at += found[0].length;
    return new NumberText(found[0]);
  }

  /** @param {number} depth */
  array(depth) {
    /** @type {any[]} */
    const items = [];
    this.at += 1;
    this.space();
    if (this.text[this.at] === ']') {
      this.at += 1;
      return items;
    }
    for (;;) {
      items.push(this.value(depth));
      this.space();
      const next = this.text[this.at++];
      if (next === ']') return items;
      if (next !== ',') throw this.wrong('expected a comma or the end of the list');
    }
  }

  /** @param {number} depth */
  object(depth) {
    /** @type {Map<string, any>} */
    const members = new Map();
    this.at += 1;
    this.space();
    if (this.text[this.at] === '}') {
      this.at += 1;
      return members;
    }
    for (;;) {
      this.space();
      if (this.text[this.at] !== '"') throw this.wrong('expected a key');
      this.nodes += 1;
      const key = this.string();
      if (members.has(key)) throw new VerifyError('CONTRACT_SCHEMA_VIOLATION', `duplicate key at /${key}`, depth === 1 ? [key] : this.member ? [this.member] : []);
      if (depth === 1) this.member = key;
      this.space();
      if (this.text[this.at++] !== ':') throw this.wrong('expected a colon');
      members.set(key, this.value(depth));
      this.space();
      const next = this.text[this.at++];
      if (next === '}') return members;
      if (next !== ',') throw this.wrong('expected a comma or the end of the object');
    }
  }

  string() {
    this.at += 1;
    let out = '';
    let from = this.at;
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (Number.isNaN(code)) throw this.wrong('a string does not end');
      if (code === 34) {
        out += this.text.slice(from, this.at);
        this.at += 1;
        if (!isWellFormed(out)) throw this.wrong('a lone surrogate');
        return out;
      }
      if (code < 32) throw this.wrong('a control character in a string');
      if (code !== 92) {
        this.at += 1;
        continue;
      }
      out += this.text.slice(from, this.at) + this.escape();
      from = this.at;
    }
  }

  escape() {
    const kind = this.text[this.at + 1];
    if (kind === 'u') {
      const digits = this.text.slice(this.at + 2, this.at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw this.wrong('a wrong escape');
      this.at += 6;
      return String.fromCharCode(parseInt(digits, 16));
    }
    if (!(kind in ESCAPES)) throw this.wrong('a wrong escape');
    this.at += 2;
    return ESCAPES[kind];
  }
}

/** @param {string} text */
function isWellFormed(text) {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

/** @param {Uint8Array} bytes @param {number} limit @returns {Json} */
function readStrictly(bytes, limit) {
  if (bytes.length > limit) throw malformed(`longer than ${limit} bytes`);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const reader = new StrictReader(textBeforeProblem(bytes));
    try {
      reader.document();
    } catch {
      // It ends where the problem is; the reader knows in which member.
    }
    throw new VerifyError('CONTRACT_SCHEMA_VIOLATION', 'not valid UTF-8', reader.member ? [reader.member] : []);
  }
  return new StrictReader(text).document();
}

/** The text before the first byte that is no UTF-8. @param {Uint8Array} bytes */
function textBeforeProblem(bytes) {
  let good = 0;
  let bad = bytes.length;
  const read = (/** @type {number} */ length) => new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, length), { stream: true });
  while (good + 1 < bad) {
    const middle = (good + bad) >> 1;
    try {
      read(middle);
      good = middle;
    } catch {
      bad = middle;
    }
  }
  return read(good);
}

/** A plain value, for showing. @param {Json} json @returns {any} */
function toPlain(json) {
  if (json instanceof NumberText) return Number(json.text);
  if (Array.isArray(json)) return json.map(toPlain);
  if (json instanceof Map) return Object.fromEntries([...json].map(([key, value]) => [key, toPlain(value)]));
  return json;
}

// -------------------------------------------------------------------------------- canonical JSON (RFC 8785)

/** @param {Json} json @param {string|null} [nullMember] a member of the root that counts as null @returns {string} */
function canonical(json, nullMember = null) {
  if (json === null || typeof json === 'boolean') return String(json);
  if (typeof json === 'string') return JSON.stringify(json);
  if (json instanceof NumberText) return canonicalNumber(json.text);
  if (Array.isArray(json)) return `[${json.map((item) => canonical(item)).join(',')}]`;
  // Keys are sorted by UTF-16 code units, which is how JavaScript compares strings.
  const keys = [...json.keys()].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const members = keys.map((key) => `${JSON.stringify(key)}:${key === nullMember ? 'null' : canonical(json.get(key))}`);
  return `{${members.join(',')}}`;
}

/** Where two different numbers would share a form, this refuses. @param {string} text */
function canonicalNumber(text) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw malformed(`${text} is too large for a double`);
  const isInteger = !/[.eE]/.test(text);
  if (isInteger && !Number.isSafeInteger(value)) throw malformed(`${text} is beyond what a double holds exactly`);
  if (!isInteger && Math.abs(value) > Number.MAX_SAFE_INTEGER && digits(text) !== digits(String(value))) {
    throw malformed(`${text} is beyond what a double holds exactly`);
  }
  return value === 0 ? '0' : String(value);
}

/** The significant digits of a number. @param {string} text */
function digits(text) {
  return text.replace(/[eE].*$/, '').replace(/[-+.]/g, '').replace(/^0+/, '').replace(/0+$/, '');
}

// -------------------------------------------------------------------------------------------------- hashing

const encoder = new TextEncoder();

/** @param {Uint8Array} bytes */
async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', /** @type {BufferSource} */ (bytes)));
}

/** @param {Uint8Array} bytes */
function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {unknown} text @returns {Uint8Array|null} */
function fromHex(text) {
  if (typeof text !== 'string' || !/^[0-9a-f]{64}$/.test(text)) return null;
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** @param {unknown} text base64 with exactly one spelling for every value @returns {Uint8Array|null} */
function fromBase64(text) {
  if (typeof text !== 'string' || text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
  const binary = atob(text);
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  return toBase64(bytes) === text ? bytes : null;
}

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let binary = '';
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

/** @param {...Uint8Array} parts */
function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {Json} json @param {string|null} [nullMember] */
async function hashJson(json, nullMember = null) {
  return toHex(await sha256(encoder.encode(canonical(json, nullMember))));
}

// --------------------------------------------------------------------------------------------- the document

/** @param {Json} json @param {string} name @returns {any} */
function member(json, name) {
  return json instanceof Map ? json.get(name) : undefined;
}

/** The members whose hash is not the recorded one, or that are recorded and gone. @param {Map<string, any>} document */
async function changedMembers(document) {
  const recorded = document.get('member_sha256');
  if (!(recorded instanceof Map)) return [];
  const changed = [];
  for (const [name, value] of document) {
    if (name === 'receipt_sha256' || name === 'member_sha256') continue;
    if (recorded.get(name) !== await hashJson(value)) changed.push(name);
  }
  for (const name of recorded.keys()) {
    if (!document.has(name) || name === 'receipt_sha256' || name === 'member_sha256') changed.push(name);
  }
  // Every member is as it was, so the hash is not.
  return changed.length ? changed : ['receipt_sha256'];
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const OUTCOMES = new Set(['complete', 'partial', 'failed', 'cancelled']);

/** Problems of the values, beyond the hashes. @param {Map<string, any>} document */
function valueProblems(document) {
  /** @type {Problem[]} */
  const problems = [];
  const add = (/** @type {string} */ name, /** @type {string} */ message, code = 'CONTRACT_SCHEMA_VIOLATION') => problems.push({ code, message, members: [name] });
  const meta = document.get('meta');
  const times = ['started_at', 'finished_at'].map((name) => Date.parse(String(member(meta, name))));
  if (!UUID.test(String(member(meta, 'run_id'))) || !UUID.test(String(member(meta, 'work_order_id'))) || times.some(Number.isNaN)) add('meta', 'at /meta: not the form of a run');
  else if (member(meta, 'contract_version') !== CONTRACT_VERSION) add('meta', `contract_version is ${JSON.stringify(toPlain(member(meta, 'contract_version') ?? null))}, expected "${CONTRACT_VERSION}"`, 'CONTRACT_VERSION_MISMATCH');
  else if (times[1] < times[0]) add('meta', 'finished_at is before started_at', 'CONTRACT_INVALID_RECEIPT');
  const backend = member(document.get('backend'), 'id');
  if (typeof backend !== 'string' || backend.trim() === '') add('backend', '/backend/id: must not be empty', 'VALIDATION_FAILED');
  if (!OUTCOMES.has(document.get('outcome'))) add('outcome', 'at /outcome: not an outcome');
  if (typeof member(document.get('verification'), 'harness_ok') !== 'boolean') add('verification', 'at /verification: not the form of a verification');
  const trace = document.get('trace');
  if (trace !== undefined && !Array.isArray(trace)) add('trace', 'at /trace: not a list');
  return problems;
}

/** @param {Map<string, any>} document @returns {Promise<string|null>} what differs */
async function traceProblem(document) {
  const digest = document.get('trace_digest');
  if (!(digest instanceof Map) || digest.get('embedded') !== true) return null;
  const events = document.get('trace');
  if (!Array.isArray(events)) return 'there are no events';
  const count = Number(member(digest, 'count')?.text);
  if (count !== events.length) return `${count} events recorded, ${events.length} found`;
  const bytes = encoder.encode(events.map((event) => `${canonical(event)}\n`).join(''));
  const computed = toHex(await sha256(bytes));
  return computed === digest.get('sha256') ? null : `recorded ${digest.get('sha256')}, computed ${computed}`;
}

/**
 * Checks a receipt document: its form, its values and every hash in it.
 * @param {Uint8Array} bytes
 * @returns {Promise<{problems: Problem[], document: Map<string, any>|null, sha256: string|null}>}
 */
async function checkDocument(bytes) {
  /** @type {Problem[]} */
  const problems = [];
  let document;
  try {
    document = readStrictly(bytes, MAX_BYTES);
    if (!(document instanceof Map)) throw malformed('at the top level: expected an object');
  } catch (error) {
    return { problems: [asProblem(error)], document: null, sha256: null };
  }
  const recorded = document.get('receipt_sha256');
  let computed = null;
  if (typeof recorded !== 'string') {
    problems.push({ code: 'CONTRACT_INVALID_RECEIPT', message: 'receipt_sha256 is missing', members: ['receipt_sha256'] });
  } else {
    try {
      computed = await hashJson(document, 'receipt_sha256');
      if (computed !== recorded) {
        const members = await changedMembers(document);
        const which = members.length ? `changed: ${members.join(', ')}` : 'which part was changed cannot be told';
        problems.push({ code: 'RECEIPT_HASH_MISMATCH', message: `receipt_sha256 does not match: recorded ${recorded}, computed ${computed}; ${which}`, members });
      }
    } catch (error) {
      problems.push(asProblem(error));
    }
  }
  problems.push(...valueProblems(document));
  try {
    const differs = await traceProblem(document);
    if (differs) problems.push({ code: 'RECEIPT_HASH_MISMATCH', message: `trace_digest does not match the trace: ${differs}`, members: ['trace'] });
  } catch (error) {
    problems.push(asProblem(error));
  }
  return { problems, document, sha256: computed };
}

/** @param {unknown} error @returns {Problem} */
function asProblem(error) {
  if (error instanceof VerifyError) return { code: error.code, message: error.message, members: error.members };
  return { code: 'INTERNAL', message: String(error), members: [] };
}

// ----------------------------------------------------------------------------------- Merkle tree (RFC 9162)

/** @param {Uint8Array} content */
function leafHash(content) {
  return sha256(concat(Uint8Array.of(0), content));
}

/**
 * The root that a path leads to from a leaf, or null where the path has the wrong length.
 * @param {Uint8Array} leaf @param {number} index @param {number} size @param {Uint8Array[]} path
 */
async function rootOf(leaf, index, size, path) {
  let node = index;
  let last = size - 1;
  let hash = leaf;
  // Halving beyond 32 bits: these are numbers up to 2^53, so no shifts.
  for (const sibling of path) {
    if (last === 0) return null;
    if (node % 2 === 1 || node === last) {
      hash = await sha256(concat(Uint8Array.of(1), sibling, hash));
      while (node % 2 === 0 && node !== 0) {
        node = Math.floor(node / 2);
        last = Math.floor(last / 2);
      }
    } else {
      hash = await sha256(concat(Uint8Array.of(1), hash, sibling));
    }
    node = Math.floor(node / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? hash : null;
}

// ---------------------------------------------------------------------------------------- keys, checkpoints

/** @typedef {{name: string, id: string, bytes: Uint8Array}} PublicKey */
/** @typedef {{key: PublicKey, from: number, until: number, successor: {key: PublicKey, seq: number}|null}} Trusted */

/** @param {string} text `name+id+base64(0x01 || public key)` @returns {Promise<PublicKey>} */
async function readKey(text) {
  const wrong = () => new VerifyError('VALIDATION_FAILED', 'not a public key of a log: expected name+id+base64, as `abp receipt key` prints it');
  const parts = text.split('+');
  // Base64 may contain plus signs itself.
  const [name, id] = parts;
  const bytes = fromBase64(parts.slice(2).join('+'));
  if (!name || !/^[0-9a-f]{8}$/.test(id ?? '') || !bytes || bytes.length !== 33 || bytes[0] !== 1) throw wrong();
  const computed = await sha256(concat(encoder.encode(`${name}\n`), bytes));
  if (toHex(computed.subarray(0, 4)) !== id) throw wrong();
  return { name, id, bytes: bytes.subarray(1) };
}

/** @param {PublicKey} a @param {PublicKey} b */
const isSameKey = (a, b) => a.name === b.name && a.id === b.id && toHex(a.bytes) === toHex(b.bytes);

/** @param {PublicKey} key @param {Uint8Array} message @param {Uint8Array} signature */
async function isSigned(key, message, signature) {
  if (signature.length !== 64) return false;
  try {
    const imported = await crypto.subtle.importKey('raw', /** @type {BufferSource} */ (key.bytes), { name: 'Ed25519' }, false, ['verify']);
    return await crypto.subtle.verify({ name: 'Ed25519' }, imported, /** @type {BufferSource} */ (signature), /** @type {BufferSource} */ (message));
  } catch (error) {
    if (error instanceof DOMException && error.name === 'NotSupportedError') throw new VerifyError('UNSUPPORTED', 'this browser has no Ed25519');
    return false;
  }
}

/** @typedef {{text: string, origin: string, size: number, root: Uint8Array, signatures: {name: string, id: string, signature: Uint8Array}[]}} Checkpoint */

/** @param {unknown} text @returns {Checkpoint} */
function readCheckpoint(text) {
  const wrong = (/** @type {string} */ problem) => new VerifyError('VALIDATION_FAILED', `not a checkpoint: ${problem}`);
  if (typeof text !== 'string' || text.length > 256 * 1024) throw wrong('too long');
  const half = text.indexOf('\n\n');
  if (half < 0) throw wrong('no empty line before the signatures');
  const head = text.slice(0, half).split('\n');
  const [origin, size] = head;
  const root = fromBase64(head[2]);
  if (head.length !== 3 || !isName(origin)) throw wrong('expected the lines origin, size and root');
  if (!root || root.length !== 32) throw wrong('the root is not 32 bytes of base64');
  if (!/^(0|[1-9][0-9]*)$/.test(size) || !Number.isSafeInteger(Number(size))) throw wrong('the size is not a plain number');
  const tail = text.slice(half + 2);
  if (!tail.endsWith('\n')) throw wrong('the last line does not end');
  const signatures = tail.slice(0, -1).split('\n').map((line) => {
    const found = /^\u2014 ([^ ]+) (.+)$/.exec(line);
    const bytes = fromBase64(found?.[2]);
    if (!found || !isName(found[1]) || !bytes || bytes.length < 5) throw wrong('a signature line has another form');
    return { name: found[1], id: toHex(bytes.subarray(0, 4)), signature: bytes.subarray(4) };
  });
  if (signatures.length > MAX_SIGNATURES) throw wrong('too many signatures');
  const names = signatures.map(({ name, id }) => `${name}+${id}`);
  if (new Set(names).size !== names.length) throw wrong('a key signs twice');
  return { text: text.slice(0, half + 1), origin, size: Number(size), root, signatures };
}

/** @param {unknown} name */
function isName(name) {
  return typeof name === 'string' && name.length > 0 && encoder.encode(name).length <= 255 && !/[\s+\u0000-\u001f\u007f-\u009f]/.test(name);
}

/** The keys that are trusted, and for which sizes of the log. */
class KeyRing {
  /** @param {PublicKey} key */
  constructor(key) {
    /** @type {Trusted[]} */
    this.keys = [{ key, from: 0, until: Infinity, successor: null }];
  }

  /** @param {string} name @param {string} id */
  find(name, id) {
    return this.keys.find(({ key }) => key.name === name && key.id === id);
  }

  /** @param {Trusted} trusted @param {number} size */
  static maySign(trusted, size) {
    return trusted.from <= size && size <= trusted.until && (!trusted.successor || size <= trusted.successor.seq);
  }

  /** Follows a rotation that the old key signed. @param {Map<string, any>} entry */
  async follow(entry) {
    const broken = (/** @type {string} */ problem) => new VerifyError('RECEIPT_CHAIN_BROKEN', `a rotation of the key cannot be followed: ${problem}`);
    const kind = entry.get('kind');
    if (member(kind, 'type') !== 'key_rotated') throw broken('the entry is not a rotation');
    const oldKey = await readKey(String(kind.get('old_key')));
    const newKey = await readKey(String(kind.get('new_key')));
    const signature = fromBase64(kind.get('signature'));
    const origin = entry.get('origin');
    if (oldKey.name !== origin || newKey.name !== origin || isSameKey(oldKey, newKey)) throw broken('the keys do not fit the log');
    const statement = new Map([['at', entry.get('at')], ['new_key', kind.get('new_key')], ['old_key', kind.get('old_key')], ['origin', origin], ['seq', entry.get('seq')]]);
    if (!signature || !await isSigned(oldKey, envelopeBytes(ROTATION_TYPE, encoder.encode(canonical(statement))), signature)) throw broken('its signature is wrong');
    const seq = Number(entry.get('seq')?.text);
    const old = this.find(oldKey.name, oldKey.id);
    if (!old || !isSameKey(old.key, oldKey)) {
      if (this.keys.some(({ key }) => isSameKey(key, newKey))) return;
      throw broken('the old key is not known');
    }
    if (old.successor) {
      if (old.successor.seq === seq && isSameKey(old.successor.key, newKey)) return;
      throw broken('the old key was rotated differently before');
    }
    if (!KeyRing.maySign(old, seq)) throw broken('the old key is not in use there');
    if (this.keys.some(({ key, successor }) => successor && isSameKey(key, newKey))) throw broken('the new key was replaced before');
    if (!this.find(newKey.name, newKey.id)) this.keys.push({ key: newKey, from: seq + 1, until: Infinity, successor: null });
    old.successor = { key: newKey, seq };
  }
}

/** @param {Checkpoint} checkpoint @param {KeyRing} ring @returns {Promise<string>} the key that signed */
async function checkCheckpoint(checkpoint, ring) {
  let good = '';
  let isOutOfTerm = false;
  for (const { name, id, signature } of checkpoint.signatures) {
    const trusted = ring.find(name, id);
    if (!trusted) continue;
    if (!await isSigned(trusted.key, encoder.encode(checkpoint.text), signature)) throw new VerifyError('RECEIPT_CHAIN_BROKEN', `the signature of the checkpoint by ${name}+${id} is wrong`, ['checkpoint']);
    if (name !== checkpoint.origin) continue;
    if (KeyRing.maySign(trusted, checkpoint.size)) good ||= id;
    else isOutOfTerm = true;
  }
  if (good) return good;
  throw new VerifyError('RECEIPT_CHAIN_BROKEN', isOutOfTerm ? 'the key of the checkpoint was not in use at that size of the log' : 'no known key of the log signed the checkpoint', ['checkpoint']);
}

/** The bytes that a DSSE signature is over. @param {string} type @param {Uint8Array} payload */
function envelopeBytes(type, payload) {
  return concat(encoder.encode(`DSSEv1 ${encoder.encode(type).length} ${type} ${payload.length} `), payload);
}

// ------------------------------------------------------------------------------------------------- the proof

/**
 * Checks that the entry is the end of the run with this receipt, and that the log of the checkpoint holds it.
 * @param {Map<string, any>} entry @param {Uint8Array[]} path @param {Checkpoint} checkpoint
 * @param {string} runId @param {string} receiptSha256
 */
async function checkInclusion(entry, path, checkpoint, runId, receiptSha256) {
  const broken = (/** @type {string} */ problem, /** @type {string} */ name) => new VerifyError('RECEIPT_CHAIN_BROKEN', problem, [name]);
  const kind = entry.get('kind');
  if (member(kind, 'type') !== 'run_ended') throw broken('the entry is not the end of a run', 'entry');
  if (String(kind.get('run_id')).toLowerCase() !== runId.toLowerCase()) throw broken(`the entry is of run ${kind.get('run_id')}, the receipt of run ${runId}`, 'entry');
  if (kind.get('receipt_sha256') !== receiptSha256) throw new VerifyError('RECEIPT_HASH_MISMATCH', `the entry is of receipt ${kind.get('receipt_sha256')}, this is receipt ${receiptSha256}`, ['entry']);
  if (entry.get('origin') !== checkpoint.origin) throw broken('the entry is of another log than the checkpoint', 'entry');
  const seq = Number(entry.get('seq')?.text);
  if (!Number.isSafeInteger(seq) || seq < 0 || seq >= checkpoint.size) throw broken(`a log of ${checkpoint.size} entries has no entry ${seq}`, 'entry');
  const leaf = await leafHash(encoder.encode(canonical(entry)));
  const root = await rootOf(leaf, seq, checkpoint.size, path);
  if (!root) throw broken(`the proof has the wrong length, ${path.length}`, 'path');
  if (toHex(root) !== toHex(checkpoint.root)) throw broken(`the proof leads to root ${toHex(root)}, not to ${toHex(checkpoint.root)}`, 'path');
  return seq;
}

/** The form of an entry, with its id and time written as a log writes them. @param {unknown} json @returns {Map<string, any>} */
function readEntry(json) {
  const wrong = () => new VerifyError('RECEIPT_CHAIN_BROKEN', 'not a log entry', ['entry']);
  if (!(json instanceof Map) || !(json.get('kind') instanceof Map)) throw wrong();
  if ([...json.keys()].sort().join() !== 'at,kind,origin,seq') throw wrong();
  const kind = new Map(json.get('kind'));
  const at = /^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2}\.\d{3})[Zz]$/.exec(String(json.get('at')));
  const seq = json.get('seq');
  if (!at || Number.isNaN(Date.parse(`${at[1]}T${at[2]}Z`)) || !(seq instanceof NumberText) || !/^(0|[1-9][0-9]*)$/.test(seq.text) || typeof json.get('origin') !== 'string') throw wrong();
  if (kind.get('type') === 'run_ended') {
    if (kind.size !== 3 || !UUID.test(String(kind.get('run_id'))) || !fromHex(kind.get('receipt_sha256'))) throw wrong();
    kind.set('run_id', String(kind.get('run_id')).toLowerCase());
  }
  return new Map([['at', `${at[1]}T${at[2]}Z`], ['kind', kind], ['origin', json.get('origin')], ['seq', seq]]);
}

/** @typedef {{document: Uint8Array, type: string, signatures: {keyid: string, sig: Uint8Array}[], entry: Map<string, any>, checkpoint: Checkpoint, path: Uint8Array[], rotations: Map<string, any>[]}} Bundle */

/** Reads an exported receipt; null where the file is none. @param {Uint8Array} bytes @returns {Bundle|null} */
function readBundle(bytes) {
  let json;
  try {
    json = readStrictly(bytes, MAX_BUNDLE_BYTES);
    const envelope = member(json, 'envelope');
    const proof = member(json, 'proof');
    const document = fromBase64(member(envelope, 'payload'));
    const type = member(envelope, 'payloadType');
    const list = member(envelope, 'signatures');
    const path = member(proof, 'path');
    if (!document || typeof type !== 'string' || !Array.isArray(list) || !Array.isArray(path)) return null;
    const signatures = list.map((item) => {
      const sig = fromBase64(member(item, 'sig'));
      const keyid = member(item, 'keyid') ?? '';
      if (!sig || typeof keyid !== 'string') throw malformed('a signature');
      return { keyid, sig };
    });
    const hashes = path.map((text) => fromHex(text) ?? (() => { throw malformed('a hash'); })());
    const rotations = member(json, 'rotations') ?? [];
    if (!Array.isArray(rotations)) return null;
    return { document, type, signatures, entry: readEntry(member(proof, 'entry')), checkpoint: readCheckpoint(member(proof, 'checkpoint')), path: hashes, rotations: rotations.map(readEntry) };
  } catch {
    return null;
  }
}

/** @param {Bundle} bundle @param {PublicKey} key @returns {Promise<string>} */
async function checkSignatures(bundle, key) {
  const ring = new KeyRing(key);
  if (bundle.rotations.length > MAX_ROTATIONS) throw new VerifyError('CONTRACT_INVALID_RECEIPT', 'too many rotations');
  for (const rotation of bundle.rotations) await ring.follow(rotation);
  const id = await checkCheckpoint(bundle.checkpoint, ring);
  if (bundle.signatures.length > MAX_SIGNATURES) throw new VerifyError('CONTRACT_INVALID_RECEIPT', 'too many signatures');
  const signed = envelopeBytes(RECEIPT_TYPE, bundle.document);
  let isGood = false;
  for (const { keyid, sig } of bundle.signatures) {
    const prefix = `${bundle.checkpoint.origin}+`;
    const trusted = keyid.startsWith(prefix) ? ring.find(bundle.checkpoint.origin, keyid.slice(prefix.length)) : undefined;
    if (!trusted) continue;
    if (!await isSigned(trusted.key, signed, sig)) throw new VerifyError('RECEIPT_HASH_MISMATCH', `the signature of the receipt by ${keyid} is wrong`, ['envelope']);
    isGood ||= KeyRing.maySign(trusted, bundle.checkpoint.size);
  }
  if (!isGood) throw new VerifyError('RECEIPT_CHAIN_BROKEN', 'no known key of the log signed the receipt', ['envelope']);
  return id;
}

/**
 * Judges a file that claims to be a receipt, or an exported one.
 * @param {Uint8Array} bytes
 * @param {{key?: string}} [options] the public key of the log, which is what makes a proof a proof
 * @returns {Promise<Verdict>}
 */
async function verifyFile(bytes, options = {}) {
  /** @type {Verdict} */
  const verdict = { verdict: 'wrong', runId: null, receiptSha256: null, problems: [], receipt: null, provenBy: null, checks: [], because: '' };
  const check = (/** @type {string} */ name, /** @type {boolean} */ ok, /** @type {string} */ detail) => verdict.checks.push({ name, ok, detail });
  const bundle = readBundle(bytes);
  const { problems, document, sha256: computed } = await checkDocument(bundle ? bundle.document : bytes);
  verdict.problems = problems;
  if (document) {
    verdict.receipt = toPlain(document);
    verdict.runId = member(document.get('meta'), 'run_id') ?? null;
  }
  verdict.receiptSha256 = computed;
  check('the document is canonical JSON and hashes to its receipt_sha256', problems.length === 0, computed ?? '');
  if (problems.length) return verdict;
  if (!bundle) return { ...verdict, verdict: 'self_consistent', because: 'there is no log to compare it with' };
  try {
    if (bundle.type !== RECEIPT_TYPE) throw new VerifyError('CONTRACT_INVALID_RECEIPT', `the envelope carries "${bundle.type}"`, ['envelope']);
    const seq = await checkInclusion(bundle.entry, bundle.path, bundle.checkpoint, String(verdict.runId), String(computed));
    check('the log of the checkpoint holds the entry of its end', true, `entry ${seq} of ${bundle.checkpoint.size}`);
    if (!options.key) return { ...verdict, verdict: 'self_consistent', because: 'there is no key to check its signatures with' };
    const id = await checkSignatures(bundle, await readKey(options.key.trim()));
    check('a trusted key signed the checkpoint and the receipt', true, `${bundle.checkpoint.origin}+${id}`);
    return { ...verdict, verdict: 'proven', provenBy: { origin: bundle.checkpoint.origin, seq, key: id } };
  } catch (error) {
    const problem = asProblem(error);
    check(problem.message, false, problem.code);
    return { ...verdict, problems: [problem] };
  }
}

/**
 * Judges a receipt with the proof that a server gives for it.
 * @param {Uint8Array} bytes
 * @param {{entry: string, path: string[], checkpoint: string}} proof
 * @param {string} key the public key of the log
 * @returns {Promise<Verdict>}
 */
async function verifyWithProof(bytes, proof, key) {
  const verdict = await verifyFile(bytes);
  if (verdict.verdict === 'wrong') return verdict;
  const check = (/** @type {string} */ name, /** @type {string} */ detail) => verdict.checks.push({ name, ok: true, detail });
  try {
    const content = encoder.encode(proof.entry);
    const entry = readEntry(readStrictly(content, 16 * 1024));
    if (canonical(entry) !== proof.entry) throw new VerifyError('RECEIPT_CHAIN_BROKEN', 'the entry is not in canonical form', ['entry']);
    const checkpoint = readCheckpoint(proof.checkpoint);
    const path = proof.path.map((text) => fromHex(text) ?? (() => { throw new VerifyError('RECEIPT_CHAIN_BROKEN', 'a hash of the path is none', ['path']); })());
    const seq = await checkInclusion(entry, path, checkpoint, String(verdict.runId), String(verdict.receiptSha256));
    check('the log holds the entry of its end (Merkle path)', `entry ${seq} of ${checkpoint.size}, ${path.length} hashes`);
    const id = await checkCheckpoint(checkpoint, new KeyRing(await readKey(key)));
    check('the checkpoint is signed by the key of the log (Ed25519)', `${checkpoint.origin}+${id}`);
    return { ...verdict, verdict: 'proven', provenBy: { origin: checkpoint.origin, seq, key: id }, because: '' };
  } catch (error) {
    const problem = asProblem(error);
    verdict.checks.push({ name: problem.message, ok: false, detail: problem.code });
    return { ...verdict, verdict: 'wrong', problems: [problem] };
  }
}

export { verifyFile, verifyWithProof, canonical, readStrictly };
