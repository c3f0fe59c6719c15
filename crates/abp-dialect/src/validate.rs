//! Checking a document for what its vendor would refuse.
//!
//! The checks are structural and cheap: what has to be there, of which kind known members are, and
//! the names of tools. Unknown members are fine, and `null` is as good as absent. A document without
//! an error may still be refused; one with an error would be.

mod chat;
mod findings;
mod generate_content;
mod messages;
mod responses;

use std::fmt;

use abp_json::View;

use crate::{Dialect, DocumentKind, NameRule, WireFamily};
use findings::Findings;

/// Checks documents of a dialect.
#[derive(Debug, Clone, Copy)]
pub struct DialectValidator {
    dialect: Dialect,
    tool_name: NameRule,
}

/// Something wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// How bad it is.
    pub severity: IssueSeverity,
    /// What it is.
    pub problem: IssueProblem,
}

/// How bad an issue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueSeverity {
    /// Some vendors take it, or will.
    Warning,
    /// The vendor refuses it.
    Error,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueProblem {
    /// It has to be there.
    Missing,
    /// It is of the wrong kind.
    WrongKind {
        /// The right one.
        expected: &'static str,
    },
    /// It has to hold something.
    Empty,
    /// No tool can be called that.
    ToolName(String),
    /// The vendor does not know the word.
    UnknownWord(String),
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.pointer, self.problem)
    }
}

impl fmt::Display for IssueProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::WrongKind { expected } => write!(f, "should be {expected}"),
            Self::Empty => f.write_str("is empty"),
            Self::ToolName(name) => write!(f, "is no name for a tool: {name:?}"),
            Self::UnknownWord(word) => write!(f, "is no word of this dialect: {word:?}"),
        }
    }
}

impl DialectValidator {
    /// A validator for a dialect whose tools are named by a rule.
    #[must_use]
    pub fn new(dialect: Dialect, tool_name: NameRule) -> Self {
        Self { dialect, tool_name }
    }

    /// Checks a document, and tells what is wrong with it in the order of the document's parts.
    #[must_use]
    pub fn validate(&self, kind: DocumentKind, document: View<'_>) -> Vec<Issue> {
        let mut findings = Findings::new(self.tool_name);
        let check = match self.dialect.family() {
            WireFamily::Chat => chat::check,
            WireFamily::Responses => responses::check,
            WireFamily::Messages => messages::check,
            WireFamily::GenerateContent => generate_content::check,
        };
        check(kind, document, &mut findings);
        findings.into_issues()
    }
}
