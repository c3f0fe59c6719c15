//! Whether the work of a translation grows with its document, or faster.
//!
//! Whoever writes a document decides how much there is of each kind of thing in it. So for each kind
//! there is a document with many, and one with eight times as many: an item must not cost much more in
//! the longer one. `serde_json` reading and printing both is the floor: some of the growth is the memory's.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, StreamTranslator, translate_request, translate_response};
use anyhow::{Result, ensure};
use serde_json::Value;

use crate::output::say;

const FEW: usize = 2_000;
const TIMES: usize = 8;
const ROUNDS: usize = 3;
/// How many times as much an item may cost in the longer document. Where every item looks at every other,
/// it is eight times.
const BAR: f64 = 3.0;

/// Documents with any number of one kind of thing.
struct Shape {
    name: &'static str,
    from: Dialect,
    kind: Kind,
    /// What is around the items, which stand at every `@`.
    around: &'static str,
    /// One text for each `@`; `#` is the number of an item, `~` the number counted from the end.
    items: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Answer,
    /// Each line is an event.
    Stream,
}

const fn shape(
    name: &'static str,
    from: Dialect,
    kind: Kind,
    around: &'static str,
    items: &'static [&'static str],
) -> Shape {
    Shape {
        name,
        from,
        kind,
        around,
        items,
    }
}

const SHAPES: &[Shape] = &[
    shape(
        "turns",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[@]}"#,
        &[r#"{"role":"user","content":"x"},{"role":"assistant","content":"y"}"#],
    ),
    shape(
        "messages of one role",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[@]}"#,
        &[r#"{"role":"user","content":"x"}"#],
    ),
    shape(
        "late instructions",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"},@]}"#,
        &[r#"{"role":"user","content":"x"},{"role":"system","content":"y"}"#],
    ),
    shape(
        "calls, each with its answer",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[@]}"#,
        &[
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c.#","type":"function","function":{"name":"f.#","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c.#","content":"r"}"#,
        ],
    ),
    shape(
        "calls with one id",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[@]}"#,
        &[
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}"#,
        ],
    ),
    shape(
        "calls nobody answered",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[@]}"#,
        &[
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c#","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"x"}"#,
        ],
    ),
    shape(
        "answers in another order",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[@]},@]}"#,
        &[
            r#"{"id":"c#","type":"function","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"role":"tool","tool_call_id":"c~","content":"r"}"#,
        ],
    ),
    shape(
        "answers found by name",
        Dialect::Gemini,
        Kind::Request,
        r#"{"contents":[{"role":"model","parts":[@]},{"role":"user","parts":[@]}]}"#,
        &[
            r#"{"functionCall":{"name":"f#","args":{}}}"#,
            r#"{"functionResponse":{"name":"f~","response":{}}}"#,
        ],
    ),
    shape(
        "answers without calls",
        Dialect::Codex,
        Kind::Request,
        r#"{"model":"m","input":[@]}"#,
        &[r#"{"type":"function_call_output","call_id":"c#","output":"r"}"#],
    ),
    shape(
        "items",
        Dialect::Codex,
        Kind::Request,
        r#"{"model":"m","input":[@]}"#,
        &[
            r#"{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c#","output":"r"}"#,
        ],
    ),
    shape(
        "tools",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[@]}"#,
        &[
            r#"{"type":"function","function":{"name":"f.#","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"g#"}}"#,
        ],
    ),
    shape(
        "tools that are allowed",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[@],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[@]}}}"#,
        &[
            r#"{"type":"function","function":{"name":"f#","parameters":{"type":"object"}}}"#,
            r#"{"type":"function","function":{"name":"f~"}}"#,
        ],
    ),
    shape(
        "members nobody knows",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"metadata":{@},@}"#,
        &[r##""k#":"v""##, r##""x#":1"##],
    ),
    shape(
        "a schema's properties",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{@}}}}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{@}}}}}"#,
        &[
            r##""k#":{"type":"string"}"##,
            r##""k#":{"type":["string","null"]}"##,
        ],
    ),
    shape(
        "stop sequences",
        Dialect::OpenAi,
        Kind::Request,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"stop":[@]}"#,
        &[r##""s#""##],
    ),
    shape(
        "blocks of a message",
        Dialect::Claude,
        Kind::Request,
        r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[@]},{"role":"assistant","content":[@]}]}"#,
        &[
            r#"{"type":"text","text":"x"}"#,
            r#"{"type":"thinking","thinking":"x","signature":"s"}"#,
        ],
    ),
    shape(
        "choices",
        Dialect::OpenAi,
        Kind::Answer,
        r#"{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[@]}"#,
        &[r#"{"index":#,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}"#],
    ),
    shape(
        "calls in an answer",
        Dialect::Claude,
        Kind::Answer,
        r#"{"id":"x","type":"message","role":"assistant","model":"m","content":[@],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}"#,
        &[r#"{"type":"text","text":"x"},{"type":"tool_use","id":"t#","name":"f","input":{}}"#],
    ),
    shape(
        "parts of an answer",
        Dialect::Gemini,
        Kind::Answer,
        r#"{"candidates":[{"content":{"role":"model","parts":[@]},"finishReason":"STOP"}]}"#,
        &[r#"{"text":"x"},{"text":"y","thought":true},{"functionCall":{"name":"f#","args":{}}}"#],
    ),
    shape(
        "pieces of a text",
        Dialect::OpenAi,
        Kind::Stream,
        "@\n[DONE]",
        &[r#"{"id":"x","choices":[{"index":0,"delta":{"content":"x#"}}]}"#],
    ),
    shape(
        "calls in a stream",
        Dialect::OpenAi,
        Kind::Stream,
        "@\n[DONE]",
        &[
            r#"{"id":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":#,"id":"c#","function":{"name":"f","arguments":"{}"}}]}}]}"#,
        ],
    ),
    shape(
        "calls that are said in turns",
        Dialect::OpenAi,
        Kind::Stream,
        "@\n@\n[DONE]",
        &[
            r#"{"id":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":#,"id":"c#","function":{"name":"f","arguments":"{"}}]}}]}"#,
            r#"{"id":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":~,"function":{"arguments":"}"}}]}}]}"#,
        ],
    ),
    shape(
        "choices in a stream",
        Dialect::OpenAi,
        Kind::Stream,
        "@\n[DONE]",
        &[r#"{"id":"x","choices":[{"index":#,"delta":{"content":"x"}}]}"#],
    ),
    shape(
        "open blocks",
        Dialect::Claude,
        Kind::Stream,
        "{\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n@\n@\n{\"type\":\"message_stop\"}",
        &[
            r#"{"type":"content_block_start","index":#,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":~,"delta":{"type":"text_delta","text":"x"}}"#,
        ],
    ),
    shape(
        "blocks one after the other",
        Dialect::Claude,
        Kind::Stream,
        "{\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n@\n{\"type\":\"message_stop\"}",
        &[concat!(
            r#"{"type":"content_block_start","index":#,"content_block":{"type":"text","text":""}}"#,
            "\n",
            r#"{"type":"content_block_delta","index":#,"delta":{"type":"text_delta","text":"x"}}"#,
            "\n",
            r#"{"type":"content_block_stop","index":#}"#,
        )],
    ),
    shape(
        "parts of a stream",
        Dialect::Gemini,
        Kind::Stream,
        "@",
        &[
            r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f#","args":{}}},{"text":"x"}]}}]}"#,
        ],
    ),
    shape(
        "items of a stream",
        Dialect::Codex,
        Kind::Stream,
        "@",
        &[concat!(
            r#"{"type":"response.output_item.added","output_index":#,"item":{"type":"function_call","id":"f#","call_id":"c#","name":"f","arguments":""}}"#,
            "\n",
            r#"{"type":"response.function_call_arguments.delta","output_index":#,"item_id":"f#","delta":"{}"}"#,
            "\n",
            r#"{"type":"response.output_item.done","output_index":#,"item":{"type":"function_call","id":"f#","call_id":"c#","name":"f","arguments":"{}"}}"#,
        )],
    ),
];

impl Shape {
    fn document(&self, many: usize) -> String {
        let between = if self.kind == Kind::Stream { "\n" } else { "," };
        let mut parts = self.around.split('@');
        let mut document = parts.next().unwrap_or_default().to_owned();
        for (item, after) in self.items.iter().zip(parts) {
            for number in 0..many {
                let from_end = (many - 1 - number).to_string();
                let item = item.replace('#', &number.to_string());
                let end = if number + 1 < many { between } else { after };
                // Writing to a string cannot fail.
                let _ = write!(document, "{}{end}", item.replace('~', &from_end));
            }
        }
        document
    }

    /// The shortest time of a few that an item takes, in microseconds.
    fn time(&self, many: usize, work: impl Fn(&str)) -> f64 {
        let document = self.document(many);
        let taken = (0..ROUNDS).map(|_| {
            let started = Instant::now();
            work(&document);
            started.elapsed()
        });
        let taken = taken.min().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let many = many as f64;
        taken.as_secs_f64() * 1e6 / many
    }

    fn translate(&self, document: &str, to: Dialect) {
        let (exchange, options) = (Exchange::default(), Options::default());
        let cutting = Options {
            cut_stops: true,
            ..Options::default()
        };
        let bytes = document.as_bytes();
        match self.kind {
            Kind::Request => {
                black_box(translate_request(bytes, self.from, to, &cutting).is_ok());
            }
            Kind::Answer => {
                black_box(translate_response(bytes, self.from, to, &exchange, &options).is_ok());
            }
            Kind::Stream => {
                let translator = StreamTranslator::new(self.from, to, &exchange, &options);
                if let Ok(mut translator) = translator {
                    for event in document.lines() {
                        black_box(translator.event(None, event));
                    }
                    black_box(translator.end());
                }
            }
        }
    }
}

fn read_and_print(document: &str) {
    for line in document.lines() {
        if let Ok(value) = serde_json::from_str::<Value>(line) {
            black_box(value.to_string());
        }
    }
}

/// Measures and prints one table.
pub(crate) fn run() -> Result<()> {
    say(format_args!(
        "{:<30}{:<9}{:<9}{:>9}{:>9}{:>9}{:>9}{:>6}",
        "many", "from", "to", "µs each", "×", "serde µs", "×", "bar"
    ));
    let mut missed = 0;
    for shape in SHAPES {
        let growth = |work: &dyn Fn(&str)| {
            let (few, many) = (shape.time(FEW, work), shape.time(FEW * TIMES, work));
            (many, many / few)
        };
        let (floor, floor_grows) = growth(&read_and_print);
        let targets = Dialect::ALL.map(|to| (growth(&|text| shape.translate(text, to)), to));
        let worst = targets.into_iter();
        let worst = worst.max_by(|((_, left), _), ((_, right), _)| left.total_cmp(right));
        let Some(((each, grows), to)) = worst else {
            continue;
        };
        missed += usize::from(grows > BAR);
        say(format_args!(
            "{:<30}{:<9}{:<9}{each:>9.1}{grows:>9.2}{floor:>9.1}{floor_grows:>9.2}{:>6}{}",
            shape.name,
            shape.from.as_str(),
            to.as_str(),
            format!("≤ {BAR:.0}"),
            if grows > BAR { "  missed" } else { "" }
        ));
    }
    ensure!(
        missed == 0,
        "{missed} kinds of documents cost more for each item the more there are"
    );
    Ok(())
}
