//! The environment of a sidecar: what it needs to run, what it was given, and its mark.

use std::collections::BTreeMap;
use std::ffi::OsString;

use abp_sandbox::is_base_variable;

/// The variable that marks a sidecar and all its descendants with an id of their own.
pub const SIDECAR_ID: &str = "ABP_SIDECAR_ID";

/// A variable that sidecars get besides those of every program.
const LANGUAGE: &str = "LANGUAGE";
/// Variables whose names begin so are ABP's own. No loader and no runtime looks at them, so the
/// launcher can have them too, and be found by them.
const MARK_PREFIX: &str = "ABP_";

type Variables = BTreeMap<OsString, OsString>;

/// All of a sidecar's environment: its variables, and the marks that its launcher has as well.
pub(crate) fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    given: &BTreeMap<String, String>,
    id: &str,
) -> (Variables, Variables) {
    let passed_on = |name: &OsString| is_base_variable(name) || name == LANGUAGE;
    let is_mark = |name: &&String| name.starts_with(MARK_PREFIX);
    let (marks, given): (BTreeMap<_, _>, BTreeMap<_, _>) =
        given.iter().partition(|(name, _)| is_mark(name));
    let owned = |(name, value): (&String, &String)| (name.into(), value.into());
    let variables = inherited
        .filter(|(name, _)| passed_on(name))
        .chain(given.into_iter().map(owned));
    let id = (SIDECAR_ID.into(), id.into());
    let marks = marks.into_iter().map(owned).chain([id]);
    (variables.collect(), marks.collect())
}
