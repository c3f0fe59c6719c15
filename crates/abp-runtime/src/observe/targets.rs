//! The paths and hosts that the input of a tool names.
//!
//! Agents name their tools and arguments differently, so this goes by the names that the known ones use
//! for a path, an address and a command. Other texts are not searched: a document that mentions an
//! address is no connection to it. It is evidence against an agent, not a sandbox: an action that is
//! hidden well enough is not found here.

use serde_json::Value;

/// Arguments that hold a path, in any spelling of case and underscores.
const PATH_ARGUMENTS: [&str; 15] = [
    "path",
    "filepath",
    "absolutepath",
    "relativepath",
    "notebookpath",
    "targetfile",
    "filename",
    "file",
    "dir",
    "directory",
    "dirpath",
    "paths",
    "files",
    "destination",
    "target",
];
/// Arguments that hold a host.
const HOST_ARGUMENTS: [&str; 3] = ["host", "hostname", "domain"];
/// Arguments that hold a web address.
const ADDRESS_ARGUMENTS: [&str; 7] = ["url", "urls", "uri", "href", "link", "endpoint", "address"];
/// Arguments that hold a command line.
const COMMAND_ARGUMENTS: [&str; 4] = ["command", "cmd", "script", "commands"];
/// Programs that connect to the web addresses on their command line.
const FETCHING_PROGRAMS: [&str; 4] = ["curl", "wget", "aria2c", "lynx"];
/// Words in the name of a tool that changes files.
const WRITING_WORDS: [&str; 12] = [
    "write", "edit", "create", "delete", "remove", "rename", "move", "patch", "replace", "insert",
    "append", "mkdir",
];
/// How deep inputs are looked into, how many targets are taken, and how much text is searched.
const MAX_DEPTH: usize = 8;
const MAX_TARGETS: usize = 256;
const MAX_TEXT_BYTES: usize = 256 * 1024;

/// The paths and hosts that an input names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InputTargets {
    pub(crate) paths: Vec<String>,
    /// As `host` or `host:port`.
    pub(crate) hosts: Vec<String>,
}

/// Whether a tool of that name changes files; `TodoWrite` and its like name no path anyway.
pub(crate) fn is_writing_tool(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WRITING_WORDS.iter().any(|word| name.contains(word))
}

impl InputTargets {
    /// Collects the targets of a tool's input.
    pub(crate) fn of(input: &Value) -> Self {
        let mut targets = Self::default();
        targets.collect(input, Argument::Other, MAX_DEPTH);
        targets
    }

    /// Collects the targets of a command line: its web addresses.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut targets = Self::default();
        targets.take_text(text, Argument::Command);
        targets
    }

    fn collect(&mut self, value: &Value, argument: Argument, depth: usize) {
        if depth == 0 || self.paths.len() + self.hosts.len() >= MAX_TARGETS {
            return;
        }
        match value {
            Value::String(text) => self.take_text(text, argument),
            Value::Array(items) => {
                for item in items {
                    self.collect(item, argument, depth - 1);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.collect(member, Argument::of(name), depth - 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn take_text(&mut self, text: &str, argument: Argument) {
        match argument {
            Argument::Path | Argument::Address if text.starts_with("file://") => {
                let path = text.trim_start_matches("file://");
                self.paths.push(path.to_owned());
            }
            Argument::Address if text.starts_with("//") => self.take_addresses(&format!(":{text}")),
            Argument::Path if !text.contains("://") => self.paths.push(text.to_owned()),
            Argument::Host => self.hosts.push(text.to_owned()),
            Argument::Command if !fetches(text) => {}
            Argument::Path | Argument::Address | Argument::Command => self.take_addresses(text),
            Argument::Other => {}
        }
    }

    /// Takes the host of every web address in a text.
    fn take_addresses(&mut self, text: &str) {
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        let mut rest = text.get(..end).unwrap_or_default();
        while let Some((_, behind)) = rest.split_once("://") {
            let authority = behind.split([
                '/', '?', '#', '"', '\'', ' ', '\n', '\\', ')', '>', '|', ';',
            ]);
            let authority = authority.into_iter().next().unwrap_or_default();
            let host = authority
                .rsplit_once('@')
                .map_or(authority, |(_, host)| host);
            if !host.is_empty() && self.hosts.len() < MAX_TARGETS {
                self.hosts.push(host.to_owned());
            }
            rest = behind;
        }
    }
}

/// What the name of an argument says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    Path,
    Host,
    Address,
    Command,
    Other,
}

/// Whether a command line has a program that connects to addresses.
fn fetches(command: &str) -> bool {
    let words = command.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.'));
    words
        .into_iter()
        .any(|word| FETCHING_PROGRAMS.contains(&word))
}

impl Argument {
    fn of(name: &str) -> Self {
        let folded: String = name
            .chars()
            .filter(|c| !matches!(c, '_' | '-'))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let lists: [(&[&str], Self); 4] = [
            (&PATH_ARGUMENTS, Self::Path),
            (&HOST_ARGUMENTS, Self::Host),
            (&ADDRESS_ARGUMENTS, Self::Address),
            (&COMMAND_ARGUMENTS, Self::Command),
        ];
        let found = lists
            .iter()
            .find(|(names, _)| names.contains(&folded.as_str()));
        found.map_or(Self::Other, |(_, argument)| *argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_and_hosts_are_found_however_agents_name_them() {
        let check = |input: Value, paths: &[&str], hosts: &[&str]| {
            let found = InputTargets::of(&input);
            assert_eq!(found.paths, paths, "{input}");
            assert_eq!(found.hosts, hosts, "{input}");
        };
        check(json!({"file_path": ".env"}), &[".env"], &[]);
        check(json!({"filePath": "a", "content": "b"}), &["a"], &[]);
        check(
            json!({"edits": [{"path": "x"}, {"path": "y"}]}),
            &["x", "y"],
            &[],
        );
        check(json!({"paths": ["a", "b/c"]}), &["a", "b/c"], &[]);
        check(
            json!({"url": "https://u:p@evil.example:8443/x?y"}),
            &[],
            &["evil.example:8443"],
        );
        check(
            json!({"command": "curl -s http://[::1]:80/a; wget 'ftp://b.test'"}),
            &[],
            &["[::1]:80", "b.test"],
        );
        check(
            json!({"command": "git commit -m 'see https://a.test'"}),
            &[],
            &[],
        );
        check(json!({"content": "see https://a.test"}), &[], &[]);
        check(json!({"uri": "file:///w/.env"}), &["/w/.env"], &[]);
        check(json!({"url": "//evil.example/x"}), &[], &["evil.example"]);
        check(json!({"host": "internal"}), &[], &["internal"]);
        check(json!({"path": "http://a.test/x"}), &[], &["a.test"]);
        check(json!({"query": "no target", "limit": 3}), &[], &[]);
        let deep = (0..20).fold(json!({"path": "x"}), |inner, _| json!([inner]));
        check(deep, &[], &[]);
    }

    #[test]
    fn tools_that_change_files_are_known_by_name() {
        for name in [
            "Write",
            "MultiEdit",
            "apply_patch",
            "fs/create_file",
            "str_replace",
        ] {
            assert!(is_writing_tool(name), "{name}");
        }
        for name in ["Read", "Glob", "Bash", "WebFetch", "list_directory"] {
            assert!(!is_writing_tool(name), "{name}");
        }
    }
}
