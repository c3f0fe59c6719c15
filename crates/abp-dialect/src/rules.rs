//! What a target asks of every request, whatever dialect the request comes from.
//!
//! The translation hub makes the representation obey these rules before the target's codec writes
//! it, so that a codec only has to know its own form.

/// The shape of names that a target accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameRule {
    /// The longest name.
    pub max_length: usize,
    /// Whether a name has to start with a letter or an underscore.
    pub letter_first: bool,
    /// What a name may hold besides letters, digits and `_`.
    pub also: &'static str,
}

impl NameRule {
    /// Whether a name is accepted.
    #[must_use]
    pub fn accepts(&self, name: &str) -> bool {
        let inside = |letter: char| {
            letter.is_ascii_alphanumeric() || letter == '_' || self.also.contains(letter)
        };
        let starts =
            |letter: char| !self.letter_first || letter.is_ascii_alphabetic() || letter == '_';
        name.len() <= self.max_length
            && name.chars().next().is_some_and(starts)
            && name.chars().all(inside)
    }
}

/// The ids of calls that a target accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRule {
    /// Whether every call and every answer needs an id.
    pub required: bool,
    /// The shape of an id; `None` where any text will do.
    pub shape: Option<NameRule>,
}

/// What a target does with instructions in the middle of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MidSystem {
    /// Takes them where they are.
    Kept,
    /// Takes instructions at the start only: later ones become a user's text, marked as what they
    /// are.
    UserText,
    /// Takes instructions outside the conversation only: later ones move there.
    Hoisted,
}

/// What a target asks of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialectRules {
    /// The names of tools.
    pub tool_name: NameRule,
    /// The ids of calls.
    pub tool_id: IdRule,
    /// Whether there is a role for developers besides that for the system.
    pub developer_role: bool,
    /// Where instructions may stand.
    pub mid_system: MidSystem,
    /// Whether the conversation has to start with the user.
    pub user_first: bool,
    /// Whether an assistant's message at the end is continued.
    pub prefill: bool,
    /// Whether tools that take free text exist.
    pub custom_tools: bool,
    /// Whether every call has to be followed by its answer.
    pub answered_calls: bool,
    /// Whether tools have to be defined where the conversation has calls.
    pub defined_tools: bool,
    /// Whether an answer has to name its tool.
    pub named_results: bool,
    /// Whether a request can name texts at which the answer stops.
    pub stop_sequences: bool,
}
