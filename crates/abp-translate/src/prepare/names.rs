//! Names of tools that the target does not take.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use abp_core::ir::{IrContentBlock, IrConversation, IrToolChoiceMode, IrToolKind, Leaf, Origin};
use abp_dialect::{DialectRules, How, NameRule};
use sha2::{Digest, Sha256};

use super::Fit;

/// Renames tools everywhere they are named, and remembers how to undo it.
pub(super) fn fit_names(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    fit: &mut Fit<'_>,
) {
    let mut names = NameMap::new(rules.tool_name);
    for name in source_names(conversation) {
        names.reserve(name);
    }
    let mut renamed = Vec::new();
    let mut rename = |leaf: &mut Leaf<String>| {
        if let Some(fitting) = names.fitting(&leaf.value) {
            renamed.push(leaf.origin);
            leaf.value = fitting;
            return true;
        }
        false
    };
    for tool in &mut conversation.tools {
        let ours = !matches!(tool.kind, IrToolKind::Server { .. });
        if ours && rename(&mut tool.name) {
            tool.origin = Origin::Host;
        }
    }
    for message in &mut conversation.messages {
        let mut changed = false;
        for block in &mut message.content {
            changed |= match &mut block.body {
                IrContentBlock::ToolUse { name, .. } => rename(name),
                IrContentBlock::ToolResult {
                    name: Some(name), ..
                } => rename(name),
                _ => false,
            };
        }
        if changed {
            message.origin = Origin::Host;
        }
    }
    if let Some(choice) = &mut conversation.settings.tool_choice {
        match &mut choice.mode {
            IrToolChoiceMode::Named { name } => {
                rename(name);
            }
            IrToolChoiceMode::Allowed { names, .. } => {
                for name in names {
                    rename(name);
                }
            }
            _ => {}
        }
    }
    for origin in renamed {
        fit.carried(origin, How::Converted("tool_name_mapped"));
    }
    fit.exchange.tool_names = names.undo();
}

/// Every name of the source: one that is only called, or only chosen, is no free name either.
fn source_names(conversation: &IrConversation) -> impl Iterator<Item = &str> {
    let tools = conversation.tools.iter().map(|tool| tool.name.as_str());
    let blocks = conversation
        .messages
        .iter()
        .flat_map(|message| &message.content);
    let used = blocks.filter_map(|block| match &block.body {
        IrContentBlock::ToolUse { name, .. } => Some(name.as_str()),
        IrContentBlock::ToolResult { name, .. } => name.as_ref().map(|name| name.as_str()),
        _ => None,
    });
    let mode = conversation.settings.tool_choice.as_ref();
    let chosen = match mode.map(|choice| &choice.mode) {
        Some(IrToolChoiceMode::Named { name }) => std::slice::from_ref(name),
        Some(IrToolChoiceMode::Allowed { names, .. }) => names.as_slice(),
        _ => &[],
    };
    tools
        .chain(used)
        .chain(chosen.iter().map(|name| name.as_str()))
}

/// A bijection between names as they are and names that fit.
#[derive(Debug)]
pub(super) struct NameMap {
    rule: NameRule,
    fitting: BTreeMap<String, String>,
    taken: BTreeMap<String, String>,
}

impl NameMap {
    pub(super) fn new(rule: NameRule) -> Self {
        Self {
            rule,
            fitting: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// Keeps a name that fits from being given to another.
    pub(super) fn reserve(&mut self, name: &str) {
        if self.rule.accepts(name) {
            self.taken.insert(name.to_owned(), name.to_owned());
        }
    }

    /// The fitting name, where the name itself does not fit.
    pub(super) fn fitting(&mut self, name: &str) -> Option<String> {
        if self.rule.accepts(name) {
            return None;
        }
        if let Some(known) = self.fitting.get(name) {
            return Some(known.clone());
        }
        let fitting = (0_u32..)
            .map(|attempt| fitting_name(name, &self.rule, attempt))
            .find(|candidate| !self.taken.contains_key(candidate))
            .unwrap_or_default();
        self.taken.insert(fitting.clone(), name.to_owned());
        self.fitting.insert(name.to_owned(), fitting.clone());
        Some(fitting)
    }

    /// The fitting names with the names they stand for.
    pub(super) fn undo(self) -> BTreeMap<String, String> {
        self.fitting
            .into_iter()
            .map(|(name, fitting)| (fitting, name))
            .collect()
    }
}

/// A readable part of the name, and a piece of its hash that keeps it apart from its likes.
fn fitting_name(name: &str, rule: &NameRule, attempt: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(name.as_bytes());
    hash.update(attempt.to_le_bytes());
    let mut suffix = String::from("_");
    for byte in hash.finalize().iter().take(4) {
        // Writing to a string cannot fail.
        let _ = write!(suffix, "{byte:02x}");
    }
    let mut readable: String = name
        .chars()
        .map(|letter| match letter {
            '_' => '_',
            letter if letter.is_ascii_alphanumeric() || rule.also.contains(letter) => letter,
            _ => '_',
        })
        .collect();
    if rule.letter_first && !readable.starts_with(|first: char| first.is_ascii_alphabetic()) {
        readable.insert(0, 't');
    }
    readable.truncate(rule.max_length.saturating_sub(suffix.len()));
    readable + &suffix
}
