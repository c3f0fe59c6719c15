//! The one place that prints.

use std::fmt::Display;

/// Prints one line of a task's result.
#[expect(
    clippy::print_stdout,
    reason = "the tasks are a command line tool; their results belong on standard output"
)]
pub(crate) fn say(line: impl Display) {
    println!("{line}");
}

/// Prints one line about what is being done, apart from the result.
#[expect(
    clippy::print_stderr,
    reason = "a result on standard output can be read by another program"
)]
pub(crate) fn progress(line: impl Display) {
    eprintln!("{line}");
}

/// Prints one line about what went wrong.
#[expect(
    clippy::print_stderr,
    reason = "the tasks are a command line tool; their failures belong on standard error"
)]
pub(crate) fn complain(line: impl Display) {
    eprintln!("error: {line}");
}
