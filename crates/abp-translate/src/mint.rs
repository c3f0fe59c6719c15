//! What an answer lacks that its vendor does not give: ids of its own and of its calls, its model, its
//! time.
//!
//! A caller answers a call by its id, and goes on from an answer by its id; what is kept for later turns
//! is found by them. So an id must be that call's or that answer's alone: a call's is the answer's own
//! with the call's number.

use abp_core::ir::{IrBlockStart, IrContentBlock, IrDelta, IrResponse, Leaf, Origin, RawJson};
use abp_dialect::{DialectRules, EventSink, Expected, Fate};

/// How much of the answer's id is taken over: the shortest limit that a vendor sets is 40 for all of it.
const LONGEST: usize = 28;

/// Gives an answer what it lacks: what is expected of it, and ids to its calls where the target asks for
/// ids.
pub(crate) fn complete(response: &mut IrResponse, rules: &DialectRules, expected: &Expected) {
    let mut minting = Minting::new(rules, expected);
    let IrResponse {
        id, model, created, ..
    } = response;
    minting.begin(id, model, created);
    let messages = response.choices.iter_mut();
    let blocks = messages.flat_map(|choice| &mut choice.message.content);
    for block in blocks {
        if let IrContentBlock::ToolUse { id, .. } = &mut block.body {
            minting.mint(id);
        }
    }
}

/// Gives a streamed answer what it lacks, piece by piece.
#[derive(Debug)]
pub(crate) struct Minting {
    required: bool,
    expected: Expected,
    started: bool,
    /// Its id.
    answer: String,
    number: u32,
}

impl Minting {
    pub(crate) fn new(rules: &DialectRules, expected: &Expected) -> Self {
        Self {
            required: rules.tool_id.required,
            // What is repeated of the request is the writer's matter.
            expected: Expected {
                echo: Vec::new(),
                ..expected.clone()
            },
            started: false,
            answer: String::new(),
            number: 0,
        }
    }

    /// The pieces with a start before everything else, and only one: a source may forget it, or come to
    /// it late, when the answer has another id already.
    pub(crate) fn with_start(
        &mut self,
        mut deltas: Vec<IrDelta>,
        out: &mut EventSink<'_>,
    ) -> Vec<IrDelta> {
        let is_start = |delta: &IrDelta| matches!(delta, IrDelta::Start { .. });
        let is_answer = |delta: &IrDelta| !matches!(delta, IrDelta::Ping | IrDelta::Error(_));
        if !self.started
            && let Some(first) = deltas.iter().position(is_answer)
            && !deltas.get(first).is_some_and(is_start)
        {
            let start = IrDelta::Start {
                id: None,
                model: None,
                created: None,
                vendor: Vec::new(),
            };
            deltas.insert(first, start);
        }
        deltas.retain(|delta| {
            let is_late = is_start(delta) && std::mem::replace(&mut self.started, true);
            if is_late {
                leave_out(delta, out);
            }
            !is_late
        });
        deltas
    }

    /// Gives what the answer lacks that begins here, or an id to the call that does.
    pub(crate) fn delta(&mut self, delta: &mut IrDelta) {
        match delta {
            IrDelta::Start {
                id, model, created, ..
            } => self.begin(id, model, created),
            IrDelta::BlockStart {
                start: IrBlockStart::ToolUse { id, .. },
                ..
            } => self.mint(id),
            _ => {}
        }
    }

    fn begin(
        &mut self,
        id: &mut Option<Leaf<String>>,
        model: &mut Option<Leaf<String>>,
        created: &mut Option<Leaf<RawJson>>,
    ) {
        let Expected {
            id: own,
            created: now,
            model: asked,
            echo: _,
        } = &mut self.expected;
        supply(id, own.take(), "response_id");
        supply(model, asked.take(), "model_asked");
        supply(created, now.take().map(RawJson::from), "created_here");
        self.answer = id.as_ref().map_or_else(String::new, |id| id.value.clone());
    }

    fn mint(&mut self, id: &mut Option<Leaf<String>>) {
        let number = self.number;
        self.number += 1;
        if id.is_some() || !self.required {
            return;
        }
        let is_plain =
            |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let plain = self.answer.chars().filter(is_plain);
        let minted = match plain.take(LONGEST).collect::<String>().as_str() {
            "" => format!("call_{number}"),
            answer => format!("call_{answer}_{number}"),
        };
        *id = Some(Leaf::new(minted, Origin::Made("minted_tool_id")));
    }
}

/// Says what becomes of a start that comes when the answer has begun.
fn leave_out(start: &IrDelta, out: &mut EventSink<'_>) {
    let IrDelta::Start {
        id,
        model,
        created,
        vendor,
    } = start
    else {
        return;
    };
    let origins = [
        id.as_ref().map(|leaf| leaf.origin),
        model.as_ref().map(|leaf| leaf.origin),
        created.as_ref().map(|leaf| leaf.origin),
    ];
    let vendor = vendor.iter().map(|field| field.value.origin);
    for origin in origins.into_iter().flatten().chain(vendor) {
        out.remark(
            origin,
            Fate::Dropped {
                label: "late_start".into(),
                reason: "the answer had begun by then".into(),
            },
        );
    }
}

/// Puts in what is missing.
fn supply<T>(leaf: &mut Option<Leaf<T>>, known: Option<T>, label: &'static str) {
    if leaf.is_none() {
        *leaf = known.map(|known| Leaf::new(known, Origin::Made(label)));
    }
}
