//! Ends a runner together with everything it started.
//!
//! Killing cargo alone leaves the test binaries running, and with them whatever hangs. A process group
//! of its own would not do either: nextest gives each test another one, and the interrupt of a terminal
//! would no longer reach the runner.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long processes have to end in order.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A process and the clock tick it started at: its number alone may be another process's by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    started: u64,
}

/// Asks a child and its descendants to end, and kills those that do not.
pub(super) fn end(child: &mut Child) -> io::Result<()> {
    let tree = tree(i32::try_from(child.id()).unwrap_or(i32::MAX));
    signal(&tree, Signal::TERM);
    if !have_ended(child, &tree)? {
        signal(&tree, Signal::KILL);
        child.kill()?;
        have_ended(child, &tree)?;
    }
    Ok(())
}

/// Waits for the end of all of them, for a while.
fn have_ended(child: &mut Child, tree: &[Process]) -> io::Result<bool> {
    let start = Instant::now();
    while start.elapsed() < GRACE {
        let has_ended = child.try_wait()?.is_some();
        if has_ended && !tree.iter().any(|process| process.is_alive()) {
            return Ok(true);
        }
        thread::sleep(PAUSE);
    }
    Ok(false)
}

impl Process {
    fn is_alive(self) -> bool {
        read_stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }
}

/// Those that have ended meanwhile are not there to be told.
fn signal(tree: &[Process], signal: Signal) {
    for process in tree.iter().filter(|process| process.is_alive()) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// A process and all that descend from it, as of now.
fn tree(root: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Some(Stat {
            parent, started, ..
        }) = read_stat(pid)
        else {
            continue;
        };
        let process = Process { pid, started };
        children.entry(parent).or_default().push(process);
        if pid == root {
            found.push(process);
        }
    }
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        next += 1;
    }
    found
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a program is in brackets and may contain anything, brackets too.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_confuse_its_line() {
        let numbers: Vec<_> = (3..52).map(|n| n.to_string()).collect();
        let line = format!("7 (a) S 1 (b)) S {}", numbers.join(" "));
        let expected = Stat {
            state: 'S',
            parent: 3,
            started: 21,
        };
        assert_eq!(parse_stat(&line), Some(expected));
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }
}
