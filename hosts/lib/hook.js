// Run by an agent before it uses a tool: `node hook.js SOCKET`, with the use as JSON on standard
// input. Exit status 0 allows it; 2 denies it, with the reason on standard error. These mean the same
// to Codex, Gemini CLI and Kimi Code. What goes wrong here denies.

import { connect } from 'node:net';

const DENIED = 2;

function deny(reason) {
  process.stderr.write(`${reason}\n`, () => process.exit(DENIED));
}

async function ask(path) {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const socket = connect({ path, allowHalfOpen: true });
  socket.end(Buffer.concat(chunks));
  const answer = [];
  for await (const chunk of socket) answer.push(chunk);
  return JSON.parse(Buffer.concat(answer).toString('utf8'));
}

ask(process.argv[2]).then(
  ({ approved, reason }) => {
    if (approved === true) process.stdout.write('{}\n', () => process.exit(0));
    else deny(reason || 'denied');
  },
  (error) => deny(`the host could not be asked: ${error.message}`),
);
