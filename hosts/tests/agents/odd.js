// An agent that does what agents should not: the task names what.

import { setTimeout as sleep } from 'node:timers/promises';

import { MAX_LINE_BYTES } from '../../lib/frames.js';
import { hello } from '../../lib/sidecar.js';

const SECRET = 'sk-abcdefghijklmnopqrstuvwxyz';

const tasks = {
  throw() {
    throw new RangeError(`no good: ${SECRET}`);
  },
  leave() {
    setTimeout(() => {
      throw new Error('nobody catches this');
    });
    return sleep(60_000);
  },
  print_noise() {
    console.log('noise from print');
    process.stdout.write('noise from write\n');
  },
  async flood(ctx) {
    for (;;) await ctx.emit('assistant_delta', { text: 'x'.repeat(1024) });
  },
  async huge(ctx) {
    await ctx.emit('assistant_delta', { text: 'x'.repeat(MAX_LINE_BYTES) });
  },
  async half_pair(ctx) {
    await ctx.emit('assistant_delta', { text: 'a\ud800b \\ud800 \u{1f600}' });
  },
  async leak(ctx) {
    const output = { log: [`key ${SECRET}`], api_key: 'short1', count: 1 };
    const result = { tool_name: 'Read', tool_use_id: '1', output, is_error: false };
    await ctx.emit('tool_result', result);
  },
  async servers(ctx) {
    await ctx.emit('assistant_message', { text: ctx.mcp?.url ?? 'None' });
  },
  async instructed(ctx) {
    await ctx.emit('assistant_message', { text: ctx.task });
    await ctx.emit('assistant_message', { text: ctx.instructions.join('|') });
  },
  async ask(ctx) {
    for (const name of ['Write', 'Bash']) {
      const { approved, reason } = await ctx.requestPermission(name, { path: 'a' }, `call-${name}`);
      await ctx.emit('assistant_delta', { text: `${name} ${approved} ${reason}` });
    }
  },
  async speak_for_host(ctx) {
    const kinds = ['run_started', 'run_resumed', 'run_completed', 'permission_requested'];
    for (const kind of [...kinds, 'permission_resolved', 'adapted', 'network_connection']) {
      try {
        await ctx.emit(kind, { message: 'x' });
        await ctx.emit('warning', { message: `${kind} was sent` });
      } catch (error) {
        await ctx.emit('assistant_delta', { text: error.message });
      }
    }
  },
  async late(ctx) {
    const timer = setInterval(() => {
      ctx.emit('warning', { message: 'late' }).catch(() => clearInterval(timer));
    }, 5);
    await sleep(50);
  },
  async swallow(ctx) {
    await sleep(60_000, undefined, { signal: ctx.signal }).catch(() => {});
  },
  stubborn() {
    return new Promise(() => setInterval(() => {}, 1000));
  },
};

hello({ id: 'odd' }, { streaming: 'native' }).serve((order, ctx) => tasks[ctx.ownTask](ctx));
