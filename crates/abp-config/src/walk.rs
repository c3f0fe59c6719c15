//! From the text of a file to the values it sets, against the table of settings.

use std::ops::Range;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::Layer;
use crate::check::{self, Base, Found};
use crate::diagnostic::{Diagnostic, Problem, Problems};
use crate::document::{Document, is_secret_name};
use crate::safety;
use crate::settings::{ANY, Kind, REQUIRED, Setting, VARIANTS, below, dotted, find};

/// Words in the names of things that a project file may not set, beside secrets.
const REDIRECTING_WORDS: &[&str] = &["url", "endpoint", "hook", "command", "proxy", "address"];

/// One value of a file, or, as an empty object, a named table.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
    /// Where it is set.
    pub(crate) span: Range<usize>,
    /// Where the items of a list are.
    pub(crate) items: Vec<Range<usize>>,
}

/// The rules for one file.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) base: Base,
    /// Where a project file's author may put what is refused.
    pub(crate) elsewhere: String,
}

/// Reads every value of a document that can be used, and reports the rest.
pub(crate) fn walk(document: &Document, rules: &Rules, problems: &mut Problems) -> Vec<Leaf> {
    let (root, errors) = DeTable::parse_recoverable(document.text());
    let mut walk = Walk {
        document,
        rules,
        problems,
        leaves: Vec::new(),
        sound_until: usize::MAX,
    };
    let mut last_line = None;
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (error.span().unwrap_or_default(), error.message()))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    for (span, message) in errors {
        // What follows a syntax error may stand in the wrong table; a duplicate key moves nothing.
        if message != "duplicate key" {
            walk.sound_until = walk.sound_until.min(span.start);
        }
        // One mistake often makes several errors on its line.
        let line = document.line_at(span.start).0;
        if last_line.replace(line) != Some(line) {
            let error = Diagnostic::error(Problem::Syntax, format!("not valid TOML: {message}"));
            walk.problems
                .push_with(error, |error| document.place(error, span));
        }
    }
    walk.table(root.get_ref(), &mut Vec::new(), &mut Vec::new());
    walk.leaves
}

struct Walk<'a> {
    document: &'a Document,
    rules: &'a Rules,
    problems: &'a mut Problems,
    leaves: Vec<Leaf>,
    /// From here on the text may mean something else than it seems to.
    sound_until: usize,
}

impl Walk<'_> {
    fn report(&mut self, problem: impl Into<Diagnostic>, path: &[String], span: Range<usize>) {
        if span.start < self.sound_until {
            self.problems.push_with(problem.into(), |diagnostic| {
                self.document.place(diagnostic.key(dotted(path)), span)
            });
        }
    }

    fn table(
        &mut self,
        table: &DeTable<'_>,
        path: &mut Vec<String>,
        pattern: &mut Vec<&'static str>,
    ) {
        for (key, value) in table {
            if self.problems.is_full() {
                return;
            }
            let name: &str = key.get_ref();
            path.push(name.to_owned());
            match next_part(pattern, name) {
                Some(part) => {
                    pattern.push(part);
                    self.entry(key.span(), value, path, pattern);
                    pattern.pop();
                }
                None => self.unknown(key.span(), path, pattern),
            }
            path.pop();
        }
    }

    fn entry(
        &mut self,
        key: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        path: &mut Vec<String>,
        pattern: &mut Vec<&'static str>,
    ) {
        let setting = find(pattern);
        if let Some(successor) = setting.and_then(Setting::successor) {
            let message = format!("`{}` is no longer read", dotted(path));
            let gone = self.problems.ignored(Problem::Deprecated, message);
            return self.report(gone.help(successor), path, key);
        }
        let is_table = value.get_ref().is_table();
        let allowed =
            self.document.layer != Layer::Project || below(pattern).any(Setting::project_may_set);
        // A group of named tables is refused table by table, each at its place.
        if !allowed && (path.len() > 1 || !is_table) {
            let message = format!("a project file may not set `{}`", dotted(path));
            let refused = self.problems.ignored(Problem::Refused, message);
            let help = format!("it is ignored; set it in {}", self.rules.elsewhere);
            return self.report(refused.help(help), path, key);
        }
        if let (Some((&ANY, table)), Some(name)) = (pattern.split_last(), path.last_mut()) {
            if let Some(problem) = check::name(table, name) {
                return self.report(problem, path, key);
            }
            if let (["emulation"], Ok(capability)) = (table, check::capability(name)) {
                capability.as_str().clone_into(name);
            }
        }
        match (setting, value.get_ref()) {
            (Some(setting), _) => self.leaf(setting, value, path),
            (None, DeValue::Table(table)) => {
                if let [_, ANY] | ["mcp", "servers", ANY] = pattern.as_slice() {
                    self.named_table(table, key, path);
                } else if pattern.as_slice() == ["mcp", "emulate", "sampling"] {
                    self.require(&["key", "models"], table, path, &key);
                }
                self.table(table, path, pattern);
            }
            (None, other) => {
                let message = format!("expected a table, found {}", type_name(other));
                let wrong = Diagnostic::error(Problem::WrongType, message);
                self.report(wrong, path, value.span());
            }
        }
    }

    fn leaf(&mut self, setting: &Setting, value: &Spanned<DeValue<'_>>, path: &[String]) {
        let span = value.span();
        if let (Kind::List(_) | Kind::Patterns, DeValue::Array(array)) =
            (setting.kind, value.get_ref())
        {
            return self.list(setting, array, span, path);
        }
        match check::value(setting.kind, found(value.get_ref()), &self.rules.base) {
            Err(problem) => self.report(problem, path, span),
            Ok(value) => {
                if let Some(doubt) = check::doubt(setting.kind, &value) {
                    self.report(doubt, path, span.clone());
                }
                self.push(path, value, span, Vec::new());
            }
        }
    }

    fn list(
        &mut self,
        setting: &Setting,
        array: &DeArray<'_>,
        span: Range<usize>,
        path: &[String],
    ) {
        let kind = match setting.kind {
            Kind::List(kind) => *kind,
            _ => Kind::Text,
        };
        let mut texts = Vec::new();
        let mut items = Vec::new();
        for item in array.iter() {
            match check::value(kind, found(item.get_ref()), &self.rules.base) {
                Ok(text) => {
                    texts.extend(text.as_str().map(str::to_owned));
                    items.push(item.span());
                }
                Err(problem) => self.report(problem, path, item.span()),
            }
        }
        let bad = match (setting.kind, path.last()) {
            (Kind::Patterns, Some(list)) => check::patterns(list, &texts),
            _ => Vec::new(),
        };
        if bad.is_empty() {
            return self.push(path, json!(texts), span, items);
        }
        for (index, problem) in bad {
            let item = index.and_then(|index| items.get(index));
            self.report(problem, path, item.unwrap_or(&span).clone());
        }
    }

    /// A backend, upstream, MCP server, policy, price table or emulation: it is there even when nothing is set
    /// in it, and where it has a type, that decides which keys it has.
    fn named_table(&mut self, table: &DeTable<'_>, key: Range<usize>, path: &[String]) {
        let Some(group) = path.first() else { return };
        if group == "emulation" && self.leaves.iter().any(|leaf| leaf.path == path) {
            let message = format!("`{}` is set under another name already", dotted(path));
            let twice = Diagnostic::error(Problem::InvalidValue, message);
            return self.report(twice, path, key);
        }
        self.push(path, json!({}), key.clone(), Vec::new());
        for (_, keys) in REQUIRED.iter().filter(|(table, _)| table == group) {
            self.require(keys, table, path, &key);
        }
        if group == "mcp" {
            return self.one_place(table, key, path);
        }
        let variants = || VARIANTS.iter().filter(|variant| variant.table == group);
        let names: Vec<_> = variants().map(|variant| variant.name).collect();
        if names.is_empty() {
            return;
        }
        let Some(tag) = table.get("type") else {
            let message = format!("`{}` has no `type`", dotted(path));
            let help = format!("it is one of {}", names.join(", "));
            return self.missing(message, Some(help), path, key);
        };
        let written = tag.get_ref().as_str();
        let Some(variant) = variants().find(|variant| Some(variant.name) == written) else {
            return;
        };
        for (present, _) in table {
            let name: &str = present.get_ref();
            let fits = name == "type"
                || variant.required.contains(&name)
                || variant.optional.contains(&name);
            if !fits && next_part(&[variant.table, ANY], name).is_some() {
                let message = format!("`{name}` has no meaning for the type {:?}", variant.name);
                let wrong = Diagnostic::error(Problem::UnknownKey, message);
                self.report(wrong, path, present.span());
            }
        }
        self.require(variant.required, table, path, &key);
        if let ("post_processing", Some(Ok(capability))) = (
            variant.name,
            path.last().map(|name| check::capability(name)),
        ) && let Some(problem) = check::post_processing(&capability)
        {
            self.report(problem, path, tag.span());
        }
    }

    /// An MCP server is a program or an address.
    fn one_place(&mut self, table: &DeTable<'_>, key: Range<usize>, path: &[String]) {
        let name = dotted(path);
        match (table.get_key_value("command"), table.get_key_value("url")) {
            (Some(_), Some((url, _))) => {
                let message = format!("`{name}` has both a `command` and a `url`");
                let twice = Diagnostic::error(Problem::InvalidValue, message);
                self.report(twice, path, url.span());
            }
            (None, None) => {
                let message = format!("`{name}` has neither a `command` nor a `url`");
                self.missing(message, None, path, key);
            }
            _ => {}
        }
    }

    fn require(&mut self, keys: &[&str], table: &DeTable<'_>, path: &[String], at: &Range<usize>) {
        for required in keys.iter().filter(|key| !table.contains_key(**key)) {
            let message = format!("`{}` has no `{required}`", dotted(path));
            self.missing(message, None, path, at.clone());
        }
    }

    /// After a syntax error nobody knows what is missing.
    fn missing(
        &mut self,
        message: String,
        help: Option<String>,
        path: &[String],
        at: Range<usize>,
    ) {
        if self.sound_until == usize::MAX {
            let missing = Diagnostic::error(Problem::MissingKey, message).maybe_help(help);
            self.report(missing, path, at);
        }
    }

    fn unknown(&mut self, key: Range<usize>, path: &[String], pattern: &[&'static str]) {
        let (Some(name), Some((_, table))) = (path.last(), path.split_last()) else {
            return;
        };
        let judged = safety::judge(pattern, name);
        let lower = name.to_lowercase();
        let redirects = REDIRECTING_WORDS.iter().any(|word| lower.contains(word));
        if self.document.layer == Layer::Project
            && !judged.restricts
            && (redirects || is_secret_name(name))
        {
            let message = format!(
                "a project file may not set keys, addresses, commands or hooks, such as `{}`",
                dotted(path)
            );
            let refused = self.problems.ignored(Problem::Refused, message);
            let help = "it is ignored, and no setting of this version";
            return self.report(refused.help(help), path, key);
        }
        let message = match table {
            [] => format!("unknown key `{}`", dotted(path)),
            table => {
                let name = dotted(std::slice::from_ref(name));
                format!("unknown key `{name}` in `{}`", dotted(table))
            }
        };
        let unknown = if judged.restricts {
            Diagnostic::error(Problem::UnknownKey, message)
        } else {
            self.problems.ignored(Problem::UnknownKey, message)
        };
        let help = match (table, name.as_str()) {
            ([table], "allowed_tools" | "allow_network") if table == "restrictions" => {
                Some("adding to an allow list restricts nothing; put it into a policy".to_owned())
            }
            _ => judged.help,
        };
        self.report(unknown.maybe_help(help), path, key);
    }

    fn push(
        &mut self,
        path: &[String],
        value: Value,
        span: Range<usize>,
        items: Vec<Range<usize>>,
    ) {
        self.leaves.push(Leaf {
            path: path.to_owned(),
            value,
            span,
            items,
        });
    }
}

/// How the path of a setting goes on at a name.
fn next_part(pattern: &[&'static str], name: &str) -> Option<&'static str> {
    let parts = || below(pattern).filter_map(|setting| setting.path.get(pattern.len()).copied());
    parts()
        .find(|part| *part == name && *part != ANY)
        .or_else(|| parts().find(|part| *part == ANY))
}

fn found<'a>(value: &'a DeValue<'_>) -> Found<'a> {
    match value {
        DeValue::String(text) => Found::Text(text),
        DeValue::Integer(number) => {
            Found::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok())
        }
        DeValue::Float(number) => Found::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        other => Found::Other(type_name(other)),
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
