// The table of what each vendor's agent can do, for docs/agents_hosts.md. `node matrix.js --write` puts it there.

import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const DOCUMENT = new URL('../../docs/agents_hosts.md', import.meta.url);
const VENDORS = ['claude', 'codex', 'gemini', 'copilot', 'kimi'];
const BLOCK = /(<!-- generated:host-capabilities -->\n).*?(<!-- \/generated:host-capabilities -->)/s;

/** The document as it should be, and as it is. */
export async function documents() {
  const current = readFileSync(DOCUMENT, 'utf8');
  const table = await capabilityTable();
  return { current, wanted: current.replace(BLOCK, (_, begin, end) => `${begin}\n${table}\n${end}`) };
}

async function capabilityTable() {
  const modules = await Promise.all(VENDORS.map((vendor) => import(`../${vendor}/capabilities.js`)));
  const manifests = modules.map((module) => module.default);
  const names = [...new Set(manifests.flatMap((manifest) => Object.keys(manifest)))];
  const row = (cells) => `| ${cells.join(' | ')} |\n`;
  const level = (value) => (typeof value === 'string' && value !== 'unsupported' ? value : value?.restricted ? 'restricted' : '–');
  const rows = names.map((name) => row([`\`${name}\``, ...manifests.map((manifest) => level(manifest[name]))]));
  return row(['capability', ...VENDORS]) + row(['---', ...VENDORS.map(() => '---')]) + rows.join('');
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href && process.argv.includes('--write')) {
  writeFileSync(DOCUMENT, (await documents()).wanted);
}
