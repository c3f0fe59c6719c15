//! The environment of a sidecar: what it needs to run, what it was given, and its mark.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The variable that marks a sidecar and all its descendants with an id of their own.
pub const SIDECAR_ID: &str = "ABP_SIDECAR_ID";

/// Variables that every sidecar gets from the host. No secret is among them.
const PASSED_ON: &[&str] = &[
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];
/// And every variable whose name begins so.
const PASSED_ON_PREFIX: &str = "LC_";

/// All of a sidecar's environment.
pub(crate) fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    given: &BTreeMap<String, String>,
    id: &str,
) -> BTreeMap<OsString, OsString> {
    let passed_on = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with(PASSED_ON_PREFIX))
    };
    let given = given
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let mark = (SIDECAR_ID.into(), id.into());
    inherited
        .filter(|(name, _)| passed_on(name))
        .chain(given)
        .chain([mark])
        .collect()
}
