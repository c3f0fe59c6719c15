//! Processes that a task starts and looks after.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest until a server listens.
const LONGEST_START: Duration = Duration::from_secs(20);
/// How long a process that takes too long has to end in order.
const LONGEST_END: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A process that ends with its owner.
pub(crate) struct Running {
    child: Child,
    /// Where its standard output goes.
    said: PathBuf,
}

impl Running {
    /// Starts a process; what it says is in files of its name.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let said = folder.join(format!("{name}.stdout"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&said)?)
            .stderr(File::create(folder.join(format!("{name}.stderr")))?)
            .spawn()
            .with_context(|| format!("the {name} cannot be started"))?;
        Ok(Self { child, said })
    }

    /// Waits until it has said something in particular.
    pub(crate) fn tells(&self, find: fn(&str) -> Option<&str>) -> Result<String> {
        let start = Instant::now();
        while start.elapsed() < LONGEST_START {
            if let Some(found) = find(&fs::read_to_string(&self.said)?) {
                return Ok(found.to_owned());
            }
            std::thread::sleep(PAUSE);
        }
        bail!("it does not start; see {}", self.said.display())
    }

    /// Waits for its end, so long.
    pub(crate) fn ended(&mut self, longest: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < longest {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
        // A request, so that it can end what it started.
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        std::thread::sleep(LONGEST_END);
        bail!("it did not end within {} s", longest.as_secs())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Where `abp serve --json` says that it listens.
pub(crate) fn listening(said: &str) -> Option<&str> {
    member(said, "listening")
}

/// The key that `abp serve --json` says it takes.
pub(crate) fn key(said: &str) -> Option<&str> {
    member(said, "key")
}

fn member<'s>(said: &'s str, name: &str) -> Option<&'s str> {
    let (_, rest) = said.split_once(&format!("\"{name}\": \""))?;
    Some(rest.split_once('"')?.0)
}
