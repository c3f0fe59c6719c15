//! Whether the layers make sense together: names are those of something that is there, settings
//! that need each other are both set, and nothing leads back to itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Merge};
use crate::check::did_you_mean;
use crate::diagnostic::{Diagnostic, Problem, Problems};
use crate::settings::dotted;
use crate::{Layer, SettingOrigin, Sources};

/// Backends that are always there.
const EMBEDDED: [&str; 2] = ["mock", "auto"];

/// Who leads where.
type Graph<'m> = BTreeMap<&'m str, Vec<&'m str>>;

impl Merge {
    pub(super) fn check_references(&mut self, sources: &Sources, problems: &mut Problems) {
        let mut backends: Vec<_> = self.names("backends");
        backends.extend(EMBEDDED);
        backends.extend(sources.known_backends.iter().map(String::as_str));
        let upstreams = self.names("upstreams");
        let upstreams: Vec<_> = upstreams
            .iter()
            .map(|name| format!("upstream:{name}"))
            .collect();
        backends.extend(upstreams.iter().map(String::as_str));
        let ignored = self.check_default("default_backend", &backends, "backend", problems);
        for (key, group, thing) in [
            ("default_policy", "policies", "policy"),
            ("default_prices", "prices", "price table"),
        ] {
            self.check_default(key, &self.names(group), thing, problems);
        }
        if ignored {
            self.entries
                .remove(["default_backend".to_owned()].as_slice());
        }
        self.check_upstreams(problems);
        self.check_certificate(problems);
    }

    /// Checks a choice among names; tells whether it is a project's that has to be ignored.
    fn check_default(
        &self,
        key: &str,
        known: &[&str],
        thing: &str,
        problems: &mut Problems,
    ) -> bool {
        let Some(entry) = self.entries.get([key.to_owned()].as_slice()) else {
            return false;
        };
        let Some(unknown) = unknown_name(text(entry), known, thing) else {
            return false;
        };
        let from_project = matches!(
            entry.origin,
            SettingOrigin::File {
                layer: Layer::Project,
                ..
            }
        );
        let unknown = if from_project {
            let message = format!("{}; the choice is ignored", unknown.message);
            let ignored = problems.ignored(Problem::UnknownName, message);
            ignored.maybe_help(unknown.help)
        } else {
            unknown
        };
        problems.push(self.place(entry, None, unknown.key(key)));
        from_project
    }

    fn check_upstreams(&self, problems: &mut Problems) {
        let upstreams = self.names("upstreams");
        let prices = self.names("prices");
        let mut fallbacks = Graph::new();
        for name in &upstreams {
            self.check_credential(name, problems);
            if let Some(entry) = self.upstream(name, &["prices"])
                && let Some(unknown) = unknown_name(text(entry), &prices, "price table")
            {
                problems.push(self.place(entry, None, unknown));
            }
            let next: Vec<_> = self.upstream(name, &["fallback"]).map_or(Vec::new(), texts);
            for (index, next) in next.iter().enumerate() {
                if let Some(entry) = self.upstream(name, &["fallback"])
                    && let Some(unknown) = unknown_name(next, &upstreams, "upstream")
                {
                    problems.push(self.place(entry, Some(index), unknown));
                }
            }
            fallbacks.insert(name, next);
            self.check_aliases(name, problems);
        }
        if let Some(way) = cycle(&fallbacks)
            && let (Some(first), Some(last)) = (way.first(), way.last())
            && let Some(entry) = self.upstream(last, &["fallback"])
        {
            let index = texts(entry).iter().position(|name| name == first);
            let message = format!("the fallbacks lead in a circle: {}", shown(&way));
            let circle = Diagnostic::error(Problem::InvalidValue, message);
            problems.push(self.place(entry, index, circle));
        }
    }

    /// A key has one source, and a way of using it has the names that it needs.
    fn check_credential(&self, name: &str, problems: &mut Problems) {
        let sources = ["api_key_env", "api_key_file", "api_key_command"];
        let set: Vec<_> = sources
            .into_iter()
            .filter_map(|key| Some((key, self.upstream(name, &[key])?)))
            .collect();
        if let [(first, _), (second, entry), ..] = set.as_slice() {
            let message = format!("upstream {name:?} has both `{first}` and `{second}`");
            let twice = Diagnostic::error(Problem::InvalidValue, message);
            problems.push(self.place(entry, None, twice.help("keep the one that holds its key")));
        }
        let Some(auth) = self.upstream(name, &["auth"]) else {
            return;
        };
        let needed = match text(auth) {
            "header" | "query" => "auth_name",
            "bedrock" => "aws_region",
            _ => return,
        };
        if self.upstream(name, &[needed]).is_none() {
            let message = format!("upstream {name:?} has no `{needed}`, which its `auth` needs");
            let missing = Diagnostic::error(Problem::MissingKey, message);
            problems.push(self.place(auth, None, missing));
        }
    }

    fn check_aliases(&self, upstream: &str, problems: &mut Problems) {
        let table = ["upstreams", upstream, "aliases"]
            .map(str::to_owned)
            .to_vec();
        let aliases: Graph<'_> = self
            .entries
            .range(table.clone()..)
            .take_while(|(path, _)| path.starts_with(&table))
            .filter_map(|(path, entry)| Some((path.last()?.as_str(), vec![text(entry)])))
            .collect();
        if let Some(way) = cycle(&aliases)
            && let Some(last) = way.last()
            && let Some(entry) = self.upstream(upstream, &["aliases", last])
        {
            let message = format!("the aliases lead in a circle: {}", shown(&way));
            let circle = Diagnostic::error(Problem::InvalidValue, message);
            problems.push(self.place(entry, None, circle));
        }
    }

    fn check_certificate(&self, problems: &mut Problems) {
        let server = |key: &str| {
            let path = ["server".to_owned(), key.to_owned()];
            self.entries.get(path.as_slice())
        };
        for (key, other) in [("tls_cert", "tls_key"), ("tls_key", "tls_cert")] {
            if let (Some(entry), None) = (server(key), server(other)) {
                let message = format!("`server.{key}` is set without `server.{other}`");
                let alone = Diagnostic::error(Problem::MissingKey, message);
                problems.push(self.place(entry, None, alone));
            }
        }
    }

    /// A setting of an upstream.
    fn upstream(&self, name: &str, key: &[&str]) -> Option<&Entry> {
        let path: Vec<_> = ["upstreams", name]
            .iter()
            .chain(key)
            .map(|part| (*part).to_owned())
            .collect();
        self.entries.get(&path)
    }

    /// Points a diagnostic at where a value, or an item of it, was set.
    pub(super) fn place(
        &self,
        entry: &Entry,
        item: Option<usize>,
        diagnostic: Diagnostic,
    ) -> Diagnostic {
        let place = entry.place.as_ref().and_then(|(index, span)| {
            let item = item.and_then(|item| entry.item_spans.get(item));
            Some((self.documents.get(*index)?, item.unwrap_or(span).clone()))
        });
        match place {
            Some((document, span)) => document.place(diagnostic, span),
            None => diagnostic.set_by(entry.origin.clone()),
        }
    }
}

fn text(entry: &Entry) -> &str {
    entry.value.as_str().unwrap_or_default()
}

fn texts(entry: &Entry) -> Vec<&str> {
    let items = entry.value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item.as_str()).collect()
}

/// Says that a name is none of those that are there, where it is not.
fn unknown_name(name: &str, known: &[&str], thing: &str) -> Option<Diagnostic> {
    if known.contains(&name) {
        return None;
    }
    let help = did_you_mean(name, known.iter().copied()).unwrap_or_else(|| {
        let mut known = known.to_vec();
        known.sort_unstable();
        match known.as_slice() {
            [] => format!("define it as `[{}.NAME]`", group(thing)),
            known => format!("there are: {}", known.join(", ")),
        }
    });
    let message = format!("there is no {thing} {name:?}");
    Some(Diagnostic::error(Problem::UnknownName, message).help(help))
}

/// The table in which things of a kind are defined.
fn group(thing: &str) -> &'static str {
    match thing {
        "backend" => "backends",
        "policy" => "policies",
        "upstream" => "upstreams",
        _ => "prices",
    }
}

/// The nodes of a circle in the order in which they lead to each other, where there is a circle.
fn cycle<'m>(graph: &Graph<'m>) -> Option<Vec<&'m str>> {
    let mut done = BTreeSet::new();
    for (start, next) in graph {
        // The way so far, each node with those it leads to that were not tried yet.
        let mut way = vec![(*start, next.iter())];
        let mut on_way = BTreeSet::from([*start]);
        while let Some((node, untried)) = way.last_mut() {
            match untried.next() {
                Some(next) if on_way.contains(next) => {
                    let nodes = way.iter().map(|(node, _)| *node);
                    return Some(nodes.skip_while(|node| node != next).collect());
                }
                Some(next) if done.contains(next) => {}
                Some(next) => {
                    if let Some((next, onwards)) = graph.get_key_value(next) {
                        on_way.insert(*next);
                        way.push((next, onwards.iter()));
                    }
                }
                None => {
                    on_way.remove(*node);
                    done.insert(*node);
                    way.pop();
                }
            }
        }
    }
    None
}

/// A circle, back to its start.
fn shown(way: &[&str]) -> String {
    let names: Vec<_> = way
        .iter()
        .chain(way.first())
        .map(|name| dotted(&[*name]))
        .collect();
    names.join(" → ")
}
