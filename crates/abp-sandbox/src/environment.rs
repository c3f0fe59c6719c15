//! The part of our own environment that programs get.

use std::ffi::OsStr;

/// Variables that every program gets. No secret is among them.
const BASE: [&str; 8] = [
    "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];
/// And every variable whose name begins so.
const BASE_PREFIX: &str = "LC_";

/// Whether a variable of ours is passed on to every program.
#[must_use]
pub fn is_base_variable(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| BASE.contains(&name) || name.starts_with(BASE_PREFIX))
}
