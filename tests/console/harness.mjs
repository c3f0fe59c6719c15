// Tests of the console in a real Chromium, against a real `abp serve` with real runs.
//
//   node tests/console/harness.mjs --abp target/debug/abp --node-modules DIR --chromium /usr/bin/chromium
//     [--images DIR] [--only PART-OF-A-NAME] [--bench]
//
// The last line is `N passed, N failed, N skipped`.

import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { resolve } from 'node:path';
import { Stage } from './stage.mjs';
import { CONFIGURATION } from './scripts.mjs';
import { files } from './files.mjs';
import { runs } from './runs.mjs';
import { hostile } from './hostile.mjs';
import { pages } from './pages.mjs';
import { receipts } from './receipts.mjs';
import { bench } from './bench.mjs';

const { values } = parseArgs({
  options: {
    abp: { type: 'string' }, 'node-modules': { type: 'string' }, chromium: { type: 'string' }, images: { type: 'string' },
    only: { type: 'string' }, bench: { type: 'boolean' },
  },
});

const stage = new Stage(resolve(values.abp), resolve(values['node-modules']));
stage.images = values.images ? resolve(values.images) : null;
stage.isBench = Boolean(values.bench);
stage.root = resolve(import.meta.dirname, '../..');
const counts = { passed: 0, failed: 0 };
try {
  stage.configure(CONFIGURATION(stage));
  await stage.startServer();
  if (!existsSync(values.chromium)) throw new Error(`no ${values.chromium}`);
  await stage.startBrowser(values.chromium);
  const cases = values.bench ? bench : [...files, ...runs, ...hostile, ...receipts, ...pages];
  for (const [name, play] of cases) {
    if (values.only && !name.includes(values.only)) continue;
    const started = Date.now();
    stage.violations = [];
    try {
      const note = await play(stage);
      if (stage.violations.length) throw new Error([...new Set(stage.violations)].join('; '));
      counts.passed += 1;
      console.log(`console: ${name}: ok${note ? ` (${note})` : ''} ${((Date.now() - started) / 1000).toFixed(1)} s`);
    } catch (error) {
      counts.failed += 1;
      console.log(`console: ${name}: FAILED: ${error.message.split('\n').slice(0, 12).join('\n')}`);
    }
    for (const context of stage.browser.contexts()) await context.close();
  }
} finally {
  await stage.close();
}
console.log(`${counts.passed} passed, ${counts.failed} failed, 0 skipped`);
process.exitCode = counts.failed ? 1 : 0;
