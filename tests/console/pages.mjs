// Every page in every state: with and without data, without the right to see it, offline, on a phone, in the dark.

import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, until } from './stage.mjs';

const text = (page) => page.locator('main').innerText();
const shows = (page, wanted) => until(`"${wanted}" on the page`, async () => (await text(page)).includes(wanted));

async function traffic(stage) {
  const ask = (path, body, headers = {}) => fetch(stage.base + path, { method: 'POST', headers: { authorization: `Bearer ${stage.key}`, 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) }).then((response) => response.text());
  for (let i = 0; i < 4; i += 1) {
    await ask('/v1/chat/completions', { model: 'mock', messages: [{ role: 'user', content: `hello ${i}` }], seed: i });
    await ask('/v1/messages', { model: 'mock', max_tokens: 20, messages: [{ role: 'user', content: `hello ${i}` }] }, { 'anthropic-version': '2023-06-01' });
  }
}

const PAGES = (runId) => ['#/runs', '#/new', `#/runs/${runId}`, `#/runs/${runId}/changes`, `#/runs/${runId}/receipt`, '#/approvals', '#/receipts', '#/gateway', '#/gateway/exchanges', '#/gateway/losses', '#/gateway/keys', '#/translate', '#/capabilities', '#/mcp', '#/system', '#/key'];

/** Serious findings of axe-core. */
async function findings(stage, page) {
  const source = readFileSync(stage.require.resolve('axe-core/axe.min.js'), 'utf8');
  // The policy forbids foreign scripts: the checker comes in through the driver, not through the page.
  await page.evaluate(source);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 140)} ${node.any?.[0]?.message ?? ''}`).join(' | ')}`);
}

export const pages = [
  ['the gateway shows traffic, and filters it', async (stage) => {
    await traffic(stage);
    const page = await stage.page({ at: '#/gateway' });
    await shows(page, 'latency p50');
    await shows(page, 'healthy');
    await page.getByRole('link', { name: 'Exchanges' }).click();
    await until('rows', async () => (await page.locator('table.rows tbody tr').count()) >= 8);
    await page.getByLabel('dialect').selectOption('claude');
    await until('fewer rows', async () => (await page.locator('table.rows tbody tr').count()) === 4);
    await page.getByLabel('outcome').selectOption('false');
    await shows(page, 'No exchange fits');
    await page.getByRole('link', { name: 'Losses' }).click();
    await shows(page, 'Nothing was lost');
  }],
  ['keys are made, shown once, limited and revoked', async (stage) => {
    const page = await stage.page({ at: '#/gateway/keys' });
    await page.getByLabel('name of the new key').fill('ci <b>bold</b>');
    await page.getByLabel('budget in dollars').fill('2.5');
    await page.getByLabel('runs:read').check();
    await page.getByRole('button', { name: 'Make key' }).click();
    const secret = await page.locator('.secret').innerText();
    expect(secret.startsWith('abp_'), 'the key');
    await page.getByRole('button', { name: 'I have it' }).click();
    expect(!(await text(page)).includes(secret), 'shown this once');
    await shows(page, '$2.50');
    await page.getByRole('button', { name: 'Revoke' }).first().click();
    await page.getByRole('button', { name: 'Revoke it?' }).click();
    await shows(page, 'revoked');
  }],
  ['a document is translated to every dialect, or refused', async (stage) => {
    const page = await stage.page({ at: '#/translate' });
    await until('five results', async () => (await page.locator('article.out').count()) === 5);
    await until('a lost field', async () => (await page.locator('.json .lost').count()) > 0);
    await page.getByLabel('reject losses').check();
    await until('refused', async () => (await text(page)).includes('refused'));
    await page.getByLabel('reject losses').uncheck();
    await page.getByLabel('dialect').selectOption('claude');
    await until('translated from Claude', async () => (await page.locator('article.out h2').allInnerTexts()).some((title) => title.includes('openai')));
    await page.getByLabel('document', { exact: true }).fill('{"model": ');
    expect(await page.getByRole('button', { name: 'Translate', exact: true }).isDisabled(), 'nothing to send');
  }],
  ['capabilities, MCP and system say what there is', async (stage) => {
    const page = await stage.page({ at: '#/capabilities' });
    await shows(page, 'streaming');
    expect((await page.locator('.matrix th').count()) >= 4, 'backends as columns');
    await page.getByRole('button', { name: 'Probe' }).click();
    await page.evaluate(() => { location.hash = '#/mcp'; });
    await shows(page, 'No MCP server is configured');
    await page.evaluate(() => { location.hash = '#/system'; });
    await shows(page, 'ready');
    await shows(page, 'server.roots');
    await shows(page, 'config.toml:2');
  }],
  ['a wrong key and a key without scopes are told what is wrong', async (stage) => {
    const page = await stage.page({ key: '' });
    await page.getByLabel('Key').fill('abp_wrong');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.locator('.action-error').waitFor();
    const limited = await stage.api('/v1/keys', { name: 'models only', scopes: ['models'] });
    await page.getByLabel('Key').fill(limited.key);
    await until('the page asks', async () => {
      // The gateway knows a new key within half a second; too many wrong ones in between would slow it down.
      await page.waitForTimeout(700);
      await page.getByRole('button', { name: 'Continue' }).click({ timeout: 500 }).catch(() => {});
      return (await text(page)).includes('may not see');
    });
    expect((await text(page)).includes('runs:read'), 'the scope that is missing');
    await page.evaluate(() => { location.hash = '#/gateway'; });
    await until('what it may see', async () => /No requests in this time|requests/.test(await text(page)));
    await page.evaluate(() => { location.hash = '#/system'; });
    await shows(page, 'may not see');
    await stage.api(`/v1/keys/${limited.id}`, undefined, 'DELETE');
    await page.evaluate(() => { location.hash = '#/runs'; });
    await shows(page, 'not accepted');
  }],
  ['a run that does not exist, and an address that names no page', async (stage) => {
    const page = await stage.page({ at: '#/runs/01a1ee14-0429-73ff-933f-c5f226302895' });
    await shows(page, 'There is no such thing');
    await page.evaluate(() => { location.hash = '#/runs/%E0%A4%A/../x'; });
    await shows(page, 'There is no such thing');
    await page.evaluate(() => { location.hash = '#/nothing'; });
    await shows(page, 'There is no page here');
  }],
  ['a server that is away, and comes back', async (stage) => {
    const page = await stage.page();
    await page.locator('table.rows').waitFor();
    await stage.stopServer();
    await page.locator('.offline').waitFor();
    expect((await page.locator('table.rows').count()) === 1, 'what was loaded stays');
    await stage.startServer(stage.port);
    await until('back', async () => (await page.locator('.offline').count()) === 0);
  }],
  ['a clock that is ahead shows no nonsense', async (stage) => {
    const page = await stage.page();
    await page.clock.setSystemTime(Date.now() - 86_400_000);
    await page.reload();
    await page.locator('table.rows tbody tr').first().waitFor();
    const shown = await text(page);
    expect(!/-\d|NaN|Invalid/.test(shown), 'no negative age');
    await page.evaluate(() => { location.hash = '#/system'; });
    await shows(page, 'behind the server');
  }],
  ['no page has a serious accessibility problem, light, dark and on a phone', async (stage) => {
    stage.resetProject();
    await stage.submit('writer', { task: 'Make the greeting braver, and note what you did', wait: 30 });
    await stage.submit('writer', { task: 'Make the greeting braver, but ask before you write', policy: { require_approval_for: ['Write'] } });
    const runId = (await stage.api('/v1/runs?state=complete&backend=writer')).runs[0].run_id;
    const problems = new Set();
    let looked = 0;
    for (const [width, scheme] of [[1440, 'light'], [1440, 'dark'], [390, 'light']]) {
      const page = await stage.page({ width, scheme, height: width === 390 ? 844 : 900 });
      for (const at of PAGES(runId)) {
        await page.evaluate((hash) => { location.hash = hash; }, at);
        await page.waitForTimeout(500);
        looked += 1;
        for (const problem of await findings(stage, page)) problems.add(`${at} ${scheme} ${width}: ${problem}`);
        if (width === 390) {
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          if (wide > 390) problems.add(`${at}: ${wide} px wide on a phone`);
        }
      }
    }
    expect(problems.size === 0, `none, but:\n${[...problems].join('\n')}`);
    return `${looked} looks`;
  }],
  ['pictures of what explains the product', async (stage) => {
    if (!stage.images) return 'none wanted';
    mkdirSync(stage.images, { recursive: true });
    const waiting = (await stage.api('/v1/runs?state=awaiting_approval')).runs[0].run_id;
    const done = (await stage.api('/v1/runs?state=complete&backend=writer')).runs[0].run_id;
    const save = async (name, at, options) => {
      const page = await stage.page({ ...options, at });
      await page.waitForTimeout(900);
      await page.screenshot({ path: join(stage.images, `${name}.png`) });
    };
    await save('console-run', `#/runs/${waiting}`, { height: 760 });
    await save('console-receipt', `#/runs/${done}/receipt`, { height: 760 });
    await save('console-run-dark', `#/runs/${waiting}`, { scheme: 'dark', height: 760 });
    await save('console-approvals-390', '#/approvals', { width: 390, height: 640 });
    await save('console-run-390', `#/runs/${done}`, { width: 390, height: 760 });
    await save('console-changes', `#/runs/${done}/changes`, { height: 760 });
    await save('console-translate', '#/translate', { height: 760 });
    await save('console-gateway', '#/gateway', { height: 760 });
    await save('console-runs', '#/runs', { height: 760 });
    return '9';
  }],
];
