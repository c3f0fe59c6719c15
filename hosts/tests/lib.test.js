// The library's pure parts, against the tables that the Python library is held to as well.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { LineSplitter, MAX_LINE_BYTES, ProtocolError } from '../lib/frames.js';
import { Guard, Refused } from '../lib/guard.js';
import { redact } from '../lib/redact.js';

const tables = JSON.parse(readFileSync(new URL('tables.json', import.meta.url)));
const root = mkdtempSync(join(tmpdir(), 'abp-guard-'));
after(() => rmSync(root, { recursive: true }));

test('secrets are removed', () => {
  for (const [text, expected] of tables.redaction) assert.equal(redact(text), expected);
});

test('patterns mean what they mean to the host', () => {
  for (const [glob, path, denied] of tables.paths) {
    const write = () => new Guard(root, { deny_write: [glob] }).writable(path);
    if (denied) assert.throws(write, Refused, `${glob} on ${path}`);
    else assert.equal(write(), path, `${glob} on ${path}`);
  }
});

test('a malformed pattern is an error', () => {
  for (const glob of tables.malformed) {
    assert.throws(() => new Guard(root, { deny_write: [glob] }), /malformed/, glob);
  }
});

test('lines are the same however they are cut', () => {
  const bytes = Buffer.from('{"a":"é"}\n\nlast\n');
  for (let size = 1; size <= bytes.length; size += 1) {
    const splitter = new LineSplitter();
    const lines = [];
    for (let at = 0; at < bytes.length; at += size) {
      lines.push(...splitter.push(bytes.subarray(at, at + size)));
    }
    assert.deepEqual(lines.map(String), ['{"a":"é"}', '', 'last']);
    splitter.finish();
  }
});

test('a line is as long as allowed, and no longer', () => {
  const longest = Buffer.alloc(MAX_LINE_BYTES, 'x');
  const splitter = new LineSplitter();
  assert.deepEqual([...splitter.push(longest)], []);
  assert.equal([...splitter.push(Buffer.from('\n'))][0].length, MAX_LINE_BYTES);
  assert.deepEqual([...splitter.push(longest)], []);
  assert.throws(() => [...splitter.push(Buffer.from('x'))], ProtocolError);
});

test('a rest without a line break is incomplete', () => {
  const splitter = new LineSplitter();
  assert.deepEqual([...splitter.push(Buffer.from('{'))], []);
  assert.throws(() => splitter.finish(), /incomplete/);
});
