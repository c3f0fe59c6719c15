//! The end of the process behind a failed run, in a few lines.

use abp_error::AbpErrorDto;

use crate::output::Output;
use crate::text::one_line;

/// The most lines of standard error that are shown; the receipt has more.
const MAX_LINES: usize = 20;
/// The most characters of such a line that are shown.
const MAX_CHARACTERS: usize = 200;

/// Prints the exit status of the process and the end of its standard error, where the error has them.
pub(super) fn print(error: &AbpErrorDto, output: &mut Output) {
    let text = |name: &str| error.context.get(name).and_then(|value| value.as_str());
    if let Some(exit) = text("exit") {
        output.field("exit", &clip(exit));
    } else if let Some(code) = number(error, "exit_code") {
        output.field("exit", &format!("exit code {code}"));
    } else if let Some(signal) = number(error, "signal") {
        output.field("exit", &format!("signal {signal}"));
    }
    let Some(tail) = text("stderr_tail") else {
        return;
    };
    let lines: Vec<&str> = tail.lines().collect();
    let left_out = lines.len().saturating_sub(MAX_LINES);
    let note = match left_out {
        0 => String::new(),
        left_out => format!("the last {MAX_LINES} lines; the receipt has {left_out} more"),
    };
    output.field("stderr", &note);
    for line in lines.iter().skip(left_out) {
        output.line(&format!("  | {}", clip(line)));
    }
}

fn number(error: &AbpErrorDto, name: &str) -> Option<i64> {
    error.context.get(name)?.as_i64()
}

/// One line that is safe for a terminal and not too long for it.
fn clip(text: &str) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(MAX_CHARACTERS).collect();
    let mark = match characters.next() {
        Some(_) => "…",
        None => "",
    };
    format!("{}{mark}", one_line(&start))
}
