// @ts-check
// One document in every dialect, with every field coloured by what became of it.

import { html, AgentText, ActionButton, Commands, CopyButton, State, useEffect, useRef, useState } from './ui.js';
import { postJson } from './api.js';

const DIALECTS = ['openai', 'claude', 'gemini', 'codex', 'kimi', 'copilot'];

/** @type {Record<string, any>} */
const SAMPLES = {
  openai: { model: 'gpt-5', temperature: 0.2, seed: 7, logit_bias: { 50256: -100 }, messages: [{ role: 'system', content: 'Answer in one line.' }, { role: 'user', content: 'What is the weather in Bern?' }], tools: [{ type: 'function', function: { name: 'weather', description: 'The weather of a place', parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] } } }], parallel_tool_calls: false },
  claude: { model: 'claude-opus-4-5', max_tokens: 1024, top_k: 40, thinking: { type: 'enabled', budget_tokens: 2048 }, system: 'Answer in one line.', messages: [{ role: 'user', content: 'What is the weather in Bern?' }] },
  gemini: { systemInstruction: { parts: [{ text: 'Answer in one line.' }] }, contents: [{ role: 'user', parts: [{ text: 'What is the weather in Bern?' }] }], generationConfig: { topK: 40, temperature: 0.2 }, safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }] },
  codex: { model: 'gpt-5-codex', instructions: 'Answer in one line.', input: [{ type: 'message', role: 'user', content: 'What is the weather in Bern?' }], reasoning: { effort: 'high' }, store: false },
  kimi: { model: 'kimi-k2', temperature: 0.3, messages: [{ role: 'user', content: 'What is the weather in Bern?' }] },
  copilot: { model: 'gpt-5', messages: [{ role: 'user', content: 'What is the weather in Bern?' }] },
};

export function TranslatePage() {
  const [from, setFrom] = useState('openai');
  const [kind, setKind] = useState('request');
  const [text, setText] = useState(JSON.stringify(SAMPLES.openai, null, 2));
  const [isStrict, setStrict] = useState(false);
  const [results, setResults] = useState(/** @type {any[]} */ ([]));
  const [chosen, setChosen] = useState('');
  /** @type {any} */
  let document = null;
  let problem = '';
  try {
    document = JSON.parse(text);
  } catch (error) {
    problem = String(error instanceof Error ? error.message : error);
  }
  // The text itself is sent, so that numbers stay as they are written.
  const body = `{"from":${JSON.stringify(from)},"kind":${JSON.stringify(kind)},"reject_losses":${isStrict},"document":${text}}`;
  const latest = useRef(0);
  const translate = async () => {
    const round = ++latest.current;
    const answer = await postJson('/v1/translate/all', body);
    // An older question may be answered later than a newer one.
    if (round === latest.current) setResults(answer.results);
  };
  useEffect(() => { if (!problem) translate().catch(() => {}); }, [from, kind, isStrict]);
  const pick = (/** @type {any} */ event) => {
    const next = event.target.value;
    setResults([]);
    setFrom(next);
    if (Object.values(SAMPLES).some((sample) => JSON.stringify(sample, null, 2) === text)) setText(JSON.stringify(SAMPLES[next], null, 2));
  };
  const shown = results.find((result) => result.to === chosen) ?? results[0];
  const fates = new Map((shown?.ledger ?? []).filter((/** @type {any} */ entry) => entry.source).map((/** @type {any} */ entry) => [entry.source, entry]));
  return html`<section>
    <div class="head"><h1>Translate</h1>
      <select aria-label="dialect" value=${from} onChange=${pick}>${DIALECTS.map((name) => html`<option value=${name}>${name}</option>`)}</select>
      <select aria-label="kind" value=${kind} onChange=${(/** @type {any} */ event) => setKind(event.target.value)}><option value="request">request</option><option value="response">response</option><option value="error">error</option></select>
      <label class="dim"><input type="checkbox" checked=${isStrict} onChange=${() => setStrict(!isStrict)} /> reject losses</label>
      <${ActionButton} class="primary" act=${translate} disabled=${Boolean(problem)}>Translate<//>
      <span class="grow"></span>
      <${Commands} abp=${`abp translate --from ${from} --to ${shown?.to ?? 'claude'} request.json`} path="/v1/translate/all" body=${{ from, kind, document }} />
    </div>
    <div class="translation">
      <div>
        <textarea class="editor" aria-label="document" rows="18" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
        ${problem && html`<p class="action-error" role="alert">${problem}</p>`}
        ${!problem && shown && html`<div class="out"><h2>What becomes of it in ${shown.to}</h2><pre class="json" tabindex="0" aria-label="the source, field by field">${coloured(document, fates, 'source')}</pre></div>`}
      </div>
      <div class="outs">${results.map((result) => html`<article class="out" aria-label=${result.to}>
        <h2><button class="link" aria-pressed=${shown === result} onClick=${() => setChosen(result.to)}>${result.to}</button>
          ${result.failure ? html`<${State} state="refused" tone="bad" />` : html`<${State} state=${result.fidelity === 'lossy_labeled' ? 'lossy, labelled' : result.fidelity} tone=${result.fidelity === 'lossless' ? 'good' : result.fidelity === 'unsupported' ? 'bad' : 'warn'} />`}
          <span class="grow"></span>${result.output && html`<${CopyButton} text=${JSON.stringify(result.output, null, 2)} />`}</h2>
        ${result.failure ? html`<p class="pad"><code>${result.failure.code}</code> <${AgentText} text=${result.failure.message} /></p>` : html`<pre class="json" tabindex="0" aria-label=${`the document in ${result.to}`}>${coloured(result.output, new Map(result.ledger.filter((/** @type {any} */ entry) => entry.target).map((/** @type {any} */ entry) => [entry.target, entry])), 'target')}</pre>`}
        ${losses(result).length > 0 && html`<ul>${losses(result).map((entry) => html`<li><${State} state=${entry.action} tone=${entry.action === 'dropped' ? 'bad' : 'warn'} /> <code>${entry.source ?? entry.target}</code> <span class="dim">${entry.reason ?? ''}</span></li>`)}</ul>`}
      </article>`)}</div>
    </div>
  </section>`;
}

/** @param {any} result @returns {any[]} */
function losses(result) {
  return result.ledger.filter((/** @type {any} */ entry) => ['dropped', 'degraded', 'emulated'].includes(entry.action) || (entry.action === 'synthesised' && entry.label !== 'structure'));
}

/** @type {Record<string, string>} */
const FATES = { dropped: 'lost', degraded: 'changed', emulated: 'changed', synthesised: 'changed', renamed: 'kept', kept: 'kept' };

/**
 * A document as indented JSON whose fields have the colour of what became of them.
 * @param {any} value @param {Map<string, any>} fates @param {'source'|'target'} side
 */
function coloured(value, fates, side, pointer = '', depth = 0, fate = '') {
  const entry = fates.get(pointer);
  const own = entry ? (entry.label === 'structure' ? 'kept' : FATES[entry.action] ?? '') : fate;
  const pad = '  '.repeat(depth + 1);
  const close = '  '.repeat(depth);
  /** @type {any} */
  let body;
  if (value !== null && typeof value === 'object') {
    const isList = Array.isArray(value);
    const keys = Object.keys(value);
    body = keys.length === 0 ? (isList ? '[]' : '{}') : [isList ? '[' : '{', keys.map((key, i) => {
      const escaped = key.replaceAll('~', '~0').replaceAll('/', '~1');
      return ['\n', pad, isList ? '' : `${JSON.stringify(key)}: `, coloured(value[key], fates, side, `${pointer}/${escaped}`, depth + 1, own), i < keys.length - 1 ? ',' : ''];
    }), '\n', close, isList ? ']' : '}'];
  } else {
    body = html`<${AgentText} text=${JSON.stringify(value)} step=${2000} />`;
  }
  if (!entry || own === 'kept') return body;
  const about = `${entry.action}${entry.reason ? `: ${entry.reason}` : ''}`;
  return html`<span class=${own} title=${about}>${body}</span>`;
}
