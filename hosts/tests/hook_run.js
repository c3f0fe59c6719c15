// Runs a hook's command line as an agent does.

import { spawn } from 'node:child_process';

/** How the hook ended: `{code, stdout, stderr}`. */
export function run(command, question) {
  return new Promise((resolve, reject) => {
    const child = spawn('/bin/sh', ['-c', command], { stdio: 'pipe' });
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].on('data', (chunk) => (output[name] += chunk));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...output }));
    child.stdin.end(JSON.stringify(question));
  });
}
