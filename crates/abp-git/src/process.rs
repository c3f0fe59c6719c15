//! Runs a command to its end or for as long as it may take, and keeps the end of what it says.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Error;

/// As much of the error output is kept.
const MAX_STDERR_BYTES: usize = 2 * 1024;
/// How long to wait for the rest of the output of a command that has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// Until when everything has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    limit: Duration,
    started: Instant,
}

impl Deadline {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            started: Instant::now(),
        }
    }

    fn is_over(&self) -> bool {
        self.started.elapsed() >= self.limit
    }
}

/// Runs a command; `step` names it in errors.
pub(crate) fn run(
    mut command: Command,
    step: &'static str,
    deadline: Deadline,
) -> Result<(), Error> {
    let failed = |source| Error::Run { step, source };
    let timed_out = || Error::TimedOut {
        step,
        limit: deadline.limit,
    };
    if deadline.is_over() {
        return Err(timed_out());
    }
    // A group of its own, so that whatever it started ends with it.
    let mut child = command.process_group(0).spawn().map_err(failed)?;
    let stderr = child.stderr.take().map(read_tail);
    let mut nap = Duration::from_micros(200);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if deadline.is_over() => {
                end(&mut child).map_err(failed)?;
                return Err(timed_out());
            }
            Ok(None) => {}
            Err(source) => {
                // Nothing more can be learnt of it, but it must not stay.
                drop(end(&mut child));
                return Err(failed(source));
            }
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(LONGEST_NAP);
    };
    if status.success() {
        return Ok(());
    }
    let said = stderr.and_then(|tail| tail.recv_timeout(LAST_WORDS).ok());
    Err(Error::Failed {
        step,
        stderr: shown(&said.unwrap_or_default()).unwrap_or_else(|| status.to_string()),
    })
}

/// Kills a command with everything it started, and waits for it.
fn end(child: &mut Child) -> io::Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait().map(drop)
}

/// Reads everything and keeps the end.
fn read_tail(mut stderr: ChildStderr) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut tail = VecDeque::new();
        let mut buffer = [0; 1024];
        while let Ok(count) = stderr.read(&mut buffer) {
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            tail.extend(bytes);
            let excess = tail.len().saturating_sub(MAX_STDERR_BYTES);
            tail.drain(..excess);
        }
        // Nobody may be waiting for it any more.
        drop(sender.send(Vec::from(tail)));
    });
    receiver
}

/// One line of harmless text; none where there is nothing to show.
fn shown(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let safe: String = text
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    let words: Vec<&str> = safe.split_whitespace().collect();
    Some(words.join(" ")).filter(|text| !text.is_empty())
}
