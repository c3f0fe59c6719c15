// Runs: submit, follow, answer, decide, come back after a reload and a restart.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, until } from './stage.mjs';

const ASK = { require_approval_for: ['Write'] };

const text = (page) => page.locator('main').innerText();
const shows = (page, wanted, limit) => until(`"${wanted}" on the page`, async () => (await text(page)).includes(wanted), limit);

/** The events that the page counted, and those the server has. */
async function sameEvents(stage, page, runId) {
  const counted = Number(/(\d+) events/.exec(await text(page))?.[1]);
  const stored = (await stage.api(`/v1/runs/${runId}/events?limit=10000`)).events.length;
  expect(counted === stored, `${stored} events on the page, not ${counted}`);
  return stored;
}

const shot = async (stage, page, name) => {
  if (stage.images) await page.screenshot({ path: join(stage.images, `${name}.png`) });
};

export const runs = [
  ['the key leaves the address', async (stage) => {
    const page = await stage.page();
    expect(!page.url().includes('abp_'), 'no key in the address');
    await shows(page, 'Runs');
    expect((await page.context().cookies()).length === 0, 'no cookie');
    const history = await page.evaluate(() => history.length);
    await page.reload();
    await shows(page, 'Runs');
    return `history of ${history}`;
  }],
  ['a one-time code opens the console once', async (stage) => {
    const { address } = JSON.parse(stage.run('--json', 'ui', '--listen', `127.0.0.1:${stage.port}`));
    expect(!address.includes(stage.key), 'no key in the address');
    const page = await stage.page({ key: '' });
    await page.goto('about:blank');
    await page.goto(address);
    await shows(page, 'Runs');
    const second = await stage.page({ key: '' });
    await second.goto('about:blank');
    await second.goto(address);
    await shows(second, 'used before');
  }],
  ['an empty list says what to do', async (stage) => {
    const page = await stage.page();
    await shows(page, 'No runs yet');
    expect(await page.getByRole('link', { name: 'New run' }).first().isVisible(), 'a way to submit one');
  }],
  ['submit, answer, look, apply: a minute of a new user', async (stage) => {
    stage.resetProject();
    const started = Date.now();
    const page = await stage.page({ width: 1000, height: 660 });
    await shot(stage, page, 'first-run-1-empty');
    await page.keyboard.press('n');
    await page.getByLabel('Task').fill('Make the greeting braver, and note what you did');
    await page.getByLabel('Backend').selectOption('writer');
    await page.getByLabel('Workspace').fill(stage.project);
    await page.getByLabel('Policy').selectOption('ask before writes and commands');
    await shot(stage, page, 'first-run-2-submit');
    await page.getByRole('button', { name: 'Submit' }).click();
    const allow = page.locator('.waiting').getByRole('button', { name: 'Allow' });
    await allow.waitFor();
    await shows(page, 'greeting.txt');
    await shot(stage, page, 'first-run-3-approval');
    await page.locator('.waiting').getByLabel('reason').fill('looks right');
    await allow.click();
    for (const question of ['notes.md', 'cargo test']) {
      await until(`the question about ${question}`, async () => (await page.locator('.waiting').innerText()).includes(question));
      await page.locator('.waiting').getByRole('button', { name: 'Allow' }).click();
    }
    await shows(page, 'Done:');
    await until('the end', async () => (await page.locator('.run-head').innerText()).includes('complete'));
    await page.getByRole('link', { name: 'Changes' }).click();
    await shows(page, 'brave new world');
    await shot(stage, page, 'first-run-4-changes');
    await page.getByRole('button', { name: 'Apply all 2 files' }).click();
    await until('applied', async () => (await page.locator('.changes, .note').first().innerText()).includes('applied'));
    expect(readFileSync(join(stage.project, 'greeting.txt'), 'utf8').includes('brave'), 'the file changed');
    await page.getByRole('link', { name: 'Receipt', exact: true }).click();
    await page.locator('[data-verdict="proven"]').waitFor();
    await shot(stage, page, 'first-run-5-receipt');
    const seconds = (Date.now() - started) / 1000;
    expect(seconds < 60, `less than a minute, not ${seconds} s`);
    const receipt = await stage.api(`/v1/runs/${page.url().split('/')[5]}/receipt`);
    expect(JSON.stringify(receipt.trace).includes('looks right'), 'the reason in the receipt');
    return `${seconds.toFixed(1)} s`;
  }],
  ['one file is applied, the rest discarded', async (stage) => {
    stage.resetProject();
    const runId = await stage.submit('writer', { wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}/changes` });
    await page.getByLabel('choose notes.md').check();
    await page.getByRole('button', { name: 'Apply 1 of 2 files' }).click();
    await shows(page, '1 applied before');
    expect(!readFileSync(join(stage.project, 'greeting.txt'), 'utf8').includes('brave'), 'the other file as it was');
    expect(readFileSync(join(stage.project, 'notes.md'), 'utf8').includes('Notes'), 'the chosen file');
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByRole('button', { name: 'Throw all of it away?' }).click();
    await until('decided', async () => (await stage.api(`/v1/runs/${runId}/diff`)).progress.state === 'decided');
    expect(!readFileSync(join(stage.project, 'greeting.txt'), 'utf8').includes('brave'), 'the other file still as it was');
  }],
  ['a diff is shown unified and side by side', async (stage) => {
    const runId = await stage.submit('writer', { wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}/changes`, width: 1000 });
    await page.locator('table.lines:not(.split)').first().waitFor();
    expect((await page.locator('tr.add').count()) >= 1, 'added lines');
    await page.getByRole('button', { name: 'side by side' }).click();
    await page.locator('table.split').first().waitFor();
    expect((await page.locator('table.split td.del').innerText()) === 'world', 'the removed line beside the new one');
  }],
  ['denied in the browser, and the agent goes on', async (stage) => {
    const runId = await stage.submit('writer', { policy: ASK });
    const page = await stage.page({ at: '#/approvals', width: 390, height: 844 });
    await page.getByRole('button', { name: 'Deny' }).click();
    await until('the second question', async () => (await text(page)).includes('notes.md'));
    await page.getByRole('button', { name: 'Deny' }).click();
    await shows(page, 'Nothing waits for you');
    await page.evaluate((id) => { location.hash = `#/runs/${id}`; }, runId);
    await shows(page, '2 denied');
    await until('the state', async () => (await stage.api(`/v1/runs/${runId}`)).ended_at);
  }],
  ['two tabs answer one question: the first counts, the second is told', async (stage) => {
    const runId = await stage.submit('writer', { policy: ASK });
    const tabs = await Promise.all([stage.page({ at: `#/runs/${runId}` }), stage.page({ at: `#/runs/${runId}` })]);
    const buttons = tabs.map((page, i) => page.locator('.waiting').getByRole('button', { name: i ? 'Deny' : 'Allow' }));
    await Promise.all(buttons.map((button) => button.waitFor()));
    // No tab may see the answer of the other before it has answered itself.
    for (const page of tabs) await page.route('**/v1/approvals?**', (route) => route.abort());
    await Promise.all(buttons.map((button) => button.click()));
    const told = await until('one tab is told', async () => {
      const texts = await Promise.all(tabs.map(text));
      return texts.some((one) => one.includes('your answer came second')) && texts;
    });
    expect(told.filter((one) => one.includes('came second')).length === 1, 'exactly one is told');
    const first = (await stage.api(`/v1/approvals?run_id=${runId}`)).approvals[0];
    expect(['approved', 'denied'].includes(first.state), 'one answer');
    await stage.api(`/v1/runs/${runId}/cancel`, {});
  }],
  ['a reload in the middle of a run loses and repeats nothing', async (stage) => {
    const runId = await stage.submit('slow');
    const page = await stage.page({ at: `#/runs/${runId}` });
    await shows(page, 'step 2 of');
    await page.reload();
    await shows(page, 'step 5 of');
    await page.reload();
    await shows(page, 'the end of twelve');
    await until('the end', async () => (await page.locator('.status').innerText()).includes('complete'));
    for (let i = 0; i < 12; i += 1) expect((await text(page)).split(`step ${i} of`).length === 2, `step ${i} once`);
    return `${await sameEvents(stage, page, runId)} events`;
  }],
  ['a server that is killed and comes back in the middle of a run', async (stage) => {
    const runId = await stage.submit('slow');
    const page = await stage.page({ at: `#/runs/${runId}` });
    await shows(page, 'step 3 of');
    await stage.stopServer('SIGKILL');
    await until('the page says so', async () => (await page.locator('.offline').count()) > 0 && (await text(page)).includes('reconnecting'));
    expect((await text(page)).includes('step 3 of'), 'what was there stays');
    await stage.startServer(stage.port);
    await until('the page goes on', async () => (await page.locator('.offline').count()) === 0);
    await until('the run ends', async () => (await stage.api(`/v1/runs/${runId}`)).ended_at, 40_000);
    const { state } = await stage.api(`/v1/runs/${runId}`);
    await until('the page has the end', async () => (await page.locator('.status').innerText()).includes(state));
    return `${state}, ${await sameEvents(stage, page, runId)} events`;
  }],
  ['a run is cancelled after a second thought', async (stage) => {
    const runId = await stage.submit('endless');
    const page = await stage.page({ at: `#/runs/${runId}` });
    await shows(page, 'waiting');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Cancel this run?' }).click();
    await until('cancelled', async () => (await page.locator('.run-head').innerText()).includes('cancelled'));
  }],
  ['the keyboard moves, opens, filters and helps', async (stage) => {
    const page = await stage.page();
    await page.locator('table.rows tbody tr').first().waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.keyboard.press('k');
    expect((await page.locator('tr.selected').count()) === 1, 'one row');
    await page.keyboard.press('/');
    await page.keyboard.type('task of endless');
    await until('filtered', async () => (await page.locator('table.rows tbody tr').count()) === 1);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.locator('.help').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('k');
    await page.keyboard.press('Enter');
    await page.locator('.run-head').waitFor();
    await page.keyboard.press('4');
    await shows(page, 'Gateway');
  }],
  ['copy buttons give commands that work, without the key', async (stage) => {
    const runId = await stage.submit('writer', { wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}/changes` });
    await page.locator('.changes').getByRole('button', { name: 'curl' }).first().click();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    expect(command.startsWith('curl ') && !command.includes(stage.key), 'a curl command without the key');
    const { execFileSync } = await import('node:child_process');
    const patch = execFileSync('bash', ['-c', command], { env: { ...stage.environment, ABP_KEY: stage.key }, encoding: 'utf8' });
    expect(patch.startsWith('diff --git'), 'the patch');
    await page.locator('.changes').getByRole('button', { name: 'abp' }).first().click();
    expect((await page.evaluate(() => navigator.clipboard.readText())) === `abp diff ${runId}`, 'the abp command');
  }],
];
