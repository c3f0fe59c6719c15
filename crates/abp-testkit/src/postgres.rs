//! A private Postgres from the system's packages.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// The users that a server is run as where the tests are root's, which no server accepts.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// A Postgres server of its own, reached by a socket in a private directory. It is stopped, and all it
/// has is removed, when this is dropped.
#[derive(Debug)]
pub struct PrivatePostgres {
    directory: tempfile::TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    durable: bool,
    server: Option<Child>,
}

impl PrivatePostgres {
    /// Starts a server that does not sync its files: what it has survives its clients, not the machine.
    ///
    /// # Errors
    /// Says why there is none: a reason to skip.
    pub fn start() -> Result<Self, String> {
        Self::make(false)
    }

    /// Starts a server that syncs, as one in use does.
    ///
    /// # Errors
    /// Says why there is none: a reason to skip.
    pub fn start_durable() -> Result<Self, String> {
        Self::make(true)
    }

    fn make(durable: bool) -> Result<Self, String> {
        let programs = find_programs().ok_or("no Postgres is installed")?;
        let told = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let user = unprivileged_user().map_err(told("the tests' user"))?;
        let directory = tempfile::tempdir().map_err(told("a directory"))?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(directory.path(), private).map_err(told("a directory"))?;
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid))
                .map_err(told("a directory of the server's user"))?;
        }
        let mut postgres = Self {
            directory,
            programs,
            user,
            durable,
            server: None,
        };
        let made = postgres
            .command("initdb")
            .args(["--username=abp", "--auth=trust", "--encoding=UTF8"])
            .args(["--locale=C", "--no-sync", "--pgdata"])
            .arg(postgres.data())
            .stderr(Stdio::piped())
            .output()
            .map_err(told("initdb"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("initdb failed: {said}"));
        }
        postgres.run()?;
        Ok(postgres)
    }

    /// Where it is reached.
    #[must_use]
    pub fn url(&self) -> String {
        let directory = self.directory.path().display();
        format!("postgres://abp@localhost/postgres?host={directory}")
    }

    /// Stops the server as `kill -9` would stop it, or in order, and starts it again.
    ///
    /// # Errors
    /// Says why it does not start.
    pub fn restart(&mut self, in_order: bool) -> Result<(), String> {
        self.stop(in_order);
        self.run()
    }

    /// Stops the server: in order, or at once and without a word to its clients.
    pub fn stop(&mut self, in_order: bool) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let mode = if in_order { "fast" } else { "immediate" };
        let stopped = self
            .command("pg_ctl")
            .args(["stop", "--mode", mode, "--pgdata"])
            .arg(self.data())
            .output();
        if !stopped.is_ok_and(|stopped| stopped.status.success()) {
            drop(server.kill());
        }
        drop(server.wait());
    }

    /// Starts the server, after [`stop`](Self::stop).
    ///
    /// # Errors
    /// Says why it does not start.
    pub fn run(&mut self) -> Result<(), String> {
        let log = self.directory.path().join("server.log");
        let output = fs::File::create(&log).map_err(|error| error.to_string())?;
        let fsync = if self.durable {
            "fsync=on"
        } else {
            "fsync=off"
        };
        let server = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.directory.path())
            .args(["-c", "listen_addresses=", "-c", fsync])
            .args(["-c", "max_connections=200", "-c", "log_min_messages=fatal"])
            .stderr(output)
            .spawn()
            .map_err(|error| error.to_string())?;
        self.server = Some(server);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let asked = self
                .command("pg_isready")
                .args(["--quiet", "--host"])
                .arg(self.directory.path())
                .status();
            if asked.is_ok_and(|status| status.success()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        Err(format!("the server did not start: {said}"))
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.stop(true);
    }
}

/// The directory with the server's programs: of the newest release that is installed.
fn find_programs() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut releases: Vec<(u32, PathBuf)> = installed
        .flatten()
        .filter_map(|entry| {
            let release = entry.file_name().to_str()?.parse().ok()?;
            Some((release, entry.path().join("bin")))
        })
        .collect();
    releases.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest_first = releases.into_iter().rev().map(|(_, programs)| programs);
    newest_first
        .chain(std::env::split_paths(&path))
        .find(|programs| is_server(programs))
}

fn is_server(programs: &Path) -> bool {
    ["postgres", "initdb", "pg_ctl", "pg_isready"]
        .iter()
        .all(|program| programs.join(program).is_file())
}

/// The user and group that a server is run as; `None` where it can be run as who runs the tests.
fn unprivileged_user() -> io::Result<Option<(u32, u32)>> {
    use std::os::unix::fs::MetadataExt as _;
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    if !is_root {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((uid, gid))
    };
    let found = UNPRIVILEGED.into_iter().find_map(find);
    let missing = || io::Error::other("it is root, and there is no user postgres or nobody");
    found.map(Some).ok_or_else(missing)
}
