//! Layers, merged, with the origin of each value.

mod directories;
mod references;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::check::{self, Base, closest, suggestion};
use crate::diagnostic::{ConfigErrors, Diagnostic, Problem, Problems, Severity};
use crate::document::Document;
use crate::safety;
use crate::settings::{Setting, dotted, find, settings};
use crate::walk::{Leaf, Rules, walk};
use crate::{Config, Layer, SettingOrigin, Sources};

/// Variables that are read, but set nothing.
const OTHER_VARIABLES: &[&str] = &["ABP_CONFIG", "ABP_REMOTE", "ABP_REMOTE_KEY"];
/// Variables that say where files and directories are. One that cannot be read in full would name
/// another place, and with it another user's file or none.
const BASE_VARIABLES: &[&str] = &[
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
];

/// The effective configuration and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Where each value comes from, by dotted key. Restrictions have an entry for each pattern,
    /// such as `restrictions.deny_read[0]`.
    pub origins: BTreeMap<String, SettingOrigin>,
    /// What somebody should look at, by file and line.
    pub warnings: Vec<Diagnostic>,
    /// The files that were read, lowest layer first.
    pub files: Vec<PathBuf>,
}

/// Reads and merges all layers.
///
/// # Errors
/// Lists every problem of every layer where one of them is an error.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
    let mut merge = Merge::default();
    for (layer, path) in [
        (Layer::User, &sources.user),
        (Layer::Project, &sources.project),
        (Layer::Operator, &sources.operator),
    ] {
        if let Some(path) = path {
            merge.read(layer, path, sources);
        }
    }
    let mut problems = Problems::new(sources.strict);
    merge.read_environment(sources, &mut problems);
    merge.read_overrides(sources, &mut problems);
    merge.check_references(sources, &mut problems);
    merge.settle_directories(sources, &mut problems);
    merge.diagnostics.extend(problems.finish());
    merge.finish()
}

/// An effective value.
#[derive(Debug)]
struct Entry {
    value: Value,
    origin: SettingOrigin,
    /// The document and the part of it, where it comes from a file.
    place: Option<(usize, Range<usize>)>,
    /// The parts of that document that are the items of a list.
    item_spans: Vec<Range<usize>>,
    /// The origins of the items of a list that several layers add to.
    items: Vec<SettingOrigin>,
}

#[derive(Debug, Default)]
struct Merge {
    documents: Vec<Document>,
    entries: BTreeMap<Vec<String>, Entry>,
    diagnostics: Vec<Diagnostic>,
}

impl Merge {
    fn read(&mut self, layer: Layer, path: &Path, sources: &Sources) {
        if layer == Layer::Project && self.documents.iter().any(|one| is_same(&one.path, path)) {
            return;
        }
        let document = match Document::read(layer, path) {
            Ok(Some(document)) => document,
            Ok(None) => return,
            Err(problem) => return self.diagnostics.push(*problem),
        };
        let elsewhere = match &sources.user {
            Some(user) => format!("{} or in a file named with --config", user.display()),
            None => "a file named with --config".to_owned(),
        };
        let rules = Rules {
            base: Base::of_file(path, sources),
            elsewhere,
        };
        let mut problems = Problems::new(sources.strict);
        let leaves = walk(&document, &rules, &mut problems);
        let index = self.documents.len();
        self.documents.push(document);
        for leaf in leaves {
            self.take(index, leaf, &mut problems);
        }
        self.diagnostics.extend(problems.finish());
    }

    /// Puts a value of a file over what lower layers say.
    fn take(&mut self, index: usize, leaf: Leaf, problems: &mut Problems) {
        let Some(document) = self.documents.get(index) else {
            return;
        };
        let origin = document.origin(leaf.span.start);
        if leaf.value.is_object() {
            let whole = self.entries.range(leaf.path.clone()..);
            let replaced: Vec<_> = whole
                .map(|(path, _)| path.clone())
                .take_while(|path| path.starts_with(&leaf.path))
                .collect();
            for path in replaced {
                self.entries.remove(&path);
            }
        }
        let existing = self.entries.get_mut(&leaf.path);
        let is_restriction = leaf.path.first().is_some_and(|part| part == "restrictions");
        let mut entry = Entry {
            value: leaf.value,
            origin,
            place: Some((index, leaf.span.clone())),
            item_spans: leaf.items.clone(),
            items: Vec::new(),
        };
        if is_restriction {
            entry.items = leaf
                .items
                .iter()
                .map(|item| document.origin(item.start))
                .collect();
            if let Some(existing) = existing {
                return existing.add(entry);
            }
        } else if let (Layer::Project, Some(existing)) = (document.layer, existing) {
            let key = dotted(&leaf.path);
            let message = format!(
                "a project file does not replace `{key}`, which {} sets",
                existing.origin
            );
            let refused = problems.ignored(Problem::Refused, message).key(key);
            return problems.push(document.place(refused, leaf.span));
        }
        self.entries.insert(leaf.path, entry);
    }

    fn read_environment(&mut self, sources: &Sources, problems: &mut Problems) {
        let base = Base::of_process(sources);
        for (name, value) in sources.env.iter().filter(|(_, value)| !value.is_empty()) {
            let origin = SettingOrigin::Env { name: name.clone() };
            match settings().iter().find(|one| one.env() == Some(name)) {
                Some(setting) => self.set(setting, value, origin, &base, problems),
                None if name.starts_with("ABP_") && !OTHER_VARIABLES.contains(&name.as_str()) => {
                    if let Some(unknown) = unknown_variable(name, problems) {
                        problems.push(unknown.set_by(origin));
                    }
                }
                None if BASE_VARIABLES.contains(&name.as_str())
                    && value.contains(char::REPLACEMENT_CHARACTER) =>
                {
                    let message = format!("{name} is not valid Unicode");
                    let invalid = Diagnostic::error(Problem::InvalidValue, message);
                    problems.push(invalid.set_by(origin));
                }
                None => {}
            }
        }
    }

    fn read_overrides(&mut self, sources: &Sources, problems: &mut Problems) {
        let base = Base::of_process(sources);
        for one in &sources.overrides {
            let origin = SettingOrigin::Flag {
                name: one.flag.clone(),
            };
            match find(&[one.key.as_str()]) {
                Some(setting) => self.set(setting, &one.value, origin, &base, problems),
                None => {
                    let message = format!("there is no setting `{}`", one.key);
                    let unknown = Diagnostic::error(Problem::UnknownKey, message);
                    problems.push(unknown.set_by(origin));
                }
            }
        }
    }

    /// Puts a value that was given as text over everything so far.
    fn set(
        &mut self,
        setting: &Setting,
        text: &str,
        origin: SettingOrigin,
        base: &Base,
        problems: &mut Problems,
    ) {
        let key = setting.key();
        if let Some(successor) = setting.successor() {
            let message = format!("`{key}` is no longer read");
            let gone = problems.ignored(Problem::Deprecated, message);
            return problems.push(gone.help(successor).key(key).set_by(origin));
        }
        match check::text_value(setting.kind, text, base) {
            Err(fault) => problems.push(Diagnostic::from(fault).key(key).set_by(origin)),
            Ok(value) => {
                if let Some(doubt) = check::doubt(setting.kind, &value) {
                    problems.push(doubt.key(key).set_by(origin.clone()));
                }
                let entry = Entry {
                    value,
                    origin,
                    place: None,
                    item_spans: Vec::new(),
                    items: Vec::new(),
                };
                let path = setting.path.iter().map(ToString::to_string);
                self.entries.insert(path.collect(), entry);
            }
        }
    }

    /// The names of a group of tables.
    fn names(&self, group: &str) -> Vec<&str> {
        self.entries
            .keys()
            .filter_map(|path| match path.as_slice() {
                [first, name] if first == group => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }

    fn finish(mut self) -> Result<Loaded, ConfigErrors> {
        let place = |one: &Diagnostic| match &one.origin {
            Some(SettingOrigin::File {
                path, line, column, ..
            }) => {
                let documents = self.documents.iter();
                let before = documents.take_while(|document| document.path != *path);
                (before.count(), *line, *column)
            }
            _ => (usize::MAX, 0, 0),
        };
        self.diagnostics.sort_by_key(place);
        let is_error = |one: &Diagnostic| one.severity == Severity::Error;
        if self.diagnostics.iter().any(is_error) {
            return Err(ConfigErrors {
                diagnostics: self.diagnostics,
            });
        }
        let mut root = Map::new();
        let mut origins = BTreeMap::new();
        for (path, entry) in self.entries {
            let key = dotted(&path);
            for (index, origin) in entry.items.into_iter().enumerate() {
                origins.insert(format!("{key}[{index}]"), origin);
            }
            origins.insert(key, entry.origin);
            nest(&mut root, &path, entry.value);
        }
        match serde_json::from_value::<Config>(Value::Object(root)) {
            Ok(config) => {
                let whole = serde_json::to_value(&config).unwrap_or_default();
                add_defaults(&whole, &mut Vec::new(), &mut origins);
                Ok(Loaded {
                    config,
                    origins,
                    warnings: self.diagnostics,
                    files: self.documents.into_iter().map(|one| one.path).collect(),
                })
            }
            Err(error) => {
                let message = format!("the configuration does not fit together: {error}");
                let problem = Diagnostic::error(Problem::InvalidValue, message);
                self.diagnostics.push(problem);
                Err(ConfigErrors {
                    diagnostics: self.diagnostics,
                })
            }
        }
    }
}

impl Entry {
    /// Adds the items of another layer that are not there yet.
    fn add(&mut self, other: Self) {
        let (Value::Array(list), Value::Array(added)) = (&mut self.value, other.value) else {
            return;
        };
        for (item, origin) in added.into_iter().zip(other.items) {
            if !list.contains(&item) {
                list.push(item);
                self.items.push(origin);
            }
        }
        self.origin = other.origin;
    }
}

/// A variable that is almost one of ours. As in files, a restriction that is not read is an error.
fn unknown_variable(name: &str, problems: &Problems) -> Option<Diagnostic> {
    let known = settings().iter().filter_map(Setting::env);
    let near = known.filter(|one| strsim::osa_distance(one, name) <= 2);
    let (_, nearest) = closest(name, near)?;
    let meant = settings().iter().find(|one| one.env() == Some(nearest))?;
    let message = format!("{name} sets nothing");
    let unknown = if safety::guards(meant) {
        Diagnostic::error(Problem::UnknownKey, message)
    } else {
        problems.ignored(Problem::UnknownKey, message)
    };
    Some(unknown.help(suggestion(nearest)))
}

/// Puts a value into nested objects.
fn nest(object: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [key] => {
            object.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            let inner = object
                .entry(key.as_str())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                nest(inner, rest, value);
            }
        }
    }
}

/// What nobody set has its default.
fn add_defaults(
    value: &Value,
    path: &mut Vec<String>,
    origins: &mut BTreeMap<String, SettingOrigin>,
) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                path.push(key.clone());
                add_defaults(member, path, origins);
                path.pop();
            }
        }
        _ => {
            origins
                .entry(dotted(path))
                .or_insert(SettingOrigin::Default);
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
