// @ts-check
// Changes of a run: a patch as files and lines, unified or side by side, decided by file.

import { html, AgentText, ActionButton, Commands, CopyButton, Empty, State, useState, useMemo, Age, quote } from './ui.js';
import { postJson } from './api.js';

/** Lines of a file that are shown at once. */
const LINE_STEP = 400;

/** @typedef {{sign: ' '|'+'|'-'|'@'|'\\', text: string, old: number|null, new: number|null}} DiffLine */
/** @typedef {{path: string, oldPath: string, note: string, lines: DiffLine[], added: number, removed: number}} FileDiff */

/**
 * Reads a patch in git's form.
 * @param {string} patch
 * @returns {FileDiff[]}
 */
export function parsePatch(patch) {
  /** @type {FileDiff[]} */
  const files = [];
  /** @type {FileDiff|null} */
  let file = null;
  let oldLine = 0;
  let newLine = 0;
  let oldLeft = 0;
  let newLeft = 0;
  for (const line of patch.split('\n')) {
    if (file && (oldLeft > 0 || newLeft > 0)) {
      // Inside a hunk every line belongs to it, whatever it looks like.
      const sign = /** @type {DiffLine['sign']} */ (line[0] ?? ' ');
      if (sign === '\\') {
        file.lines.push({ sign, text: line, old: null, new: null });
        continue;
      }
      const isOld = sign !== '+';
      const isNew = sign !== '-';
      file.lines.push({ sign, text: line.slice(1), old: isOld ? oldLine++ : null, new: isNew ? newLine++ : null });
      if (isOld) oldLeft -= 1;
      if (isNew) newLeft -= 1;
      if (sign === '+') file.added += 1;
      if (sign === '-') file.removed += 1;
      continue;
    }
    if (line.startsWith('diff --git ')) {
      file = { path: pathOf(line), oldPath: '', note: '', lines: [], added: 0, removed: 0 };
      files.push(file);
      continue;
    }
    if (!file) continue;
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (hunk) {
      oldLine = Number(hunk[1]);
      newLine = Number(hunk[3]);
      oldLeft = hunk[2] === undefined ? 1 : Number(hunk[2]);
      newLeft = hunk[4] === undefined ? 1 : Number(hunk[4]);
      file.lines.push({ sign: '@', text: line, old: null, new: null });
    } else if (line.startsWith('+++ ')) {
      file.path = named(line.slice(4)) ?? file.path;
    } else if (line.startsWith('--- ')) {
      file.oldPath = named(line.slice(4)) ?? '';
    } else if (/^(new file|deleted file|rename|similarity|old mode|new mode|Binary|GIT binary)/.test(line)) {
      file.note = file.note ? `${file.note}, ${line}` : line;
    } else if (line.startsWith('\\')) {
      file.lines.push({ sign: '\\', text: line, old: null, new: null });
    }
  }
  return files;
}

/** @param {string} line */
function pathOf(line) {
  const rest = line.slice('diff --git '.length);
  const half = / "?b\//.exec(rest);
  return half ? unquote(rest.slice(half.index + 1)).replace(/^b\//, '') : rest;
}

/** @param {string} text */
function named(text) {
  const path = unquote(text.replace(/\t.*$/, ''));
  return path === '/dev/null' ? null : path.replace(/^[ab]\//, '');
}

/** @param {string} text git writes unusual names in quotes, with octal bytes */
function unquote(text) {
  if (!text.startsWith('"')) return text;
  const bytes = [];
  const inner = text.slice(1, text.endsWith('"') ? -1 : undefined);
  for (let at = 0; at < inner.length; at += 1) {
    if (inner[at] !== '\\') {
      for (const byte of new TextEncoder().encode(inner[at])) bytes.push(byte);
      continue;
    }
    const octal = /^[0-7]{3}/.exec(inner.slice(at + 1));
    if (octal) {
      bytes.push(parseInt(octal[0], 8));
      at += 3;
    } else {
      const escapes = /** @type {Record<string, string>} */ ({ n: '\n', t: '\t', r: '\r', '"': '"', '\\': '\\' });
      bytes.push((escapes[inner[at + 1]] ?? inner[at + 1] ?? '').charCodeAt(0) || 0);
      at += 1;
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

/**
 * @param {{changes: any, runId: string, onDecided: () => void, mayApply: boolean}} props
 */
export function Changes({ changes, runId, onDecided, mayApply }) {
  const files = useMemo(() => parsePatch(changes.diff), [changes.diff]);
  const [isSplit, setSplit] = useState(innerWidth > 1100);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [agreed, setAgreed] = useState(false);
  const hostFiles = changes.host_files ?? [];
  const isUndecided = changes.progress.state === 'undecided';
  const paths = [...chosen];
  const toggle = (/** @type {string} */ path) => {
    const next = new Set(chosen);
    if (!next.delete(path)) next.add(path);
    setChosen(next);
  };
  const apply = (/** @type {string[]} */ list) => async () => {
    await postJson(`/v1/runs/${runId}/apply`, { paths: list, agree_to_host_files: agreed });
    setChosen(new Set());
    onDecided();
  };
  const discard = async () => {
    await postJson(`/v1/runs/${runId}/discard`, {});
    onDecided();
  };
  if (changes.progress.state === 'unchanged') return html`<${Empty} title="This run changed no files" />`;
  return html`<section class="changes" aria-label="changes">
    <div class="bar">
      <${State} state=${changes.progress.decision ?? changes.progress.state} />
      ${changes.progress.by && html`<span class="dim">by ${changes.progress.by}, <${Age} time=${changes.progress.at} /></span>`}
      ${changes.applied?.length > 0 && html`<span class="dim">${changes.applied.length} applied before</span>`}
      <span class="grow"></span>
      <button class="link" aria-pressed=${isSplit} onClick=${() => setSplit(!isSplit)}>${isSplit ? 'unified' : 'side by side'}</button>
      <${CopyButton} label="patch" text=${changes.diff} title="copy the patch for git apply" />
      <${Commands} abp=${`abp diff ${runId}`} path=${`/v1/runs/${runId}/diff`} accept="text/x-diff" />
    </div>
    ${hostFiles.length > 0 && isUndecided && html`<div class="note warn">
      <strong>Some files take effect on the machine that applies them</strong>
      <ul>${hostFiles.map((/** @type {string} */ path) => html`<li><code><${AgentText} text=${path} /></code></li>`)}</ul>
      <label><input type="checkbox" checked=${agreed} onChange=${() => setAgreed(!agreed)} /> I looked at them and agree</label>
    </div>`}
    ${isUndecided && mayApply && html`<div class="bar decide">
      <${ActionButton} class="primary" act=${apply(paths)}>${paths.length ? `Apply ${paths.length} of ${changes.paths.length} files` : changes.paths.length === 1 ? 'Apply 1 file' : `Apply all ${changes.paths.length} files`}<//>
      <${ActionButton} class="danger" confirm="Throw all of it away?" act=${discard}>Discard<//>
      <${Commands} abp=${`abp apply ${runId}${paths.map((path) => ` ${quote(path)}`).join('')}`} path=${`/v1/runs/${runId}/apply`} body=${{ paths }} />
    </div>`}
    ${files.map((file) => html`<${FileView} key=${file.path} file=${file} isSplit=${isSplit}
      isChosen=${chosen.has(file.path)} toggle=${isUndecided && mayApply ? () => toggle(file.path) : null} />`)}
    ${files.length === 0 && isUndecided && html`<ul class="paths">${changes.paths.map((/** @type {any} */ path) => html`<li><code><${AgentText} text=${path.path} /></code></li>`)}</ul>`}
  </section>`;
}

/** @param {{file: FileDiff, isSplit: boolean, isChosen: boolean, toggle: (() => void)|null}} props */
function FileView({ file, isSplit, isChosen, toggle }) {
  const [isOpen, setOpen] = useState(file.lines.length <= 2000);
  const [shown, setShown] = useState(LINE_STEP);
  const lines = file.lines.slice(0, shown);
  return html`<section class="file" aria-label=${file.path}>
    <h3>
      ${toggle && html`<input type="checkbox" checked=${isChosen} onChange=${toggle} aria-label=${`choose ${file.path}`} />`}
      <button class="fold-title" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><code><${AgentText} text=${file.path} /></code></button>
      <span class="plus">+${file.added}</span><span class="minus">−${file.removed}</span>
      ${file.note && html`<span class="dim"><${AgentText} text=${file.note} step=${120} /></span>`}
    </h3>
    ${isOpen && html`<div class="scroll-x" tabindex="0" role="region" aria-label=${`lines of ${file.path}`}>
      ${isSplit ? html`<${SplitLines} lines=${lines} />` : html`<${UnifiedLines} lines=${lines} />`}
    </div>`}
    ${isOpen && file.lines.length > shown && html`<button class="link" onClick=${() => setShown(shown + LINE_STEP * 5)}>${file.lines.length - shown} more lines</button>`}
  </section>`;
}

/** @type {Record<string, string>} */
const LINE_CLASS = { '+': 'add', '-': 'del', '@': 'hunk', '\\': 'hunk', ' ': '' };

/** @param {{lines: DiffLine[]}} props */
function UnifiedLines({ lines }) {
  return html`<table class="lines"><tbody>${lines.map((line) => html`<tr class=${LINE_CLASS[line.sign]}>
    <td class="no">${line.old ?? ''}</td><td class="no">${line.new ?? ''}</td>
    <td class="sign" aria-label=${line.sign === '+' ? 'added' : line.sign === '-' ? 'removed' : ''}>${line.sign === '@' ? '' : line.sign}</td>
    <td class="code"><${AgentText} text=${line.text} step=${1000} /></td></tr>`)}</tbody></table>`;
}

/** @param {{lines: DiffLine[]}} props */
function SplitLines({ lines }) {
  return html`<table class="lines split"><tbody>${pairs(lines).map(([left, right]) =>
    left?.sign === '@' || left?.sign === '\\'
      ? html`<tr class="hunk"><td class="no"></td><td class="code" colspan="3">${left.text}</td></tr>`
      : html`<tr><td class="no">${left?.old ?? ''}</td><td class="code ${left?.sign === '-' ? 'del' : ''}">${left && html`<${AgentText} text=${left.text} step=${1000} />`}</td>
        <td class="no">${right?.new ?? ''}</td><td class="code ${right?.sign === '+' ? 'add' : ''}">${right && html`<${AgentText} text=${right.text} step=${1000} />`}</td></tr>`)}</tbody></table>`;
}

/** Puts removed lines beside the added ones that follow them. @param {DiffLine[]} lines @returns {[DiffLine|null, DiffLine|null][]} */
function pairs(lines) {
  /** @type {[DiffLine|null, DiffLine|null][]} */
  const out = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (line.sign === ' ' || line.sign === '@' || line.sign === '\\') {
      out.push([line, line]);
      at += 1;
      continue;
    }
    const removed = [];
    const added = [];
    while (at < lines.length && lines[at].sign === '-') removed.push(lines[at++]);
    while (at < lines.length && lines[at].sign === '+') added.push(lines[at++]);
    for (let i = 0; i < Math.max(removed.length, added.length); i += 1) out.push([removed[i] ?? null, added[i] ?? null]);
  }
  return out;
}
