//! Making a conversation fit the target's rules.
//!
//! What every target asks in its own measure (names, ids, roles, answers to calls) is done here, on
//! the representation, once for all dialects. Each change leaves a remark or a value that says it was
//! made.

mod ids;
mod names;
mod order;
mod tools;

use abp_core::ir::{IrConversation, Origin};
use abp_dialect::{Dialect, DialectRules, Exchange, Fate, How, Note, Reader, WireFamily};

/// Settings without which a request is another one: they bring in conversations, tools or resources
/// that the vendor keeps, or change how the answer is given.
const ESSENTIAL: [(WireFamily, &[&str]); 4] = [
    (WireFamily::Chat, &["web_search_options"]),
    (
        WireFamily::Responses,
        &[
            "previous_response_id",
            "conversation",
            "prompt",
            "background",
        ],
    ),
    (WireFamily::Messages, &["container", "mcp_servers"]),
    (
        WireFamily::GenerateContent,
        &["cachedContent", "cached_content"],
    ),
];

/// Remarks on settings that only the source's vendor can honour, and that cannot be done without.
pub(crate) fn refuse_essential(conversation: &IrConversation, from: Dialect) -> Vec<Note> {
    let names = ESSENTIAL
        .iter()
        .find(|(family, _)| *family == from.family())
        .map_or(&[][..], |(_, names)| names);
    conversation
        .settings
        .vendor
        .iter()
        .filter(|field| names.contains(&field.name.as_str()))
        .filter(|field| field.value.text() != "false")
        .map(|field| Note {
            origin: field.value.origin,
            fate: Fate::Unsupported {
                label: field.name.clone().into(),
                reason: "only the vendor of the source can honour it".into(),
            },
        })
        .collect()
}

/// Makes a conversation fit, and returns what its answer has to undo.
pub fn prepare(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    reader: Option<&Reader<'_>>,
) -> (Exchange, Vec<Note>) {
    let mut fit = Fit {
        reader,
        notes: Vec::new(),
        exchange: Exchange {
            legacy_functions: conversation.settings.legacy_functions,
            include_usage: Some(
                conversation
                    .settings
                    .include_usage
                    .as_ref()
                    .is_some_and(|asked| asked.value),
            ),
            ..Exchange::default()
        },
    };
    order::place_instructions(conversation, rules, &mut fit);
    order::start_and_end(conversation, rules, &mut fit);
    tools::without_custom_tools(conversation, rules, &mut fit);
    ids::pair_calls_and_answers(conversation, rules, &mut fit);
    tools::define_called_tools(conversation, rules);
    names::fit_names(conversation, rules, &mut fit);
    (fit.exchange, fit.notes)
}

/// What is collected on the way.
#[derive(Debug)]
struct Fit<'r> {
    reader: Option<&'r Reader<'r>>,
    notes: Vec<Note>,
    exchange: Exchange,
}

impl Fit<'_> {
    fn carried(&mut self, origin: Origin, how: How) {
        self.remark(origin, Fate::Carried(how));
    }

    fn unsupported(&mut self, origin: Origin, label: &'static str, reason: &'static str) {
        let (label, reason) = (label.into(), reason.into());
        self.remark(origin, Fate::Unsupported { label, reason });
    }

    fn remark(&mut self, origin: Origin, fate: Fate) {
        if matches!(origin, Origin::Node(_)) {
            self.notes.push(Note { origin, fate });
        }
    }

    /// A member of a part of the source; the part itself where it has none of that name.
    fn member(&self, origin: Origin, key: &str) -> Origin {
        let Origin::Node(node) = origin else {
            return origin;
        };
        let member = self
            .reader
            .and_then(|reader| reader.tape().view(node)?.get(key));
        member.map_or(origin, |view| Origin::Node(view.id()))
    }
}
