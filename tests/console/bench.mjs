// Figures of the console: time until it can be used, and a run of 100,000 events.

import { expect, until } from './stage.mjs';

const LOAD_MS = 150;
const FRAME_MS = 8;
const HEAP_MB = 150;
const EVENTS = 100_000;

const percentile = (values, part) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) * part)];

export const bench = [
  ['interactive on loopback', async (stage) => {
    const times = [];
    for (let i = 0; i < 15; i += 1) {
      const page = await stage.page();
      await page.locator('h1').waitFor();
      await page.reload({ waitUntil: 'commit' });
      await page.locator('h1').waitFor();
      // From the start of the navigation until the page is rendered by its scripts.
      times.push(await page.evaluate(() => performance.getEntriesByType('paint').find(({ name }) => name === 'first-contentful-paint')?.startTime ?? performance.now()));
      await page.context().close();
    }
    const median = percentile(times, 0.5);
    expect(median <= LOAD_MS, `at most ${LOAD_MS} ms, not ${median.toFixed(0)}`);
    return `median ${median.toFixed(0)} ms, worst ${Math.max(...times).toFixed(0)} ms of ${times.length}`;
  }],
  [`a run of ${EVENTS} events scrolls`, async (stage) => {
    const runId = await stage.submit('crowd', { wait: 280 });
    const page = await stage.page({ at: `#/runs/${runId}` });
    const client = await page.context().newCDPSession(page);
    const started = Date.now();
    await until('all events', async () => new RegExp(`${EVENTS + 2} events|${EVENTS}\\d? events`).test(await page.locator('.status').innerText().catch(() => '')), 120_000);
    const loaded = Date.now() - started;
    // Time of the thread, not of the clock: what else the machine does is not the page's work.
    await client.send('Performance.enable', { timeDomain: 'threadTicks' });
    const total = async () => (await client.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration').value * 1000;
    const work = [];
    for (const start of [0.1, 0.5, 0.9]) {
      await page.evaluate((part) => scrollTo(0, document.documentElement.scrollHeight * part), start);
      await page.waitForTimeout(300);
      for (let i = 0; i < 100; i += 1) {
        const before = await total();
        await page.evaluate(() => new Promise((resolve) => {
          scrollBy(0, 240);
          requestAnimationFrame(() => requestAnimationFrame(resolve));
        }));
        // Two frames: the one that scrolls, and the one that measures what came into view.
        work.push(((await total()) - before) / 2);
      }
    }
    await client.send('HeapProfiler.collectGarbage');
    const heap = await page.evaluate(() => performance.memory.usedJSHeapSize / 1e6);
    const p95 = percentile(work, 0.95);
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    expect(p95 <= FRAME_MS, `at most ${FRAME_MS} ms of work a frame, not ${p95.toFixed(1)} (median ${percentile(work, 0.5).toFixed(1)})`);
    expect(heap <= HEAP_MB, `at most ${HEAP_MB} MB, not ${heap.toFixed(0)}`);
    return `work a frame: median ${percentile(work, 0.5).toFixed(1)} ms, p95 ${p95.toFixed(1)} ms; ${heap.toFixed(0)} MB; ${elements} elements; loaded in ${loaded} ms`;
  }],
];
