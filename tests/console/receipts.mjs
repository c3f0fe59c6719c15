// Receipts, verified by the browser, and by one file without a server.

import { writeFileSync, readFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, until } from './stage.mjs';

/** Numbers that look random and are the same every time. */
function numbers(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** The same bytes with one changed. */
function changed(bytes, random) {
  const copy = Buffer.from(bytes);
  const at = random(copy.length);
  const old = copy[at];
  do copy[at] = random(256); while (copy[at] === old);
  return copy;
}

const members = (problems, read) => problems.map((problem) => /changed: (.*)$/.exec(read(problem))?.[1]).find(Boolean)?.split(', ').sort().join() ?? '';

/** Receipts of every kind of end that the other cases left, raw and exported. */
async function samples(stage) {
  await stage.submit('writer', { wait: 30 });
  const { receipts } = await stage.api('/v1/receipts?limit=1000');
  const folder = join(stage.directory, 'receipts');
  mkdirSync(folder, { recursive: true });
  const found = [];
  for (const { run_id: runId, bytes } of receipts) {
    if (bytes > 2_000_000) continue;
    const receipt = await fetch(`${stage.base}/v1/runs/${runId}/receipt`, { headers: { authorization: `Bearer ${stage.key}` } });
    found.push({ runId, bytes: Buffer.from(await receipt.arrayBuffer()) });
  }
  return { found, folder };
}

/** What the page's module says of files. */
async function inBrowser(page, list, key) {
  return page.evaluate(async ({ list, key }) => {
    const { verifyFile } = await import('/console/verify.js');
    const out = [];
    for (const text of list) {
      const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
      const { verdict, problems } = await verifyFile(bytes, key ? { key } : {});
      out.push({ verdict, problems });
    }
    return out;
  }, { list: list.map((bytes) => bytes.toString('base64')), key });
}

/** What `abp receipt verify` says of the same files, without the log. */
function byProgram(stage, folder, list, keyFile) {
  const names = list.map((bytes, i) => {
    const name = join(folder, `${i}.json`);
    writeFileSync(name, bytes);
    return name;
  });
  const empty = join(stage.directory, 'empty');
  mkdirSync(empty, { recursive: true, mode: 0o700 });
  const text = stage.runIn(empty, '--json', 'receipt', 'verify', ...(keyFile ? ['--key', keyFile] : []), ...names);
  return JSON.parse(text).receipts;
}

function compare(browser, program) {
  let refused = 0;
  let named = 0;
  browser.forEach((one, i) => {
    const other = program[i];
    expect(one.verdict === other.verdict, `file ${i}: ${other.verdict} as the program says, not ${one.verdict}: ${JSON.stringify([one.problems, other.problems]).slice(0, 500)}`);
    const ours = members(one.problems, (problem) => problem.message);
    const theirs = members(other.problems, (problem) => problem.problem);
    expect(ours === theirs, `file ${i}: the members ${theirs}, not ${ours}`);
    if (one.verdict === 'wrong') refused += 1;
    if (one.verdict === 'wrong' && one.problems.some((problem) => problem.members.length)) named += 1;
  });
  return { refused, named };
}

export const receipts = [
  ['every receipt of this suite is accepted, as by the program', async (stage) => {
    const page = await stage.page({ at: '#/receipts' });
    const { found, folder } = await samples(stage);
    const list = found.map(({ bytes }) => bytes);
    const browser = await inBrowser(page, list);
    expect(browser.every(({ verdict }) => verdict === 'self_consistent'), 'all are consistent');
    compare(browser, byProgram(stage, folder, list));
    const keyFile = join(folder, 'log.pub');
    const key = stage.run('receipt', 'key').trim();
    writeFileSync(keyFile, key);
    const exported = found.slice(0, 5).map(({ runId }) => Buffer.from(stage.run('receipt', 'export', runId)));
    const proven = await inBrowser(page, exported, key);
    expect(proven.every(({ verdict }) => verdict === 'proven'), 'exported ones are proven');
    compare(proven, byProgram(stage, folder, exported, keyFile));
    return `${list.length} receipts, ${exported.length} exported`;
  }],
  ['600 single-byte changes are refused by member, as by the program', async (stage) => {
    const page = await stage.page({ at: '#/receipts' });
    const { found, folder } = await samples(stage);
    const random = numbers(20);
    const small = found.filter(({ bytes }) => bytes.length < 60_000);
    const raw = Array.from({ length: 300 }, (_, i) => changed(small[i % small.length].bytes, random));
    const first = compare(await inBrowser(page, raw), byProgram(stage, folder, raw));
    const keyFile = join(folder, 'log.pub');
    const key = stage.run('receipt', 'key').trim();
    writeFileSync(keyFile, key);
    const bundle = Buffer.from(stage.run('receipt', 'export', small[0].runId));
    const edited = Array.from({ length: 300 }, () => changed(bundle, random));
    const second = compare(await inBrowser(page, edited, key), byProgram(stage, folder, edited, keyFile));
    expect(first.named >= first.refused - 3, `the member named, but only for ${first.named} of ${first.refused}`);
    expect(first.refused >= 299 && second.refused >= 295, `nearly all refused, not ${first.refused} and ${second.refused}`);
    return `${first.refused} of 300 receipts (${first.named} by member) and ${second.refused} of 300 bundles refused; all verdicts agree`;
  }],
  ['a changed byte turns the page red and names the member', async (stage) => {
    const runId = await stage.submit('writer', { wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}/receipt` });
    await page.locator('[data-verdict="proven"]').waitFor();
    await page.route(`**/v1/runs/${runId}/receipt`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace('"outcome":"complete"', '"outcome":"partial"') });
    });
    await page.reload();
    const verdict = page.locator('[data-verdict="wrong"]');
    await verdict.waitFor();
    expect((await verdict.innerText()).includes('outcome'), 'the member by name');
  }],
  ['a log that lies is found out', async (stage) => {
    const runId = await stage.submit('writer', { wait: 30 });
    const other = await stage.submit('writer', { wait: 30 });
    const edits = [
      ['a path of another entry', (proof) => ({ ...proof, path: proof.path.map((hash) => hash.replace(/^./, (digit) => (digit === '0' ? '1' : '0'))) })],
      ['another size', (proof) => ({ ...proof, checkpoint: proof.checkpoint.replace(/\n(\d+)\n/, (_, size) => `\n${Number(size) + 1}\n`) })],
      ['another signature', (proof) => ({ ...proof, checkpoint: proof.checkpoint.replace(/.{6}=\n$/, 'AAAAAA=\n') })],
      ['the entry of another run', async () => stage.api(`/v1/log/proof?run_id=${other}`)],
    ];
    for (const [what, edit] of edits) {
      const page = await stage.page();
      await page.route('**/v1/log/proof?**', async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: await edit(await response.json()) });
      });
      await page.evaluate((id) => { location.hash = `#/runs/${id}/receipt`; }, runId);
      await until(`${what} is refused`, async () => (await page.locator('[data-verdict="wrong"]').count()) === 1);
    }
  }],
  ['the one-file verifier works from a file, without a server', async (stage) => {
    const runId = (await stage.api('/v1/runs?state=complete')).runs[0].run_id;
    const html = join(stage.directory, 'verify.html');
    const page = stage.run('receipt', 'verifier');
    writeFileSync(html, page);
    expect(!/\bimport\b[^(]*from|src=|href=|https?:/.test(page.replace(/<!--.*?-->/gs, '')), 'no import and no address in it');
    const file = join(stage.directory, 'proof.json');
    writeFileSync(file, stage.run('receipt', 'export', runId));
    const context = await stage.browser.newContext({ offline: true });
    const tab = await context.newPage();
    await stage.watch(tab);
    await tab.goto(`file://${html}`);
    await tab.locator('#key').fill(stage.run('receipt', 'key').trim());
    await tab.locator('#file').setInputFiles(file);
    await tab.locator('[data-verdict="proven"]').waitFor();
    const bundle = JSON.parse(readFileSync(file, 'utf8'));
    const document = Buffer.from(bundle.envelope.payload, 'base64').toString().replace('"outcome":"complete"', '"outcome":"partial"');
    bundle.envelope.payload = Buffer.from(document).toString('base64');
    writeFileSync(file, JSON.stringify(bundle));
    await tab.locator('#file').setInputFiles([]);
    await tab.locator('#file').setInputFiles(file);
    await tab.locator('[data-verdict="wrong"]').waitFor();
    expect((await tab.locator('.members').innerText()).includes('outcome'), 'the member by name');
  }],
  ['a dropped file is checked and not sent', async (stage) => {
    const page = await stage.page({ at: '#/receipts' });
    const runId = (await stage.api('/v1/runs?state=complete')).runs[0].run_id;
    const file = join(stage.directory, 'dropped.json');
    writeFileSync(file, stage.run('receipt', 'export', runId));
    const posts = [];
    page.on('request', (request) => { if (request.method() !== 'GET') posts.push(request.url()); });
    await page.getByLabel('a receipt', { exact: true }).setInputFiles(file);
    await page.locator('[data-verdict="self_consistent"]').waitFor();
    expect(posts.length === 0, `nothing sent, but ${posts}`);
  }],
];
