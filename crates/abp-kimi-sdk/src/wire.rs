//! Kimi's words: its members, its models, the form of its ids and files.

/// Members of a request that OpenAI has in the same meaning.
pub(crate) const REQUEST_MEMBERS: &[&str] = &["prompt_cache_key", "safety_identifier"];

/// Members of a message besides its content.
pub(crate) const MESSAGE_MEMBERS: &[&str] = &["name", PARTIAL];

/// The member that says: go on with this answer.
pub(crate) const PARTIAL: &str = "partial";

/// Tools that Kimi carries out itself.
pub(crate) const SERVER_TOOLS: &[&str] = &["builtin_function"];

/// The word for too many requests of everybody; its status, 429, says that one caller asks too often.
pub(crate) const OVERLOADED: &str = "engine_overloaded_error";

/// The scheme of files that were uploaded to Kimi.
const FILE_SCHEME: &str = "ms://";

/// Whether an address names a file that Kimi keeps.
pub(crate) fn is_kept_file(address: &str) -> bool {
    address.starts_with(FILE_SCHEME)
}

/// The kinds of models; they differ in what a request may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// It never thinks.
    Classic,
    /// It always thinks.
    Thinking,
    /// It thinks unless told not to, and its sampling is fixed.
    Switchable,
    /// Like the one before; besides, it may be told that it has to call some tool.
    Third,
    /// Nobody knows.
    Other,
}

impl Model {
    /// The kind that a name stands for, whatever route a gateway puts before it.
    pub(crate) fn of(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if starts(&["kimi-k2-thinking", "kimi-thinking"]) {
            Self::Thinking
        } else if starts(&["kimi-k2."]) {
            Self::Switchable
        } else if starts(&["kimi-k3"]) {
            Self::Third
        } else if starts(&["moonshot-v1", "kimi-latest", "kimi-k2-0", "kimi-k2-turbo"]) {
            Self::Classic
        } else {
            Self::Other
        }
    }
}

/// The id of a call as the models write it themselves: they get worse with any other.
pub(crate) fn call_id(tool: &str, number: usize) -> String {
    format!("functions.{tool}:{number}")
}

/// Whether an id has the models' own form.
pub(crate) fn is_call_id(id: &str) -> bool {
    let parts = id
        .strip_prefix("functions.")
        .and_then(|rest| rest.rsplit_once(':'));
    parts.is_some_and(|(tool, number)| {
        !tool.is_empty() && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}
