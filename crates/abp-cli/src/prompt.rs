//! Asking the person at the terminal.

use std::io::stdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abp_control::{Answer, Principal};
use abp_core::AgentEventKind;
use abp_runtime::Approver;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::output::{NOTE, Output};
use crate::text::one_line;

/// The person this process belongs to, as the one who answers: by the account, which others than its
/// owner cannot choose, and by the environment only where the account has no name here.
pub(crate) fn approver(via: &str) -> Approver {
    let uid = rustix::process::getuid().as_raw();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = account_name(&accounts, uid)
        .or_else(|| std::env::var("USER").ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| format!("uid {uid}"));
    Approver {
        name,
        via: via.to_owned(),
    }
}

/// The person this process belongs to, as the one who asks.
pub(crate) fn operator() -> Principal {
    Principal::local(&approver("cli").name)
}

/// A question that the store has.
#[derive(Debug)]
pub(crate) struct Question {
    id: Uuid,
    pub(crate) tool: String,
    target: Option<String>,
    reason: String,
}

impl Question {
    /// The question that an event announces.
    pub(crate) fn of(kind: &AgentEventKind) -> Option<Self> {
        let AgentEventKind::PermissionRequested {
            tool_name,
            target,
            reason,
            approval_id,
            ..
        } = kind
        else {
            return None;
        };
        Some(Self {
            id: (*approval_id)?,
            tool: tool_name.clone(),
            target: target.clone(),
            reason: reason.clone(),
        })
    }
}

/// The name of a user in a table of accounts, one `name:password:uid:…` a line.
fn account_name(accounts: &str, uid: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The question on the terminal. Its answer is read on a thread of its own, so that the run can still be
/// cancelled and the question can time out.
#[derive(Debug)]
pub(crate) struct Prompt {
    input: Arc<Mutex<PromptInput>>,
    answers: mpsc::UnboundedSender<(Uuid, Answer)>,
    text: String,
}

/// A read of standard input cannot be given up. Where a question timed out, the read that waited for its
/// answer serves the next question, and a line that comes between two questions is no answer.
#[derive(Debug, Default)]
struct PromptInput {
    question: Option<Question>,
    is_reading: bool,
}

impl Prompt {
    /// A prompt, and the answers that it gets.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<(Uuid, Answer)>) {
        let (answers, receiver) = mpsc::unbounded_channel();
        let prompt = Self {
            input: Arc::default(),
            answers,
            text: String::new(),
        };
        (prompt, receiver)
    }

    /// Puts a question on the terminal.
    pub(crate) fn ask(&mut self, question: Question, output: &mut Output) {
        let target = question.target.as_deref();
        let target = target.map(|target| format!(" {target}"));
        let action = one_line(&format!("{}{}", question.tool, target.unwrap_or_default()));
        let why = one_line(&question.reason);
        self.text = format!("{NOTE}allow {action}?{NOTE:#} ({why}) [y/N] ");
        self.show(output);
        let mut input = locked(&self.input);
        input.question = Some(question);
        if !std::mem::replace(&mut input.is_reading, true) {
            let (input, answers) = (Arc::clone(&self.input), self.answers.clone());
            std::thread::spawn(move || read_answer(&input, &answers));
        }
    }

    /// Shows the question, for the first time or after something else was written.
    pub(crate) fn show(&self, output: &mut Output) {
        output.status(&self.text);
    }

    /// Takes the question back where it is unanswered, and ends its line.
    pub(crate) fn close(&mut self, output: &mut Output) {
        if locked(&self.input).question.take().is_some() {
            output.status("\n");
        }
    }
}

fn locked(input: &Mutex<PromptInput>) -> MutexGuard<'_, PromptInput> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_answer(input: &Mutex<PromptInput>, answers: &mpsc::UnboundedSender<(Uuid, Answer)>) {
    let mut line = String::new();
    let read = stdin().read_line(&mut line);
    let (approve, reason) = match read {
        Ok(_) if matches!(line.trim().to_lowercase().as_str(), "y" | "yes") => (true, None),
        Ok(_) => (false, None),
        Err(error) => {
            let reason = format!("the answer could not be read: {error}");
            (false, Some(reason))
        }
    };
    let mut input = locked(input);
    input.is_reading = false;
    if let Some(question) = input.question.take() {
        // The run may have ended meanwhile; then there is nobody to tell.
        drop(answers.send((question.id, Answer { approve, reason })));
    }
}

#[cfg(test)]
mod tests {
    use super::account_name;

    #[test]
    fn a_user_has_the_name_of_the_account() {
        let accounts =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:0::/:\nbob:x:10:1000::/:\n";
        let cases = [
            (0, Some("root")),
            (1000, Some("ann")),
            (10, Some("bob")),
            (1, None),
        ];
        for (uid, name) in cases {
            assert_eq!(account_name(accounts, uid).as_deref(), name);
        }
    }
}
