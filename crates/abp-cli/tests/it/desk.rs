//! A directory to run commands in.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Desk {
    directory: TempDir,
    home: TempDir,
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Desk {
    /// A directory with one file in it.
    pub(crate) fn new() -> Self {
        let desk = Self {
            directory: TempDir::new().unwrap(),
            home: TempDir::new().unwrap(),
        };
        desk.write("readme.txt", "hello\n");
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The home directory of the user at the desk.
    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// A path in the user's state directory; the directory itself where the name is empty.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        let state = self.home.path().join(".local/state/abp");
        match name {
            "" => state,
            name => state.join(name),
        }
    }

    /// The stages there are.
    pub(crate) fn stages(&self) -> Vec<PathBuf> {
        let all = self.home.path().join(".cache/abp/stages");
        let states = std::fs::read_dir(all).into_iter().flatten();
        let stages = states.flat_map(|state| std::fs::read_dir(state.unwrap().path()).unwrap());
        let mut stages: Vec<_> = stages.map(|stage| stage.unwrap().path()).collect();
        stages.retain(|stage| !stage.ends_with(".trash"));
        stages
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }

    /// The command, with nothing of the surroundings that could change what it does.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.started_by(Command::new(env!("CARGO_BIN_EXE_abp")), arguments)
    }

    /// Another program, in the same surroundings.
    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        self.started_by(Command::new(program), arguments)
    }

    /// The command, with no more than so many files open at a time.
    pub(crate) fn with_open_files(&self, most: u32, arguments: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_abp")]);
        self.started_by(shell, arguments)
    }

    fn started_by(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_remove("ABP_HOME")
            .env_remove("ABP_CONFIG")
            .env_remove("ABP_LISTEN")
            .env_remove("ABP_REMOTE")
            .env_remove("ABP_DATABASE_URL")
            .env_remove("ABP_STORE_KEYS")
            .env_remove("ABP_NODE")
            .env("HOME", self.home.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .env_remove("CLICOLOR_FORCE")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn abp(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.command(arguments).output().unwrap())
    }

    /// The one object that `--json` prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ran = self.abp(&[arguments, &["--json"]].concat());
        let value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", ran.stdout));
        (ran.status, value)
    }

    pub(crate) fn receipts(&self) -> Vec<PathBuf> {
        let directory = self.state("receipts");
        let Ok(entries) = std::fs::read_dir(directory) else {
            return Vec::new();
        };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        // Ids of runs begin with their time.
        paths.sort();
        paths
    }

    /// Runs the demonstration and returns its receipt.
    pub(crate) fn receipt(&self) -> PathBuf {
        let ran = self.abp(&["run", "--task", "say hello"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        self.receipts().pop().unwrap()
    }
}

impl Ran {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
