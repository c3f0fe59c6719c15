// The configuration of the server under test: scripted backends that do what agents do.

const usage = (input, output, cost) => ({ do: 'usage', usage: { input_tokens: input, output_tokens: output, cache_read_tokens: null, cache_write_tokens: null, request_units: null, estimated_cost_usd: cost } });
const emit = (event) => ({ do: 'emit', event });

/** A character that turns the text after it around, written as an escape so that no editor shows it. */
export const BIDI = '\u202e';
const SCRIPT = '<script>document.title="pwned";fetch("https://evil.example/")</script><img src=x onerror="document.title=\'pwned\'">';
export const HOSTILE_TEXTS = [
  SCRIPT,
  '[click me](javascript:document.title="pwned") and ![pixel](https://evil.example/pixel.png) and [fine](https://example.com/a)',
  '<a href="javascript:alert(1)">x</a><iframe src="https://evil.example"></iframe><style>*{display:none}</style>',
  `invoice${BIDI}gpj.exe and a zero\u200bwidth and a bell\u0007`,
  '"><svg onload=alert(1)> {{constructor.constructor("alert(1)")()}} ${alert(1)}',
];

/** The host refuses names with control characters before any page sees them. */
const toolName = (text) => text.slice(0, 60).replace(/[^\x20-\x7e]/g, '');

export const CONFIGURATION = (stage) => [
  `[server]\nroots = [${JSON.stringify(stage.project)}]\n`,
  stage.script('writer', [
    { do: 'think', text: 'I should look at the project first, then change the greeting.' },
    { do: 'say', text: 'I will change **greeting.txt** and add notes:\n\n- read the file\n- write both\n' },
    { do: 'read', path: 'greeting.txt' },
    emit({ type: 'plan_updated', entries: [{ content: 'Read the project', status: 'completed' }, { content: 'Change the greeting', status: 'in_progress' }, { content: 'Write notes', status: 'pending' }] }),
    usage(1200, 300, 0.0123),
    { do: 'write', path: 'greeting.txt', content: 'hello\nbrave new world\n' },
    usage(2600, 620, 0.0261),
    { do: 'write', path: 'notes.md', content: '# Notes\n\n- changed the greeting\n' },
    emit({ type: 'command_executed', command: 'cargo test --quiet', exit_code: 0, output_preview: 'test result: ok. 12 passed' }),
    { do: 'say', text: 'Done: `greeting.txt` changed and `notes.md` written.' },
  ]),
  stage.script('slow', [
    ...Array.from({ length: 12 }, (_, i) => [{ do: 'say', text: `step ${i} of twelve\n` }, { do: 'sleep', ms: 400 }]).flat(),
    { do: 'say', text: 'the end of twelve' },
  ]),
  stage.script('endless', [{ do: 'say', text: 'waiting' }, { do: 'sleep', ms: 60_000 }]),
  stage.script('hostile', [
    ...HOSTILE_TEXTS.map((text) => ({ do: 'say', text })),
    ...HOSTILE_TEXTS.map((text) => ({ do: 'think', text })),
    ...HOSTILE_TEXTS.flatMap((text) => [
      emit({ type: 'command_executed', command: text, exit_code: 1, output_preview: text }),
      emit({ type: 'warning', message: text }),
      emit({ type: 'error', message: text }),
      emit({ type: 'tool_call', tool_name: toolName(text), tool_use_id: `t${text.length}`, parent_tool_use_id: null, input: { path: text, html: text } }),
      emit({ type: 'tool_result', tool_name: toolName(text), tool_use_id: `t${text.length}`, output: { content: [{ type: 'text', text }, { type: 'image', mimeType: 'image/png', data: 'bm90IGFuIGltYWdl' }, { type: 'image', mimeType: 'image/svg+xml', data: 'PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+' }, { type: 'image', mimeType: 'image/png', data: '"><script>alert(1)</script>' }] }, is_error: true }),
      emit({ type: 'content_block', block_type: text.slice(0, 40), data: { html: text } }),
      emit({ type: 'plan_updated', entries: [{ content: text, status: text.slice(0, 20) }] }),
      emit({ type: 'session_started', session_id: text }),
    ]),
    { do: 'write', path: `a${BIDI}txt.exe<img src=x onerror=alert(1)>`, content: `${SCRIPT}\n${BIDI}reversed\n` },
    { do: 'say', text: 'the hostile end' },
  ]),
  ...(stage.isBench ? [stage.script('crowd', Array.from({ length: 100_000 }, (_, i) => emit(i % 3 ? { type: 'warning', message: `event ${i} of a crowd` } : { type: 'command_executed', command: `make target-${i}`, exit_code: i % 2, output_preview: `line ${i}` })))] : []),
  stage.script('huge', [
    { do: 'say', text: 'before the line' },
    emit({ type: 'command_executed', command: 'cat everything', exit_code: 0, output_preview: 'x'.repeat(10_000_000) }),
    { do: 'say', text: 'after the line' },
  ]),
].join('\n');
