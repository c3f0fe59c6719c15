//! The escape battery: everything a program could try, under each engine, as the user of the tests and as
//! one without privileges. Each attempt has to be stopped, by the layer that `escapes.toml` names.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use abp_sandbox::{Containment, EngineChoice, Exit, SandboxRequest};
use rustix::io::FdFlags;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{finish, home, kernel, launcher, plan, request, spec};

const PYTHON: &str = "/usr/bin/python3";
const NOBODY: u32 = 65534;
/// Names the configuration that a test of another user makes.
const ELSEWHERE: &str = "ABP_TEST_ESCAPES";
const CANARY: &str = "canary";

#[derive(Deserialize)]
struct Battery {
    attempt: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    run: String,
    #[serde(default)]
    each: Vec<String>,
    namespaces: String,
    landlock: String,
    #[serde(default)]
    is_free: bool,
}

struct Attempt {
    name: String,
    program: String,
    namespaces: Stop,
    landlock: Stop,
    is_free: bool,
}

#[derive(Clone)]
struct Stop {
    layer: Layer,
    answers: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Layer {
    MountNamespace,
    PidNamespace,
    IpcNamespace,
    NetworkNamespace,
    Landlock,
    Seccomp,
    NoCapabilities,
    NoMemoryAccess,
    ClosedDescriptors,
    OwnSession,
    Environment,
    Harmless,
    Gap,
}

/// One way to confine a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cage {
    Namespaces,
    Landlock,
    /// As on a kernel that gives no namespace at all.
    LandlockWithoutNamespaces,
}

impl Stop {
    fn parse(text: &str) -> Self {
        let (layer, answers) = text.split_once(": ").expect("a layer, then its answers");
        let layer = json!(layer.replace(' ', "_"));
        Self {
            layer: serde_json::from_value(layer).expect("a known layer"),
            answers: answers.split(" or ").map(str::to_owned).collect(),
        }
    }

    fn allows(&self, outcome: &str) -> bool {
        let answer = match outcome.split_once(": ") {
            Some(("reached", _)) => "reached",
            _ => outcome,
        };
        self.answers.contains(answer)
    }
}

fn attempts() -> Vec<Attempt> {
    let battery: Battery = toml::from_str(include_str!("escapes.toml")).unwrap();
    let mut attempts = Vec::new();
    for entry in battery.attempt {
        let variants = match entry.each.as_slice() {
            [] => vec!["{}".to_owned()],
            each => each.to_vec(),
        };
        for variant in variants {
            attempts.push(Attempt {
                name: entry.name.replace("{}", &variant),
                program: entry.run.replace("{}", &variant),
                namespaces: Stop::parse(&entry.namespaces),
                landlock: Stop::parse(&entry.landlock),
                is_free: entry.is_free,
            });
        }
    }
    attempts
}

/// Directories to escape from and to, and a process to get hold of.
struct Scene {
    place: tempfile::TempDir,
    canary: tempfile::NamedTempFile,
    /// A file that every process started from here inherits.
    _leaked: fs::File,
    victim: Victim,
}

struct Victim {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    told: Value,
}

impl Victim {
    fn start(directory: &Path) -> Self {
        let mut process = Command::new(PYTHON)
            .args(["-c", include_str!("victim.py")])
            .arg(directory)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Self {
            process,
            input,
            output,
            told: serde_json::from_str(&line).unwrap(),
        }
    }

    /// Everything that reached it.
    fn contacts(mut self) -> Vec<String> {
        drop(self.input);
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(self.process.wait().unwrap().success());
        serde_json::from_str(&line).unwrap()
    }
}

impl Scene {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().canonicalize().unwrap();
        for (path, content) in [
            ("state/key", CANARY),
            ("stages/run-1/tree/protected/deep/file", "content"),
            ("stages/run-1/tree/protected/directory/file", "content"),
            ("stages/run-1/tree/concealed-file", CANARY),
            ("stages/run-1/tree/concealed-directory/file", CANARY),
            ("stages/run-2/tree/file", CANARY),
            ("lent/file", CANARY),
        ] {
            let path = at.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        for directory in ["scratch", "services"] {
            fs::create_dir(at.join(directory)).unwrap();
        }
        let home = home().expect("a home directory");
        let mut canary = tempfile::Builder::new()
            .prefix(".abp-canary-")
            .tempfile_in(home.canonicalize().unwrap())
            .unwrap();
        canary.write_all(CANARY.as_bytes()).unwrap();
        let leaked = fs::File::open(at.join("state/key")).unwrap();
        rustix::io::fcntl_setfd(&leaked, FdFlags::empty()).unwrap();
        Self {
            victim: Victim::start(&at.join("services")),
            _leaked: leaked,
            place,
            canary,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(path)
    }

    fn request(&self, engine: EngineChoice) -> SandboxRequest {
        let workspace = self.at("stages/run-1/tree");
        let protected = ["protected/deep/file", "protected/directory"];
        let concealed = ["concealed-file", "concealed-directory"];
        SandboxRequest {
            engine,
            protected: protected.map(|path| workspace.join(path)).to_vec(),
            concealed: concealed.map(|path| workspace.join(path)).to_vec(),
            read_only: vec![self.at("lent")],
            scratch_bytes: Some(8 << 20),
            scratch_dir: Some(self.at("scratch")),
            ..request(&workspace)
        }
    }

    /// Writes the attempts to a file that the program can read, and returns its path.
    fn write_attempts(&self, attempts: &[&Attempt]) -> PathBuf {
        let programs: Vec<&str> = attempts.iter().map(|one| &*one.program).collect();
        let place = json!({
            "canary": self.canary.path(),
            "workspace": self.at("stages/run-1/tree"),
            "stages": self.at("stages"),
            "state": self.at("state"),
            "lent": self.at("lent"),
            "victim": self.victim.told,
        });
        let path = self.at("lent/attempts.json");
        fs::write(&path, json!([programs, place]).to_string()).unwrap();
        path
    }

    /// What must be as it was, whatever was tried.
    fn content(&self) -> Vec<(PathBuf, String)> {
        let fixed = [
            "state/key",
            "stages/run-2/tree/file",
            "lent/file",
            "stages/run-1/tree/concealed-file",
            "stages/run-1/tree/concealed-directory/file",
        ];
        let mut paths: Vec<PathBuf> = fixed.iter().map(|path| self.at(path)).collect();
        paths.push(self.canary.path().to_owned());
        let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
        paths.into_iter().map(read).collect()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for directory in ["", "state", "stages", "stages/run-2/tree", "lent"] {
            for entry in fs::read_dir(self.at(directory)).unwrap() {
                found.push(entry.unwrap().path());
            }
        }
        found.sort();
        found
    }
}

impl Cage {
    const ALL: [Self; 3] = [
        Self::Namespaces,
        Self::Landlock,
        Self::LandlockWithoutNamespaces,
    ];

    const fn engine(self) -> EngineChoice {
        match self {
            Self::Namespaces => EngineChoice::Namespaces,
            Self::Landlock | Self::LandlockWithoutNamespaces => EngineChoice::Landlock,
        }
    }

    fn stop(self, attempt: &Attempt) -> &Stop {
        match self {
            Self::Namespaces => &attempt.namespaces,
            Self::Landlock | Self::LandlockWithoutNamespaces => &attempt.landlock,
        }
    }

    /// Why the battery cannot be tried; `None` where it can.
    fn missing(self) -> Option<String> {
        if !cfg!(target_arch = "x86_64") {
            return Some("the numbers of the calls are those of x86-64".to_owned());
        }
        if !Path::new(PYTHON).exists() {
            return Some(format!("there is no {PYTHON}"));
        }
        let kernel = kernel();
        let engine = match self {
            Self::Namespaces => kernel.namespaces,
            Self::Landlock | Self::LandlockWithoutNamespaces => kernel.landlock.map(drop),
        };
        engine.and(kernel.seccomp).err()
    }

    fn skips(self) -> bool {
        let missing = self.missing();
        if let Some(reason) = &missing {
            abp_testkit::skip(&format!("escapes from {self:?}"), reason);
        }
        missing.is_some()
    }
}

/// Makes every attempt in a cage, and asserts that each was stopped as the table says.
async fn try_to_escape(cage: Cage) {
    let scene = Scene::new();
    let attempts = attempts();
    let listed = scene.write_attempts(&attempts.iter().collect::<Vec<_>>());
    let (content, entries) = (scene.content(), scene.entries());
    let plan = plan(&scene.request(cage.engine()));
    let listed = listed.to_str().unwrap();
    let mut spec = spec(plan, PYTHON, &["-c", include_str!("attempt.py"), listed]);
    if cage == Cage::LandlockWithoutNamespaces {
        spec.launcher = launcher().contained_by(Containment::Subreaper);
    }
    let (exit, output, errors) = finish(&spec).await.unwrap();
    assert_eq!(exit, Exit::Code(0), "{errors}");
    let outcomes: Vec<String> = serde_json::from_str(&output).unwrap();
    assert_eq!(outcomes.len(), attempts.len());
    let (mut wrong, mut gaps) = (Vec::new(), 0);
    for (attempt, outcome) in attempts.iter().zip(&outcomes) {
        let stop = cage.stop(attempt);
        let line = format!("{:?} {}: {outcome}", stop.layer, attempt.name);
        println!("{line}");
        gaps += usize::from(stop.layer == Layer::Gap);
        if !stop.allows(outcome) {
            wrong.push(line);
        }
    }
    println!("{} attempts, {gaps} gaps", attempts.len());
    assert!(wrong.is_empty(), "{cage:?}: {wrong:#?}");
    assert!(attempts.len() - gaps >= 40);
    // Only Landlock alone has gaps, and they are those that it is known for.
    assert!(cage != Cage::Namespaces || gaps == 0);
    assert_eq!(scene.content(), content, "something outside was changed");
    assert_eq!(scene.entries(), entries, "something outside was made");
    assert_eq!(scene.victim.contacts(), [""; 0], "something was reached");
}

#[tokio::test]
async fn d16_no_attempt_leaves_a_sandbox_of_namespaces() {
    if !Cage::Namespaces.skips() {
        try_to_escape(Cage::Namespaces).await;
    }
}

#[tokio::test]
async fn d16_no_attempt_but_the_known_gaps_leaves_landlock() {
    if !Cage::Landlock.skips() {
        try_to_escape(Cage::Landlock).await;
    }
}

#[tokio::test]
async fn d16_no_attempt_but_the_known_gaps_leaves_landlock_without_any_namespace() {
    if !Cage::LandlockWithoutNamespaces.skips() {
        try_to_escape(Cage::LandlockWithoutNamespaces).await;
    }
}

/// The same from a process that the test below starts.
#[tokio::test]
async fn the_same_elsewhere() {
    let Ok(wanted) = std::env::var(ELSEWHERE) else {
        return;
    };
    let cage = Cage::ALL
        .into_iter()
        .find(|cage| format!("{cage:?}") == wanted);
    try_to_escape(cage.unwrap()).await;
}

#[test]
fn d16_no_attempt_of_a_user_without_privileges_leaves_a_sandbox() {
    if !rustix::process::geteuid().is_root() {
        return abp_testkit::skip("another user", "it takes root to become one");
    }
    for cage in Cage::ALL {
        if let Some(reason) = cage.missing() {
            println!("{cage:?}: {reason}");
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let [temporary, home] = ["tmp", "home"].map(|name| place.path().join(name));
        for directory in [&temporary, &home] {
            fs::create_dir(directory).unwrap();
            chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "escapes::the_same_elsewhere", "--nocapture"])
            .env(ELSEWHERE, format!("{cage:?}"))
            .env("TMPDIR", &temporary)
            .env("HOME", &home)
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("{text}");
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{cage:?}: {text}{errors}"
        );
    }
}

/// The control: without a sandbox the attempts that anybody may make reach what they are after, so none of
/// them is stopped by a mistake in its own program.
#[test]
fn without_a_sandbox_the_same_attempts_succeed() {
    if let Some(reason) = Cage::Namespaces.missing() {
        return abp_testkit::skip("the control of the escapes", &reason);
    }
    let scene = Scene::new();
    let attempts = attempts();
    let free: Vec<&Attempt> = attempts.iter().filter(|one| one.is_free).collect();
    let listed = scene.write_attempts(&free);
    let output = Command::new(PYTHON)
        .args(["-c", include_str!("attempt.py")])
        .arg(listed)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let outcomes: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    let pairs = free.iter().zip(&outcomes);
    let stopped: Vec<_> = pairs
        .filter(|(_, outcome)| !outcome.starts_with("reached: "))
        .map(|(attempt, outcome)| (&attempt.name, outcome))
        .collect();
    println!("{} attempts", free.len());
    assert!(stopped.is_empty(), "{stopped:#?}");
    assert!(free.len() >= 40);
    assert!(!scene.victim.contacts().is_empty());
}
