//! Asking the person at the terminal.

use std::io::stdin;

use abp_runtime::ApprovalRequest;

use crate::output::{NOTE, Output};
use crate::text::one_line;

/// Who is recorded to have answered.
const WHO: &str = "terminal";

/// Puts the question on the terminal. The answer is read on a thread of its own, so that the run can
/// still be cancelled and the question can time out.
pub(crate) fn ask(question: ApprovalRequest, output: &mut Output) {
    let target = question
        .target
        .as_deref()
        .map(|target| format!(" {target}"));
    let what = one_line(&format!(
        "{}{}",
        question.tool_name,
        target.unwrap_or_default()
    ));
    let why = one_line(&question.reason);
    output.status(&format!("{NOTE}allow {what}?{NOTE:#} ({why}) [y/N] "));
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdin().read_line(&mut line);
        let (approved, reason) = match read {
            Ok(_) if matches!(line.trim().to_lowercase().as_str(), "y" | "yes") => {
                (true, "approved when asked".to_owned())
            }
            Ok(_) => (false, "denied when asked".to_owned()),
            Err(error) => (false, format!("the answer could not be read: {error}")),
        };
        question.answer(approved, WHO, reason);
    });
}
