//! Whether one value can be used, and what it means where it stands.

use std::net::IpAddr;
use std::path::{Path, PathBuf, is_separator};

use abp_core::{Capability, EmulationStrategy, MicroUsd, PolicyProfile};
use abp_emulation::default_strategy;
use abp_glob::{GlobError, GlobList};
use abp_policy::PolicyEngine;
use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Problem};
use crate::settings::Kind;
use crate::sources::home;
use crate::{Sources, address};

/// The longest name of a backend, upstream, policy or price table.
const MAX_NAME_CHARS: usize = 64;
/// The longest name of a model, and of whatever else goes to somebody else as it is.
const MAX_WORD_CHARS: usize = 200;

/// Why a value cannot be used, before anybody looked where it stands.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) problem: Problem,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Fault {
    pub(crate) fn new(problem: Problem, message: impl Into<String>) -> Self {
        Self {
            problem,
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        self.maybe_help(Some(help.into()))
    }

    fn maybe_help(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

/// A value before it is known whether it can be used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'a> {
    Text(&'a str),
    /// `None` where it does not fit.
    Integer(Option<i64>),
    Float(f64),
    /// Something that no setting with a single value takes, by the name of its type.
    Other(&'static str),
}

impl Found<'_> {
    fn type_name(self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Other(name) => name,
        }
    }
}

/// Where relative paths start. Every path of a loaded configuration is absolute: a child process in
/// another directory must not find something else under the same setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Base {
    /// An absolute directory; without one, relative paths are refused.
    directory: Option<PathBuf>,
    /// The directory that `~` stands for.
    home: Option<PathBuf>,
}

impl Base {
    /// Paths in a file start at the directory of the file.
    pub(crate) fn of_file(path: &Path, sources: &Sources) -> Self {
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = match &sources.working_dir {
            Some(working) => Some(working.join(parent)),
            None => Some(parent.to_owned()),
        };
        Self {
            directory: directory.filter(|directory| directory.is_absolute()),
            home: home(&sources.env),
        }
    }

    /// Paths in variables and flags start at the process's directory.
    pub(crate) fn of_process(sources: &Sources) -> Self {
        let working = sources.working_dir.clone();
        Self {
            directory: working.filter(|directory| directory.is_absolute()),
            home: home(&sources.env),
        }
    }
}

/// Checks a single value.
pub(crate) fn value(kind: Kind, found: Found<'_>, base: &Base) -> Result<Value, Fault> {
    match (kind, found) {
        (_, Found::Text(text)) if text.contains('\0') => {
            Err(invalid("the text contains a NUL character"))
        }
        (Kind::Text, Found::Text(text)) => Ok(json!(text)),
        (Kind::Word, Found::Text(text)) => word(text),
        (Kind::Variable, Found::Text(text)) => address::variable(text).map(|()| json!(text)),
        (Kind::Url, Found::Text(text)) => address::base_url(text).map(|()| json!(text)),
        (Kind::Proxy, Found::Text(text)) => address::proxy(text).map(|()| json!(text)),
        (Kind::HeaderName, Found::Text(text)) => address::header_name(text).map(|()| json!(text)),
        (Kind::Host, Found::Text(text)) => address::host(text).map(|()| json!(text)),
        (Kind::WebOrigin, Found::Text(text)) => address::web_origin(text).map(|()| json!(text)),
        (Kind::Choice(words), Found::Text(text)) => choice(words, text),
        (Kind::Integer { min, max, .. }, Found::Integer(number)) => match number {
            Some(number) if (min..=max).contains(&number) => Ok(json!(number)),
            Some(number) => Err(unexpected(kind, &number.to_string())),
            None => Err(unexpected(kind, "more digits than fit")),
        },
        (Kind::Dollars, Found::Float(dollars)) => dollars_value(kind, dollars),
        // Amounts that lose digits here are refused as too large.
        (Kind::Dollars, Found::Integer(Some(dollars))) => dollars_value(kind, dollars as f64),
        (Kind::Path, Found::Text(text)) => resolve(text, base),
        (Kind::Command, Found::Text(text)) => {
            if text.contains(is_separator) || text.is_empty() {
                resolve(text, base)
            } else {
                Ok(json!(text))
            }
        }
        (Kind::Address, Found::Text(text)) => text
            .parse::<IpAddr>()
            .map(|address| json!(address))
            .map_err(|_| {
                invalid(format!("{text:?} is not an IP address")).help(
                    "write an address such as 127.0.0.1 or ::1; the port is a setting of its own",
                )
            }),
        _ => Err(mismatch(kind, found)),
    }
}

/// Reads a value that was given as text, in the environment or as a flag.
pub(crate) fn text_value(kind: Kind, text: &str, base: &Base) -> Result<Value, Fault> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err(invalid("the value is not valid Unicode"));
    }
    let found = match kind {
        Kind::Integer { .. } => match text.trim().parse() {
            Ok(number) => Found::Integer(Some(number)),
            Err(_) => {
                return Err(unexpected(kind, &format!("{text:?}")));
            }
        },
        _ => Found::Text(text),
    };
    value(kind, found, base)
}

/// What is odd about a value that can be used.
pub(crate) fn doubt(kind: Kind, value: &Value) -> Option<Diagnostic> {
    let Kind::Integer { doubtful, .. } = kind else {
        return None;
    };
    let number = value.as_i64().filter(|number| *number > doubtful)?;
    let message = format!("{number} seconds is more than an hour");
    Some(Diagnostic::warning(Problem::InvalidValue, message).help("the unit is seconds"))
}

/// What a value of this kind looks like.
fn expected(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Word | Kind::Command => "a string".to_owned(),
        Kind::Variable => "the name of an environment variable as a string".to_owned(),
        Kind::Url => "an address as a string".to_owned(),
        Kind::Proxy => "the address of a proxy or \"none\"".to_owned(),
        Kind::HeaderName => "the name of a header as a string".to_owned(),
        Kind::Host => "a host as a string".to_owned(),
        Kind::WebOrigin => "the origin of a page as a string".to_owned(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::Integer { min, max, .. } => format!("an integer from {min} to {max}"),
        Kind::Dollars => "a number of dollars, zero or more".to_owned(),
        Kind::Path => "a path as a string".to_owned(),
        Kind::Address => "an IP address as a string".to_owned(),
        Kind::List(_) | Kind::Patterns => "an array of strings".to_owned(),
        Kind::Deprecated { .. } => "nothing".to_owned(),
    }
}

fn mismatch(kind: Kind, found: Found<'_>) -> Fault {
    let message = format!("expected {}, found {}", expected(kind), found.type_name());
    let wrong = Fault::new(Problem::WrongType, message);
    match (kind, found) {
        (Kind::Integer { .. } | Kind::Dollars, Found::Text(text))
            if text.parse::<f64>().is_ok() =>
        {
            wrong.help("write the number without quotes")
        }
        (Kind::List(_) | Kind::Patterns, Found::Text(text)) => {
            wrong.help(format!("write [{text:?}] for a list of one"))
        }
        _ => wrong,
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Problem::InvalidValue, message)
}

fn unexpected(kind: Kind, found: &str) -> Fault {
    invalid(format!("expected {}, found {found}", expected(kind)))
}

fn word(text: &str) -> Result<Value, Fault> {
    if text.is_empty() {
        Err(invalid("the text is empty"))
    } else if text.chars().any(char::is_control) {
        Err(invalid("the text contains a control character"))
    } else if text.chars().count() > MAX_WORD_CHARS {
        Err(invalid(format!(
            "the text is longer than {MAX_WORD_CHARS} characters"
        )))
    } else {
        Ok(json!(text))
    }
}

fn choice(words: &[&str], text: &str) -> Result<Value, Fault> {
    if words.contains(&text) {
        return Ok(json!(text));
    }
    let message = format!("{text:?} is not one of {}", words.join(", "));
    Err(invalid(message).maybe_help(did_you_mean(text, words.iter().copied())))
}

fn dollars_value(kind: Kind, dollars: f64) -> Result<Value, Fault> {
    match MicroUsd::from_dollars(dollars) {
        Some(_) => Ok(json!(dollars)),
        None => Err(unexpected(kind, &dollars.to_string())),
    }
}

/// A path as it is meant where it is written.
fn resolve(text: &str, base: &Base) -> Result<Value, Fault> {
    if text.is_empty() {
        return Err(invalid("the path is empty"));
    }
    let path = match (text.strip_prefix('~'), &base.home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with(is_separator) => {
            home.join(rest.trim_start_matches(is_separator))
        }
        (Some(_), _) => {
            return Err(invalid("`~` can only stand for your own home directory")
                .help("write the path in full"));
        }
        (None, _) if Path::new(text).is_absolute() => PathBuf::from(text),
        (None, _) => match &base.directory {
            Some(directory) => directory.join(text),
            None => {
                return Err(invalid(
                    "the path is relative, and the working directory is not known",
                )
                .help("write the path in full"));
            }
        },
    };
    match path.to_str() {
        Some(path) => Ok(json!(path)),
        None => Err(invalid(
            "the path starts in a directory whose name is not Unicode",
        )),
    }
}

/// What is wrong with the patterns of models, tools or a policy list, with the place of each that is to
/// blame.
pub(crate) fn patterns(list: &str, patterns: &[String]) -> Vec<(Option<usize>, Fault)> {
    let compile = |patterns: &[String]| {
        if matches!(list, "models" | "allow_tools" | "deny_tools") {
            return GlobList::new(patterns).err();
        }
        let profile: PolicyProfile =
            serde_json::from_value(json!({ list: patterns })).unwrap_or_default();
        let error = PolicyEngine::new(&profile).err()?;
        Some(error.problem().clone())
    };
    let Some(error) = compile(patterns) else {
        return Vec::new();
    };
    let bad = |problem: &GlobError| Fault::new(Problem::BadPattern, pattern_fault(problem));
    let mut found: Vec<_> = Vec::new();
    if error.index().is_some() {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Some(error) = compile(std::slice::from_ref(pattern)) {
                found.push((Some(index), bad(&error)));
            }
        }
    }
    if found.is_empty() {
        found.push((error.index(), bad(&error)));
    }
    found
}

fn pattern_fault(problem: &GlobError) -> String {
    match problem {
        GlobError::Invalid { reason, .. } => format!("not a valid pattern: {reason}"),
        GlobError::TooComplex { reason, .. } => format!("the pattern is too complex: {reason}"),
        GlobError::TooLong { length, max, .. } => {
            format!("the pattern has {length} bytes, more than {max}")
        }
        other => other.to_string(),
    }
}

/// What is wrong with the name of a table's member.
pub(crate) fn name(table: &[&str], name: &str) -> Option<Fault> {
    match table {
        ["emulation"] => capability(name).err(),
        ["backends"] if name == "auto" => Some(invalid(
            "`auto` cannot be the name of a backend: it stands for whichever fits best",
        )),
        ["upstreams"] if name == "mock" => Some(invalid(
            "`mock` cannot be the name of an upstream: it stands for the embedded model",
        )),
        ["backends" | "upstreams" | "policies" | "prices" | "webhooks"] | ["mcp", "servers"] => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
            let fits = name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(allowed)
                && name.len() <= MAX_NAME_CHARS;
            (!fits).then(|| {
                invalid(format!("{name:?} cannot be a name")).help(format!(
                    "use at most {MAX_NAME_CHARS} letters, digits and . _ : -, \
                     starting with a letter or digit"
                ))
            })
        }
        ["backends", _, "env"] | ["mcp", "servers", _, "env"]
            if name.is_empty() || name.contains(['=', '\0']) =>
        {
            Some(invalid(format!(
                "{name:?} cannot be the name of an environment variable"
            )))
        }
        ["upstreams", _, "aliases"] => word(name).err(),
        ["prices", _] if name.is_empty() => Some(invalid("the name of a model is empty")),
        _ => None,
    }
}

/// A capability by its name or an alias.
pub(crate) fn capability(name: &str) -> Result<Capability, Fault> {
    match Capability::from_wire(name) {
        Capability::Other(_) => {
            let known = Capability::KNOWN.iter().map(Capability::as_str);
            Err(Fault::new(
                Problem::UnknownName,
                format!("there is no capability {name:?}"),
            )
            .maybe_help(did_you_mean(name, known)))
        }
        known => Ok(known),
    }
}

/// Whether post-processing does anything for a capability.
pub(crate) fn post_processing(capability: &Capability) -> Option<Fault> {
    let has_one = matches!(
        default_strategy(capability),
        EmulationStrategy::PostProcessing { .. }
    );
    (!has_one).then(|| {
        invalid(format!(
            "{} cannot be emulated by post-processing",
            capability.as_str()
        ))
    })
}

/// The candidate that is most like a mistyped word, as a hint.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    closest(word, candidates).map(|(_, candidate)| suggestion(candidate))
}

pub(crate) fn suggestion(candidate: &str) -> String {
    format!("did you mean `{candidate}`?")
}

/// The candidate that is most like a mistyped word, and how much, up to 1.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<(f64, &'a str)> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .filter(|_| word.len() <= MAX_NAME_CHARS)
        .map(|candidate| (likeness(&word, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
}

/// From 0 to 1. The measure of Jaro and Winkler is low for short words with one slip, such as `mpc`
/// for `mcp`.
fn likeness(word: &str, candidate: &str) -> f64 {
    let likeness = strsim::jaro_winkler(word, candidate);
    let has_one_slip = word.len() > 2 && strsim::osa_distance(word, candidate) == 1;
    if has_one_slip {
        likeness.max(0.85)
    } else {
        likeness
    }
}
