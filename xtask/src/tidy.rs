//! The rules a reviewer would otherwise have to remember, checked by a machine.
//!
//! Each rule is a function from the [`Workspace`] to its [`Finding`]s. The table below is the only
//! list: it makes the `tidy` task and one ordinary test per rule, so a broken rule shows by name in
//! every test run. A finding that is accepted is listed with its reason in `layers.toml`.

mod deps;
mod docs;
mod exceptions;
mod files;
mod layers;
mod licences;
mod manifests;
mod modules;
mod names;
mod privacy;
mod purity;
mod reach;
mod test_share;
mod text;

use std::fmt;

use anyhow::{Result, bail};

use crate::output::say;
use crate::workspace::{Exception, Workspace};

/// One place that breaks a rule, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl Finding {
    fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::in_file(file, message)
        }
    }

    fn in_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    fn is_accepted_by(&self, exception: &Exception) -> bool {
        self.file == exception.file && self.message.contains(&exception.text)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

struct Rule {
    name: &'static str,
    check: fn(&Workspace) -> Vec<Finding>,
}

impl Rule {
    /// Returns the findings that no exception accepts.
    fn open_findings(&self, workspace: &Workspace) -> Vec<Finding> {
        let exceptions = &workspace.layers.exception;
        let mut findings = (self.check)(workspace);
        findings.retain(|finding| {
            let mut accepted = exceptions.iter().filter(|one| one.rule == self.name);
            !accepted.any(|one| finding.is_accepted_by(one))
        });
        findings
    }
}

macro_rules! rules {
    ($($name:ident => $check:path,)*) => {
        const RULES: &[Rule] = &[$(Rule { name: stringify!($name), check: $check }),*];

        #[cfg(test)]
        mod rule {
            $(#[test]
            fn $name() {
                super::tests::check_rule(stringify!($name));
            })*
        }
    };
}

rules! {
    crates_depend_only_on_lower_layers => layers::check,
    pure_crates_reach_no_effects => purity::check,
    manifests_inherit_from_the_workspace => manifests::check,
    dependencies_follow_the_policy => deps::check,
    licences_are_permissive => licences::check,
    files_are_small_and_named_for_their_content => files::check,
    text_has_no_leftovers => text::check,
    type_names_have_one_crate => names::check,
    libraries_are_reached_from_an_edge => reach::check,
    source_files_belong_to_a_target => modules::check,
    links_in_documents_resolve => docs::check,
    files_name_no_machine_and_no_registry => privacy::check,
    exceptions_are_still_needed => exceptions::check,
}

/// Prints every finding, then what is only worth knowing; fails if there was a finding.
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::load()?;
    let mut total = 0;
    for rule in RULES {
        let findings = rule.open_findings(&workspace);
        total += findings.len();
        for finding in findings {
            say(format_args!("{finding}  [{}]", rule.name));
        }
    }
    for note in test_share::notes(&workspace) {
        say(format_args!("note: {note}"));
    }
    if total > 0 {
        bail!("{total} findings; fix them, or accept one with its reason in xtask/layers.toml");
    }
    say(format_args!("tidy: {} rules hold", RULES.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Loaded once per process; asking cargo takes longer than all rules together.
    static WORKSPACE: LazyLock<Workspace> =
        LazyLock::new(|| Workspace::load().expect("the workspace loads"));

    pub(super) fn check_rule(name: &str) {
        let rule = RULES.iter().find(|rule| rule.name == name);
        let findings = rule.expect("a rule").open_findings(&WORKSPACE);
        let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }

    /// An exception for one finding must not hide another one in the same file.
    #[test]
    fn an_exception_covers_its_own_finding_only() {
        let exception = Exception {
            rule: "any".to_owned(),
            file: "a.rs".to_owned(),
            text: "`std::env`".to_owned(),
            reason: "because".to_owned(),
        };
        let check = |file: &str, message: &str, expected: bool| {
            let finding = Finding::at(file, 1, message);
            assert_eq!(finding.is_accepted_by(&exception), expected, "{finding}");
        };
        check("a.rs", "names `std::env`", true);
        check("a.rs", "names `std::fs`", false);
        check("b.rs", "names `std::env`", false);
    }
}
