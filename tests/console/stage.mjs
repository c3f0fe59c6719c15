// What every case needs: a server with runs, a browser that notes what must not happen, and small helpers.

import { spawn, execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Chromium's own traffic is switched off: a request to elsewhere would be the page's. */
const CHROMIUM_FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-extensions',
];

export class Stage {
  constructor(abp, modules) {
    this.abp = abp;
    this.require = createRequire(join(modules, 'x.js'));
    this.modules = modules;
    this.directory = mkdtempSync(join(tmpdir(), 'abp-console-'));
    /** Whatever breaks a promise of the pages: policy violations, foreign requests, script errors. */
    this.violations = [];
    this.project = join(this.directory, 'project');
    mkdirSync(this.project);
    for (const name of ['state', 'cache', 'home', 'config']) {
      mkdirSync(join(this.directory, name));
      chmodSync(join(this.directory, name), 0o700);
    }
    this.resetProject();
  }

  resetProject() {
    writeFileSync(join(this.project, 'greeting.txt'), 'hello\nworld\n');
    writeFileSync(join(this.project, 'list.txt'), 'one\ntwo\nthree\n');
    rmSync(join(this.project, 'notes.md'), { force: true });
  }

  /** Writes a scripted backend. */
  script(name, steps) {
    const file = join(this.directory, 'config', `${name}.json`);
    writeFileSync(file, JSON.stringify({ name, steps }));
    return `[backends.${name}]\ntype = "mock"\nscript = ${JSON.stringify(file)}\n`;
  }

  configure(text) {
    this.config = join(this.directory, 'config', 'config.toml');
    writeFileSync(this.config, text);
  }

  get environment() {
    const { PATH } = process.env;
    return { PATH, HOME: join(this.directory, 'home'), XDG_CACHE_HOME: join(this.directory, 'cache'), XDG_STATE_HOME: join(this.directory, 'home') };
  }

  get state() {
    return join(this.directory, 'state');
  }

  /** Runs abp; its exit status is not looked at. */
  run(...args) {
    return this.runIn(this.state, ...args);
  }

  /** Runs abp with another state directory. */
  runIn(state, ...args) {
    try {
      return execFileSync(this.abp, ['--config', this.config, '--state-dir', state, ...args], { env: this.environment, cwd: this.directory, maxBuffer: 1 << 28, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    } catch (error) {
      return error.stdout;
    }
  }

  async startServer(port = 0) {
    const child = spawn(this.abp, ['--config', this.config, '--state-dir', this.state, '--json', 'serve', '--listen', `127.0.0.1:${port}`], { env: this.environment, cwd: this.directory, stdio: ['ignore', 'pipe', 'inherit'] });
    this.server = child;
    const text = await new Promise((resolve, reject) => {
      let said = '';
      child.stdout.on('data', (data) => {
        said += data;
        if (said.trimEnd().endsWith('}')) resolve(said);
      });
      child.on('exit', (code) => reject(new Error(`abp serve ended with ${code}: ${said}`)));
    });
    const started = JSON.parse(text);
    this.base = started.listening;
    this.console = started.console;
    this.key = started.key;
    this.port = Number(new URL(this.base).port);
    return started;
  }

  async stopServer(signal = 'SIGTERM') {
    if (!this.server || this.server.exitCode !== null || this.server.signalCode !== null) return;
    const ended = new Promise((resolve) => this.server.once('exit', resolve));
    this.server.kill(signal);
    await ended;
  }

  async startBrowser(executablePath) {
    const { chromium } = this.require('playwright-core');
    this.browser = await chromium.launch({ executablePath, args: CHROMIUM_FLAGS });
  }

  /** A page of its own; what it must not do is noted. */
  async page({ width = 1440, height = 900, scheme = 'light', key = this.key, at = '#/runs' } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: scheme, permissions: ['clipboard-read', 'clipboard-write'] });
    const page = await context.newPage();
    await this.watch(page);
    await page.goto(`${this.base}/console${key ? `#key=${key}` : ''}`);
    if (key) {
      await page.waitForFunction(() => !location.hash.includes('key='));
      await page.evaluate((hash) => { location.hash = hash; }, at);
    }
    return page;
  }

  async watch(page) {
    await page.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => console.error(`CSP-VIOLATION ${event.violatedDirective} ${event.blockedURI}`));
    });
    page.on('console', (message) => {
      const text = message.text();
      if (/CSP-VIOLATION|Content Security Policy/i.test(text)) this.violations.push(`policy: ${text}`);
    });
    page.on('pageerror', (error) => this.violations.push(`script error: ${error.message}`));
    page.on('dialog', (dialog) => {
      this.violations.push(`dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(this.base) && !url.startsWith('data:') && !url.startsWith('blob:') && !url.startsWith('file:')) this.violations.push(`foreign request: ${url}`);
    });
  }

  async api(path, body, method) {
    const response = await fetch(this.base + path, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers: { authorization: `Bearer ${this.key}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text.slice(0, 300)}`);
    return JSON.parse(text);
  }

  /** Submits a run over the public interface, and returns its id. */
  async submit(backend, { task = `task of ${backend}`, policy, wait = 0 } = {}) {
    const order = { task, workspace: { root: this.project }, ...(policy ? { policy } : {}) };
    return (await this.api(`/v1/runs${wait ? `?wait=${wait}` : ''}`, { order, backend })).run_id;
  }

  async close() {
    await this.browser?.close();
    await this.stopServer();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Waits until something holds, and says what did not. */
export async function until(what, check, limit = 20_000) {
  const end = Date.now() + limit;
  let last;
  for (;;) {
    try {
      last = await check();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not in time: ${what} (${last instanceof Error ? last.message : JSON.stringify(last)})`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export function expect(holds, what) {
  if (!holds) throw new Error(`expected ${what}`);
}
