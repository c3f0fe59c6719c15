//! Places at which a test can have the process die, to prove that a crash there loses nothing.
//!
//! Only in builds with debug assertions: a release does not look at the variable at all.

/// The variable that names the place.
#[cfg(debug_assertions)]
const DIE_AT: &str = "ABP_TEST_DIE_AT";

/// Dies without any clean-up if this is the place; in a release it goes on.
#[cfg(debug_assertions)]
pub fn may_die(place: &str) {
    if std::env::var_os(DIE_AT).is_some_and(|named| named == place) {
        std::process::abort();
    }
}

/// Goes on.
#[cfg(not(debug_assertions))]
pub fn may_die(_: &str) {}
