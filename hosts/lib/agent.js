// The parts that hosts of vendors' agents share: the task in words, the environment of the agent,
// the question before every tool, and the agent's process.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, relative, sep } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { LineSplitter } from './frames.js';
import { Failure } from './run.js';

/** How long an agent may take to end after SIGTERM; a host gives its sidecar a second. */
const KILL_AFTER_MS = 400;
/** How long the line about a call may come after its hook. */
const LATE_LINE_MS = 500;
const LATE_LINE_STEP_MS = 20;
/** How much of an agent's standard error is kept for the error of a failed run. */
const KEPT_STDERR = 8 * 1024;

/** The version of a package in a host's own `node_modules`; `null` where it is not installed. */
export function installedVersion(hostUrl, packageName) {
  try {
    const manifest = new URL(`node_modules/${packageName}/package.json`, hostUrl);
    return JSON.parse(readFileSync(manifest)).version ?? null;
  } catch {
    return null;
  }
}

/**
 * A directory for an agent's settings and sessions. The user's own are neither read nor changed, also
 * where there is no sandbox with a home directory of its own.
 */
export function agentHome(name) {
  const home = join(homedir(), '.abp-hosts', name);
  mkdirSync(home, { recursive: true, mode: 0o700 });
  return home;
}

/** The task with the order's context: pieces of text, and the files that matter. */
export function promptOf(order, ctx) {
  const { files = [], snippets = [] } = order.context ?? {};
  const parts = [ctx.task];
  if (files.length > 0) parts.push(`Files that matter:\n${files.map((path) => `- ${path}`).join('\n')}`);
  for (const { name, content } of snippets) parts.push(`<context name=${JSON.stringify(name)}>\n${content}\n</context>`);
  return parts.join('\n\n');
}

/**
 * The environment of the agent: that of the host, what keeps the agent quiet, and the order's own
 * variables. The order cannot change how programs are loaded.
 */
export function agentEnvironment(order, quiet) {
  const own = Object.entries(order.config?.env ?? {}).filter(([name]) => !LOADER_VARIABLES.test(name));
  return { ...process.env, ...quiet, ...Object.fromEntries(own) };
}

const LOADER_VARIABLES = /^(?:LD_|DYLD_|NODE_OPTIONS$|NODE_PATH$|BASH_ENV$|ENV$|PATH$|HOME$|ABP_)/;

/**
 * Asks the host before every use of a tool and announces those that are allowed. An agent may ask
 * several times about one call (in a hook and in a callback): the answer is the same.
 */
export class ToolGate {
  #ctx;
  #answers = new Map();
  /** The names of announced calls by id: results are told of those alone. */
  #announced = new Map();

  constructor(ctx) {
    this.#ctx = ctx;
  }

  /** Whether the tool may be used: `{approved, reason}`. */
  decide(call) {
    const known = call.id === undefined ? undefined : this.#answers.get(call.id);
    if (known !== undefined) return known;
    const answer = this.#ask(call);
    if (call.id !== undefined) this.#answers.set(call.id, answer);
    return answer;
  }

  async #ask(call) {
    const answer = await this.#ctx.requestPermission(call.name, call.input, call.id);
    if (answer.approved) await this.announce(call);
    return answer;
  }

  /** Whether a call was asked about. */
  isKnown(id) {
    return this.#answers.has(id) || this.#announced.has(id);
  }

  /** The answer about a call that was asked about. */
  async answerOf(id) {
    return (await this.#answers.get(id)) ?? { approved: this.#announced.has(id), reason: '' };
  }

  /** Tells of a call that the host need not be asked about, or was. */
  async announce({ name, input, id, parent = null }) {
    if (id !== undefined) this.#announced.set(id, name);
    const fields = { tool_name: name, tool_use_id: id ?? null, parent_tool_use_id: parent, input };
    await this.#ctx.emit('tool_call', fields);
  }

  /** The name of an announced call; undefined for one that was denied or never seen. */
  announcedName(id) {
    return this.#announced.get(id);
  }
}

/**
 * The calls that an agent told of, for hooks that are given a name and an input without the id. The
 * agent's line about a call may come a little after its hook.
 */
export class CallList {
  #calls = new Map();

  add(id, name, input) {
    this.#calls.set(id, { name, input });
  }

  get(id) {
    return this.#calls.get(id);
  }

  /** The id of the first call with this name and input that `isFree` says yes to. */
  async find(name, input, isFree) {
    const wanted = JSON.stringify(input);
    const matches = ([id, call]) => call.name === name && JSON.stringify(call.input) === wanted && isFree(id);
    for (let waited = 0; ; waited += LATE_LINE_STEP_MS) {
      const found = [...this.#calls].find(matches);
      if (found !== undefined || waited >= LATE_LINE_MS) return found?.[0];
      await sleep(LATE_LINE_STEP_MS);
    }
  }
}

/** A path as the workspace sees it; paths elsewhere stay as they are. */
export function workspacePath(path, root = process.cwd()) {
  if (!isAbsolute(path)) return path;
  const inside = relative(root, path);
  return inside === '' || inside === '..' || inside.startsWith(`..${sep}`) ? path : inside;
}

/** A program of an agent whose output is JSON lines. Ends with the run's signal. */
export class AgentProcess {
  #child;
  #stderr = '';
  #ended;

  constructor(command, args, { env, signal, input = 'ignore' }) {
    // A group of its own, so that whatever it started ends with it.
    this.#child = spawn(command, args, { env, stdio: [input, 'pipe', 'pipe'], detached: true });
    this.#child.stderr.on('data', (chunk) => {
      this.#stderr = (this.#stderr + chunk).slice(-KEPT_STDERR);
      process.stderr.write(chunk);
    });
    this.#child.stdin?.on('error', () => {});
    this.#ended = new Promise((resolve) => {
      this.#child.on('error', (error) => resolve({ error }));
      this.#child.on('close', (code, name) => resolve({ code, signal: name }));
    });
    signal.addEventListener('abort', () => this.stop(), { once: true });
    if (signal.aborted) this.stop();
  }

  /** The lines of its output, as text. */
  async *lines() {
    const splitter = new LineSplitter();
    for await (const chunk of this.#child.stdout) {
      for (const line of splitter.push(chunk)) yield line.toString('utf8');
    }
  }

  /** The objects among its lines. Other lines are not the agent's events and go to the log. */
  async *objects() {
    for await (const line of this.lines()) {
      const object = parsedObject(line);
      if (object !== null) yield object;
      else if (line.trim() !== '') console.error(`not an event of the agent: ${line.slice(0, 200)}`);
    }
  }

  send(object) {
    this.#child.stdin.write(`${JSON.stringify(object)}\n`);
  }

  closeInput() {
    this.#child.stdin?.end();
  }

  /** How it ended: `{code, signal}`, or `{error}` where it could not be started. */
  get ended() {
    return this.#ended;
  }

  /** The end of what it wrote to its standard error. */
  get stderrTail() {
    return this.#stderr.trim();
  }

  /** Ends it and everything it started, with force after a while. */
  stop() {
    this.#signal('SIGTERM');
    const timer = setTimeout(() => this.#signal('SIGKILL'), KILL_AFTER_MS);
    this.#ended.then(() => {
      clearTimeout(timer);
      this.#signal('SIGKILL');
    });
  }

  #signal(name) {
    try {
      if (this.#child.pid !== undefined) process.kill(-this.#child.pid, name);
    } catch (error) {
      if (error.code !== 'ESRCH') throw error;
    }
  }
}

function parsedObject(line) {
  if (!line.startsWith('{')) return null;
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

/** The failure of an agent's program that ended by itself without having done its work. */
export function endedEarly(name, { code, signal, error }, stderrTail) {
  if (error !== undefined) return new Failure('SIDECAR_SPAWN_FAILED', `${name} cannot be started: ${error.message}`);
  const how = signal ? `was ended by ${signal}` : `exited with status ${code}`;
  const last = stderrTail === '' ? '' : `: ${stderrTail.split('\n').slice(-3).join(' ')}`;
  return new Failure('BACKEND_CRASHED', `${name} ${how} before its work was done${last}`);
}

/** The code for an HTTP status of the model's API, as agents report it. */
export function codeOfStatus(status) {
  if (status === 401 || status === 403) return 'BACKEND_AUTH_FAILED';
  if (status === 404) return 'BACKEND_MODEL_NOT_FOUND';
  if (status === 429) return 'BACKEND_RATE_LIMITED';
  return 'BACKEND_UNAVAILABLE';
}
