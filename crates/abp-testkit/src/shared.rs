//! Finds the directory of optional test data that is too large to be part of the repository.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the directory of optional test data, if there is one.
///
/// `ABP_SHARED_DIR` names it; without that variable it is the directory `shared` beside the
/// workspace root. A variable that names no directory means "none", so that a run without the
/// data can be had on a machine that has it.
pub fn shared_dir() -> Option<PathBuf> {
    let dir = match env::var_os("ABP_SHARED_DIR") {
        Some(named) => PathBuf::from(named),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(3)?
            .join("shared"),
    };
    dir.is_dir().then_some(dir)
}
