// Agents' text is hostile: nothing of it runs, nothing of it hides, nothing of it stalls the page.

import { expect, until } from './stage.mjs';
import { BIDI, HOSTILE_TEXTS } from './scripts.mjs';

async function openEverything(page) {
  for (let i = 0; i < 40; i += 1) {
    const folds = page.locator('.fold-title[aria-expanded="false"]');
    if ((await folds.count()) === 0) break;
    await folds.first().click({ timeout: 2000 }).catch(() => {});
  }
}

async function isHarmless(page) {
  const found = await page.evaluate((bidi) => {
    const main = document.querySelector('main');
    const bad = [...main.querySelectorAll('script, iframe, style, object, embed, svg [onload], [onerror], [onclick], a[href^="javascript" i]')].map((one) => one.outerHTML.slice(0, 100));
    const links = [...main.querySelectorAll('a[target]')].filter((one) => !/^https?:/.test(one.href)).map((one) => one.href);
    return { bad, links, title: document.title, hasBidi: main.textContent.includes(bidi), images: [...main.querySelectorAll('img')].map((one) => one.src.slice(0, 60)) };
  }, BIDI);
  expect(found.bad.length === 0, `no such elements: ${found.bad}`);
  expect(found.links.length === 0, `no such links: ${found.links}`);
  expect(!found.title.includes('pwned'), 'the title as it was');
  expect(!found.hasBidi, 'no character that turns text around');
  return found;
}

export const hostile = [
  ['hostile output is shown as text everywhere', async (stage) => {
    const runId = await stage.submit('hostile', { task: HOSTILE_TEXTS[0], wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}` });
    await until('the end', async () => (await page.locator('.status').innerText()).includes('complete'));
    await openEverything(page);
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await openEverything(page);
    const shown = await page.locator('main').innerText();
    expect(shown.includes('<script>') || shown.includes('onload'), 'the markup as text');
    await isHarmless(page);
    await page.evaluate(() => scrollTo(0, 0));
    await until('the marks', async () => (await page.locator('.hidden-char').count()) > 0);
    for (const at of [`#/runs/${runId}/changes`, `#/runs/${runId}/receipt`, '#/runs', '#/approvals']) {
      await page.evaluate((hash) => { location.hash = hash; }, at);
      await page.waitForTimeout(700);
      await isHarmless(page);
    }
  }],
  ['a link of an agent opens only http and https, and names its host', async (stage) => {
    const runId = await stage.submit('hostile', { wait: 30 });
    const page = await stage.page({ at: `#/runs/${runId}` });
    const link = page.locator('main a[target="_blank"]').first();
    await link.waitFor();
    expect((await link.getAttribute('href')) === 'https://example.com/a', 'the good one');
    expect((await link.getAttribute('rel')).includes('noopener'), 'without an opener');
    expect((await page.locator('main').innerText()).includes('(example.com)'), 'its host beside it');
    expect((await page.locator('main a[target="_blank"]').count()) === 1, 'no other');
  }],
  ['a question of a hostile agent is harmless, too', async (stage) => {
    const runId = await stage.submit('hostile', { policy: { require_approval_for: ['Write'] } });
    const page = await stage.page({ at: '#/approvals' });
    await page.getByRole('button', { name: 'Deny' }).waitFor();
    const found = await isHarmless(page);
    expect((await page.locator('.hidden-char').count()) > 0, 'the hidden character by its code point');
    expect(found.images.length === 0, 'no image');
    await page.getByRole('button', { name: 'Deny' }).click();
    await until('the end', async () => (await stage.api(`/v1/runs/${runId}`)).ended_at);
  }],
  ['a line of 10 MB does not stall the page', async (stage) => {
    const runId = await stage.submit('huge', { wait: 60 });
    const page = await stage.page({ at: `#/runs/${runId}` });
    const started = Date.now();
    await until('both ends', async () => {
      const shown = await page.locator('main').innerText();
      return shown.includes('before the line') && shown.includes('after the line');
    }, 30_000);
    const longest = await page.evaluate(() => new Promise((resolve) => {
      let worst = 0;
      let last = performance.now();
      let frames = 0;
      const step = (now) => {
        worst = Math.max(worst, now - last);
        last = now;
        frames += 1;
        if (frames < 60) requestAnimationFrame(step); else resolve(worst);
      };
      requestAnimationFrame(step);
    }));
    const length = await page.evaluate(() => document.querySelector('main').textContent.length);
    expect(length < 200_000, `not all of it in the page, but ${length} characters are`);
    expect(longest < 1000, `no frame of ${longest} ms`);
    await page.getByRole('button', { name: 'output' }).click();
    await until('it is shown in steps', async () => (await page.locator('main').innerText()).includes('show more'));
    return `shown after ${Date.now() - started} ms`;
  }],
];
