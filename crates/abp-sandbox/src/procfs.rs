//! What the kernel says about processes, and ending one without ever hitting a stranger.
//!
//! A process id alone names nobody: ids are used again. A process is named here by its id and its
//! start time, and signalled through a descriptor that was checked to be that very process.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that cannot be confused with another one of the same boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// Its id.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessId {
    /// The process of that id, where there is one.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let start_time = Stat::read(pid)?.start_time;
        Some(Self { pid, start_time })
    }

    /// Whether it still runs. A process that only waits to be collected does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid)
            .is_some_and(|stat| stat.start_time == self.start_time && stat.state != b'Z')
    }

    /// Whether its environment at its start had `name=value`. A process whose environment cannot be
    /// read has not, as far as is known.
    #[must_use]
    pub fn carries(self, name: &str, value: &str) -> bool {
        // Checked after reading: what was read belongs to this process.
        has_variable(self.pid, &format!("{name}={value}")) && self.is_alive()
    }

    /// Kills it; does nothing where it is gone, whichever process has its id now.
    pub fn kill(self) {
        self.kill_if(Self::is_alive);
    }

    /// Kills it where its environment at its start had `name=value`.
    pub fn kill_marked(self, name: &str, value: &str) {
        self.kill_if(|process| process.carries(name, value));
    }

    fn kill_if(self, is_right: impl Fn(Self) -> bool) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        // Checked after opening: from here on the descriptor means this process and no other.
        if is_right(self) {
            // It may end by itself meanwhile, which is just as well.
            let _ = pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
}

/// The id of this boot: start times compare only within one.
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Every process whose environment at its start had `name=value`, and that we may look at.
#[must_use]
pub fn with_variable(name: &str, value: &str) -> Vec<ProcessId> {
    let wanted = format!("{name}={value}");
    // Most processes have it not; only the others are looked at more closely.
    all()
        .filter(|&pid| has_variable(pid, &wanted))
        .filter_map(ProcessId::of)
        .filter(|process| process.carries(name, value))
        .collect()
}

fn has_variable(pid: i32, wanted: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|&byte| byte == 0)
        .any(|variable| variable == wanted.as_bytes())
}

/// Every descendant of a process, children first.
pub(crate) fn descendants(ancestor: i32) -> Vec<ProcessId> {
    let stats: Vec<(i32, Stat)> = all()
        .filter_map(|pid| Some((pid, Stat::read(pid)?)))
        .collect();
    let mut family = vec![ancestor];
    let mut found = Vec::new();
    let mut index = 0;
    while let Some(&parent) = family.get(index) {
        for (pid, stat) in stats.iter().filter(|(_, stat)| stat.parent == parent) {
            family.push(*pid);
            found.push(ProcessId {
                pid: *pid,
                start_time: stat.start_time,
            });
        }
        index += 1;
    }
    found
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(Path::new("/proc")).into_iter().flatten();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    state: u8,
    parent: i32,
    start_time: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name stands in brackets and may hold anything, brackets included.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            start_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("60")
            .env("ABP_TEST_PROCFS", "marked \u{e9}")
            .spawn()
            .unwrap()
    }

    #[test]
    fn c14_a_stranger_with_the_same_id_is_not_signalled() {
        let mut child = sleeper();
        let pid = i32::try_from(child.id()).unwrap();
        let real = ProcessId::of(pid).unwrap();
        let forged = ProcessId {
            start_time: real.start_time - 1,
            ..real
        };
        forged.kill();
        forged.kill_marked("ABP_TEST_PROCFS", "marked \u{e9}");
        real.kill_marked("ABP_TEST_PROCFS", "marked");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "a stranger was killed");
        assert!(real.is_alive() && !forged.is_alive());
        assert_eq!(with_variable("ABP_TEST_PROCFS", "marked \u{e9}"), [real]);
        assert!(descendants(i32::try_from(std::process::id()).unwrap()).contains(&real));
        real.kill();
        child.wait().unwrap();
        assert!(!real.is_alive());
        assert_eq!(with_variable("ABP_TEST_PROCFS", "marked \u{e9}"), []);
    }
}
