// The example agent in JavaScript: does what simple tasks say, without a model.
//
// The forms of tasks it understands are in hosts/README.md; host.py does the same.

import { existsSync } from 'node:fs';
import { mkdir, open, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Guard, Refused } from '../lib/guard.js';
import { Failure, hello } from '../lib/sidecar.js';
import capabilities from './capabilities.js';

const MAX_LISTED = 10_000;
const MAX_READ_BYTES = 64 * 1024;

const INSTRUCTIONS = [
  [/^list$/, 'list'],
  [/^write ([^:]+): (.*)$/, 'write'],
  [/^append ([^:]+): (.*)$/, 'append'],
  [/^read (.+)$/, 'read'],
  [/^count (\d{1,7})$/, 'count'],
  [/^wait (\d+(?:\.\d+)?)$/, 'wait'],
  [/^fail (.+)$/, 'fail'],
];

async function run(order, ctx) {
  const agent = new Agent(ctx, guardFor(order));
  const task = ctx.ownTask.trim();
  // A model would be given `ctx.task`, which has the instructions in it.
  for (const instruction of ctx.instructions) await agent.say(`I was told: ${instruction}`);
  for (const [name, args] of parse(task)) await agent[name](...args);
  const said = agent.said.join('');
  await ctx.emit('assistant_message', { text: said });
  const [wordsIn, wordsOut] = [countWords(task), countWords(said)];
  await ctx.reportUsage(
    { input_tokens: wordsIn, output_tokens: wordsOut },
    { words_in: wordsIn, words_out: wordsOut },
  );
}

function guardFor(order) {
  try {
    return new Guard(process.cwd(), order.policy ?? {});
  } catch (problem) {
    throw new Failure('POLICY_INVALID', problem.message);
  }
}

/** The task's instructions, if every line is one; otherwise the task is noted down. */
function parse(task) {
  const steps = [];
  for (const line of task.split('\n')) {
    const found = INSTRUCTIONS.map(([pattern, name]) => [name, line.trim().match(pattern)]);
    const [name, match] = found.find(([, matched]) => matched !== null) ?? [];
    if (name === undefined) return [['note', [task]]];
    steps.push([name, match.slice(1)]);
  }
  return steps;
}

function countWords(text) {
  return text.split(/\s+/).filter(Boolean).length;
}

/** The agent's hands and mouth. Every tool asks the policy before it is used. */
class Agent {
  said = [];
  #ctx;
  #guard;
  #calls = 0;

  constructor(ctx, guard) {
    this.#ctx = ctx;
    this.#guard = guard;
  }

  async say(line) {
    this.said.push(`${line}\n`);
    await this.#ctx.emit('assistant_delta', { text: `${line}\n` });
  }

  async list() {
    const count = async () => ({ files: Math.min(await this.#countFiles(''), MAX_LISTED) });
    const listed = await this.#use('Glob', { pattern: '**' }, count);
    if (listed !== null) await this.say(`Files in the workspace: ${listed.files}.`);
  }

  async write(path, text) {
    await this.#change('Write', path, text, 'w');
  }

  async append(path, text) {
    await this.#change('Edit', path, text, 'a');
  }

  async read(path) {
    const read = await this.#use('Read', { path }, () => this.#readFile(path));
    await this.say(read !== null ? `I read ${path}.` : `I could not read ${path}.`);
  }

  async count(number) {
    for (let value = 1; value <= Number(number); value += 1) await this.say(String(value));
  }

  async wait(seconds) {
    await this.say(`I wait ${seconds} s.`);
    await sleep(Number(seconds) * 1000, undefined, { signal: this.#ctx.signal });
  }

  fail(message) {
    throw new Failure('EXECUTION_TOOL_FAILED', message);
  }

  async note(task) {
    await this.list();
    await this.#change('Write', 'NOTES.md', `# Notes\n\nTask: ${task}`, 'w');
    this.#ctx.addArtifact('notes', 'NOTES.md');
  }

  async #change(tool, path, text, flag) {
    const content = Buffer.from(`${text}\n`);
    const request = { path, bytes: content.length };
    const done = await this.#use(tool, request, () => this.#writeFile(path, content, flag));
    await this.say(done !== null ? `I changed ${path}.` : `I could not change ${path}.`);
  }

  /** Uses a tool and tells the host; returns null where it was refused or failed. */
  async #use(tool, request, act) {
    try {
      this.#guard.checkTool(tool);
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      // The host ends a run that reports the call of a denied tool.
      await this.#ctx.emit('warning', { message: `${tool} was not used: ${why.message}` });
      return null;
    }
    this.#calls += 1;
    const call = { tool_name: tool, tool_use_id: `call-${this.#calls}` };
    await this.#ctx.emit('tool_call', { ...call, parent_tool_use_id: null, input: request });
    let output;
    try {
      output = await act();
    } catch (error) {
      if (!(error instanceof Refused) && error.syscall === undefined) throw error;
      const refusal = { ...call, output: { error: error.message }, is_error: true };
      await this.#ctx.emit('tool_result', refusal);
      return null;
    }
    await this.#ctx.emit('tool_result', { ...call, output, is_error: false });
    return output;
  }

  async #countFiles(directory) {
    let count = 0;
    for (const entry of await readdir(join(this.#guard.root, directory), { withFileTypes: true })) {
      const path = join(directory, entry.name);
      if (!this.#isVisible(entry.name, path)) continue;
      count += entry.isDirectory() ? await this.#countFiles(path) : 1;
      if (count >= MAX_LISTED) break;
    }
    return count;
  }

  #isVisible(name, path) {
    // The agent's own repository data is no content.
    if (name === '.git') return false;
    try {
      this.#guard.readable(path);
      return true;
    } catch (error) {
      if (error instanceof Refused) return false;
      throw error;
    }
  }

  async #readFile(path) {
    const inside = this.#guard.readable(path);
    const file = await open(join(this.#guard.root, inside));
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_READ_BYTES));
      return { path: inside, content: buffer.toString('utf8', 0, bytesRead) };
    } finally {
      await file.close();
    }
  }

  async #writeFile(path, content, flag) {
    const inside = this.#guard.writable(path);
    const full = join(this.#guard.root, inside);
    const existed = existsSync(full);
    await mkdir(dirname(full), { recursive: true });
    await writeFile(full, content, { flag });
    const change = !existed ? 'created' : flag === 'w' ? 'replaced' : 'extended';
    const summary = `${change} (${content.length} bytes)`;
    await this.#ctx.emit('file_changed', { path: inside, summary });
    return { path: inside, bytes: content.length, change };
  }
}

hello({ id: 'example-node', backend_version: '0.1.0' }, capabilities).serve(run);
