// @ts-check
import { verifyFile } from './verify.js';

// The one-file verifier: a file goes in, a verdict comes out. Everything is shown as text.

/** @param {string} name @param {string} [text] @param {string} [className] */
function element(name, text = '', className = '') {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

/** @param {File|undefined} file */
async function judge(file) {
  if (!file) return;
  const result = /** @type {HTMLElement} */ (document.getElementById('result'));
  if (!globalThis.crypto?.subtle) {
    result.replaceChildren(element('p', 'This browser has no WebCrypto here: open the page from a file, from localhost or over https.'));
    return;
  }
  const key = /** @type {HTMLInputElement} */ (document.getElementById('key')).value.trim();
  const verdict = await verifyFile(new Uint8Array(await file.arrayBuffer()), { key: key || undefined });
  const titles = { proven: 'Proven', self_consistent: `Consistent with itself: ${verdict.because}`, wrong: 'Wrong' };
  const box = element('div', '', `verdict ${verdict.verdict}`);
  box.dataset.verdict = verdict.verdict;
  const members = [...new Set(verdict.problems.flatMap((problem) => problem.members))];
  box.append(element('strong', titles[verdict.verdict]), element('div', `${file.name}, run ${verdict.runId ?? 'unknown'}`));
  if (members.length) box.append(element('p', `Changed: ${members.join(', ')}`, 'members'));
  const list = document.createElement('ul');
  for (const check of verdict.checks) {
    const item = element('li', `${check.ok ? '✓' : '✗'} ${check.name} `);
    item.append(element('small', check.detail));
    list.append(item);
  }
  for (const problem of verdict.problems) list.append(element('li', `${problem.code}: ${problem.message}`));
  box.append(list);
  result.replaceChildren(box);
}

const dropZone = /** @type {HTMLElement} */ (document.getElementById('drop'));
const fileInput = /** @type {HTMLInputElement} */ (document.getElementById('file'));
fileInput.addEventListener('change', () => judge(fileInput.files?.[0]));
dropZone.addEventListener('dragover', (event) => { event.preventDefault(); dropZone.classList.add('over'); });
dropZone.addEventListener('dragleave', () => dropZone.classList.remove('over'));
dropZone.addEventListener('drop', (event) => {
  event.preventDefault();
  dropZone.classList.remove('over');
  judge(event.dataTransfer?.files[0]);
});
