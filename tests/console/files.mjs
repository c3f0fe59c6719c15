// The files themselves: their types, their size, their libraries, and what they never do.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect } from './stage.mjs';

const MAX_GZIP = 120_000;

const assets = (stage) => join(stage.root, 'crates/abp-console/assets');

export const files = [
  ['the types hold', async (stage) => {
    const folder = join(stage.directory, 'types');
    mkdirSync(folder);
    cpSync(join(stage.root, 'tests/console/types'), folder, { recursive: true });
    cpSync(join(stage.root, 'tests/console/tsconfig.json'), join(folder, 'tsconfig.json'));
    for (const name of readdirSync(assets(stage)).filter((name) => name.endsWith('.js'))) cpSync(join(assets(stage), name), join(folder, name));
    try {
      execFileSync(process.execPath, [join(stage.modules, 'typescript/bin/tsc'), '-p', folder], { encoding: 'utf8', stdio: 'pipe' });
    } catch (error) {
      throw new Error(error.stdout || error.message);
    }
  }],
  ['all files together are small', async (stage) => {
    let plain = 0;
    let packed = 0;
    for (const name of readdirSync(assets(stage)).filter((name) => !name.startsWith('LICENSE') && !name.startsWith('verifier'))) {
      const bytes = readFileSync(join(assets(stage), name));
      plain += bytes.length;
      packed += gzipSync(bytes, { level: 9 }).length;
    }
    expect(packed <= MAX_GZIP, `at most ${MAX_GZIP} bytes, not ${packed}`);
    return `${packed} bytes with gzip, ${plain} without`;
  }],
  ['the libraries are those of the registry', async (stage) => {
    const own = (name) => readFileSync(join(assets(stage), name), 'utf8');
    const theirs = (name) => readFileSync(join(stage.modules, name), 'utf8');
    expect(own('preact.mjs') === theirs('preact/dist/preact.mjs'), 'preact unchanged');
    expect(own('htm.mjs') === theirs('htm/dist/htm.mjs'), 'htm unchanged');
    expect(own('hooks.mjs') === theirs('preact/hooks/dist/hooks.mjs').replace('from"preact"', 'from"./preact.mjs"'), 'hooks changed in one import only');
    expect(own('LICENSE-preact.txt') === theirs('preact/LICENSE') && own('LICENSE-htm.txt') === theirs('htm/LICENSE'), 'their licences');
  }],
  ['no page writes HTML', async (stage) => {
    const forbidden = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|javascript:|dangerouslySet|setAttribute\(['"]on/;
    for (const name of readdirSync(assets(stage)).filter((name) => name.endsWith('.js'))) {
      const found = forbidden.exec(readFileSync(join(assets(stage), name), 'utf8'));
      expect(!found, `no ${found?.[0]} in ${name}`);
    }
  }],
  ['every file has the policy', async (stage) => {
    for (const path of ['/console', '/console/app.js', '/console/style.css']) {
      const response = await fetch(stage.base + path);
      const policy = response.headers.get('content-security-policy') ?? '';
      for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "frame-ancestors 'none'"]) expect(policy.includes(part), `${part} for ${path}`);
      expect(!policy.includes('unsafe'), 'nothing unsafe');
    }
    expect((await fetch(`${stage.base}/console/nothing.js`)).status === 404, 'no such file');
    expect((await fetch(`${stage.base}/console/..%2Flib.rs`)).status === 404, 'no file elsewhere');
  }],
];
