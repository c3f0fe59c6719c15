// The way from an agent's hook to the host: the agent runs `hook.js` before every tool, which asks
// here and waits. Agents whose protocol has no question before every tool have such hooks.

import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** A person may take long. */
export const HOOK_TIMEOUT_SECONDS = 24 * 60 * 60;
const MAX_QUESTION_BYTES = 16 * 1024 * 1024;

/**
 * Listens for the questions of hooks; `decide(input)` answers with `{approved, reason}`. A question
 * that is not answered within `limitMs` is denied.
 */
export class HookServer {
  #server;
  #directory;
  #decide;
  #limitMs;

  static async start(decide, limitMs = HOOK_TIMEOUT_SECONDS * 1000) {
    const server = new HookServer(decide, limitMs);
    await new Promise((resolve, reject) => {
      server.#server.once('error', reject);
      server.#server.listen(server.#socket, resolve);
    });
    return server;
  }

  constructor(decide, limitMs) {
    this.#decide = decide;
    this.#limitMs = limitMs;
    this.#directory = mkdtempSync(join(tmpdir(), 'abp-hook-'));
    chmodSync(this.#directory, 0o700);
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#serve(socket));
  }

  get #socket() {
    return join(this.#directory, 'socket');
  }

  /** The command line that an agent runs as its hook. */
  get command() {
    const script = fileURLToPath(new URL('hook.js', import.meta.url));
    return [process.execPath, script, this.#socket].map(quoted).join(' ');
  }

  close() {
    this.#server.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #tooLate() {
    await sleep(this.#limitMs, undefined, { ref: false });
    return { approved: false, reason: `nobody answered within ${this.#limitMs / 1000} s` };
  }

  async #serve(socket) {
    socket.on('error', () => {});
    let answer;
    try {
      const question = JSON.parse(await readAll(socket));
      answer = await Promise.race([this.#decide(question), this.#tooLate()]);
    } catch (error) {
      answer = { approved: false, reason: `not decided: ${error.message}` };
    }
    socket.end(JSON.stringify(answer));
  }
}

/** Reads to the end. Not with `for await`, which would close the other direction too. */
function readAll(socket) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    let bytes = 0;
    socket.on('data', (chunk) => {
      bytes += chunk.length;
      if (bytes > MAX_QUESTION_BYTES) reject(new Error('the question is too long'));
      else chunks.push(chunk);
    });
    socket.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
    socket.on('close', () => reject(new Error('the hook has gone')));
  });
}

/** A word of a command line, for a shell. */
function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
