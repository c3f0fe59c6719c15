//! An exception that excuses nothing any more is removed, so that the list stays worth reading.

use super::{Finding, RULES};
use crate::workspace::{Exception, Workspace};

const LAYERS: &str = "xtask/layers.toml";
const OWN_NAME: &str = "exceptions_are_still_needed";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let exceptions = workspace.layers.exception.iter();
    exceptions
        .filter_map(|exception| problem(workspace, exception))
        .map(|message| Finding::in_file(LAYERS, message))
        .collect()
}

fn problem(workspace: &Workspace, exception: &Exception) -> Option<String> {
    let name = &exception.rule;
    // This rule itself takes no exceptions: it would have to ask itself whether they are needed.
    let mut others = RULES.iter().filter(|rule| rule.name != OWN_NAME);
    let Some(rule) = others.find(|rule| rule.name == name) else {
        return Some(format!(
            "no rule with exceptions is named {name}: correct it"
        ));
    };
    if exception.reason.trim().is_empty() {
        return Some(format!("an exception from {name} has no reason: give one"));
    }
    let file = &exception.file;
    let findings = (rule.check)(workspace);
    let used = findings
        .iter()
        .any(|finding| finding.is_accepted_by(exception));
    (!used).then(|| format!("{name} finds nothing like this in {file}: remove the exception"))
}
