//! Applications that are killed for real: the test runs itself as a child, kills it at a random
//! moment, and recovers. The end is all of it, or none of it plus the saves of the user.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use abp_testkit::skip;
use abp_workspace::{
    Application, ApplyJournal, ApplyPhase, BeforeImage, ChangeSet, Error, RecoveryOutcome, recover,
};
use uuid::Uuid;

use crate::fixture::{Fixture, build, chmod, image_of, snapshot, stored_change_set};

const CHILD: &str = "ABP_TEST_CRASH_CHILD";
const CHILD_ARGUMENTS: [&str; 3] = ["--exact", "crash::child", "--nocapture"];
const KILLS: u64 = 200;
const SAVE: &str = "a save of the user\n";

type Tree = BTreeMap<Vec<u8>, String>;

/// A prepared application in files, for a child to find.
struct Scene {
    fixture: Fixture,
    before: Tree,
    after: Tree,
    desk: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let fixture = Fixture::in_memory(&[]);
        build_source(&fixture.source());
        let workspace = fixture.prepare();
        change(workspace.root());
        let after = snapshot(workspace.root());
        let changes = workspace.changes().expect("changes");
        let (set, images) = stored_change_set(&workspace, &changes).expect("change set");
        let desk = fixture.outside();
        fs::create_dir(&desk).expect("desk");
        fs::write(desk.join("set"), set.to_document().expect("document")).expect("set");
        fs::write(desk.join("tree"), workspace.root().to_str().expect("utf-8")).expect("tree");
        for image in &images {
            fs::write(desk.join(image.sha256_hex()), &image.bytes).expect("image");
        }
        drop(workspace);
        Self {
            before: snapshot(&fixture.source()),
            after,
            desk,
            fixture,
        }
    }

    /// Makes the source what it was at the start; it stays the same directory.
    fn reset(&self) {
        let source = self.fixture.source();
        for (path, shown) in snapshot(&source) {
            if shown.starts_with("dir ") {
                chmod(&source.join(crate::fixture::path(&path)), 0o755);
            }
        }
        for entry in fs::read_dir(&source).expect("source") {
            let path = entry.expect("entry").path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).expect("removed");
            } else {
                fs::remove_file(path).expect("removed");
            }
        }
        build_source(&source);
        assert_eq!(snapshot(&source), self.before);
        for name in ["journal", "journal.new", "done"] {
            drop(fs::remove_file(self.desk.join(name)));
        }
    }

    fn command(&self, task: &str, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(CHILD, format!("{task} {}", self.desk.display()));
        command
    }

    /// A child that applies under a tracer, which does something to one of its calls.
    fn traced(&self, call: &str, injected: &str) -> Command {
        let mut command = self.command("apply", Path::new("strace"));
        command
            .args(["-f", "--quiet=all", "-o", "/dev/null", "-e"])
            .arg(format!("trace={call}"))
            .arg("-e")
            .arg(format!("inject={call}:{injected}"))
            .arg(own_program())
            .args(CHILD_ARGUMENTS)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Starts a child and waits until it is about to begin. Its output stays open for as long as the
    /// reader does.
    fn start(&self, task: &str) -> (Child, BufReader<ChildStdout>) {
        let mut child = self
            .command(task, &own_program())
            .args(CHILD_ARGUMENTS)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("child");
        let mut output = BufReader::new(child.stdout.take().expect("output"));
        let mut lines = output.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("ready")), "child is ready");
        (child, output)
    }

    /// Kills the child of a tracer, which would go on without it.
    fn kill_traced(&self) {
        let pid = fs::read_to_string(self.desk.join("pid")).expect("pid");
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a number"));
        let killed =
            rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL);
        killed.expect("killed");
    }

    fn journal(&self) -> Option<ApplyJournal> {
        let document = fs::read(self.desk.join("journal")).ok()?;
        Some(ApplyJournal::from_document(&document).expect("journal"))
    }

    /// Checks that the source is whole, and that nothing temporary is left.
    fn check(&self, case: &str, saved: Option<&str>) -> bool {
        let found = snapshot(&self.fixture.source());
        let with_save = |tree: &Tree| {
            let mut tree = tree.clone();
            if let Some(path) = saved {
                tree.insert(
                    path.as_bytes().to_vec(),
                    format!("file 644 {}", SAVE.escape_debug()),
                );
            }
            tree
        };
        let (before, after) = (with_save(&self.before), with_save(&self.after));
        assert!(
            found == before || found == after,
            "{case}: half applied: {found:#?}"
        );
        found == after
    }
}

fn own_program() -> PathBuf {
    std::env::current_exe().expect("own program")
}

fn build_source(root: &Path) {
    for number in 0..12 {
        build(
            root,
            &[
                (&format!("edited/{number}"), &format!("old {number}\n")),
                (&format!("deleted/{number}"), &format!("deleted {number}\n")),
            ],
        );
    }
    build(
        root,
        &[
            ("text/merged", "1\n2\n3\n4\n5\n"),
            ("file-to-dir", "was a file\n"),
            ("dir-to-file/a", "a\n"),
            ("dir-to-file/b/c", "c\n"),
            ("gone/deep/x", "x\n"),
            ("link", "-> text/merged"),
            ("mode", "mode\n"),
        ],
    );
}

fn change(root: &Path) {
    for number in 0..12 {
        build(
            root,
            &[(
                &format!("edited/{number}"),
                &format!("new {number}, longer\n"),
            )],
        );
        build(
            root,
            &[(&format!("new/{}/{number}", number % 3), "created\n")],
        );
        fs::remove_file(root.join(format!("deleted/{number}"))).expect("removed");
    }
    fs::remove_file(root.join("file-to-dir")).expect("removed");
    fs::remove_dir_all(root.join("dir-to-file")).expect("removed");
    fs::remove_dir_all(root.join("gone")).expect("removed");
    fs::remove_file(root.join("link")).expect("removed");
    build(
        root,
        &[
            ("deleted/kept", "so that the directory stays\n"),
            ("file-to-dir/x/y", "now in a directory\n"),
            ("dir-to-file", "now a file\n"),
            ("link", "-> mode"),
            ("text/merged", "1\n2\nthree\n4\n5\n"),
        ],
    );
    chmod(&root.join("mode"), 0o755);
    chmod(&root.join("new/1"), 0o500);
    chmod(&root.join("text"), 0o700);
}

/// The child: applies or recovers with a file as its journal. Without its variable it is no test.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let (task, desk) = order.split_once(' ').expect("a task and a directory");
    let desk = Path::new(desk);
    fs::write(desk.join("pid"), std::process::id().to_string()).expect("pid");
    println!("ready");
    match task {
        "apply" => apply(desk),
        "recover" => {
            let document = fs::read(desk.join("journal")).expect("journal");
            let journal = ApplyJournal::from_document(&document).expect("journal");
            recover(&journal).expect("recovered");
        }
        task => panic!("{task}"),
    }
}

fn apply(desk: &Path) {
    let set = fs::read(desk.join("set")).expect("set");
    let set = ChangeSet::from_document(&set).expect("set");
    let tree = PathBuf::from(fs::read_to_string(desk.join("tree")).expect("tree"));
    let image = |hash: &[u8; 32]| {
        let mut image = BeforeImage {
            sha256: *hash,
            bytes: Vec::new(),
        };
        image.bytes = fs::read(desk.join(image.sha256_hex())).ok()?;
        Some(image.bytes)
    };
    let application = Application::begin(&tree, &set, &[], image).expect("planned");
    write_journal(desk, application.journal());
    let application = application.stage_contents().expect("staged");
    write_journal(desk, application.journal());
    let application = application.commit().expect("committed");
    write_journal(desk, application.journal());
    application.clean_up().expect("cleaned up");
    fs::remove_file(desk.join("journal")).expect("journal");
    fs::write(desk.join("done"), "").expect("done");
}

fn write_journal(desk: &Path, journal: &ApplyJournal) {
    let mut file = File::create(desk.join("journal.new")).expect("journal");
    let document = journal.to_document().expect("document");
    file.write_all(&document).expect("journal");
    file.sync_all().expect("journal");
    fs::rename(desk.join("journal.new"), desk.join("journal")).expect("journal");
}

/// Random delays, from a seed that a failure prints.
struct Delays(u64);

impl Delays {
    fn new() -> Self {
        let seed = Uuid::new_v4().as_u64_pair().0 | 1;
        println!("seed {seed}");
        Self(seed)
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }

    /// Kills a child somewhere in the time that its whole task takes.
    fn kill(&mut self, started: (Child, BufReader<ChildStdout>), whole: Duration) {
        let (mut child, _output) = started;
        let micros = u64::try_from(whole.as_micros()).expect("a short time");
        let moment = Instant::now() + Duration::from_micros(self.next(micros + micros / 10));
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}

/// The time an application takes when nothing stops it.
fn whole_time(scene: &Scene) -> Duration {
    let (mut child, _output) = scene.start("apply");
    let started = Instant::now();
    assert!(child.wait().expect("reaped").success());
    let took = started.elapsed();
    assert!(scene.desk.join("done").exists());
    assert!(scene.check("undisturbed", None), "applied");
    took
}

/// How often the kill came in each phase.
#[derive(Debug, Default)]
struct Phases {
    preparing: u64,
    committing: u64,
    other: u64,
}

impl Phases {
    fn count(&mut self, journal: Option<&ApplyJournal>) {
        match journal.map(ApplyJournal::phase) {
            Some(ApplyPhase::Preparing) => self.preparing += 1,
            Some(ApplyPhase::Committing) => self.committing += 1,
            _ => self.other += 1,
        }
    }

    /// A test in which no kill hits is none.
    fn check(&self) {
        println!("{self:?}");
        assert!(self.preparing > 0 && self.committing > 0, "{self:?}");
    }
}

#[test]
fn an_application_killed_at_any_moment_is_whole_after_recovery() {
    let scene = Scene::new();
    let whole = whole_time(&scene);
    let (mut delays, mut phases) = (Delays::new(), Phases::default());
    for kill in 0..KILLS {
        let case = format!("kill {kill}");
        scene.reset();
        delays.kill(scene.start("apply"), whole);
        let journal = scene.journal();
        phases.count(journal.as_ref());
        let Some(journal) = journal else {
            let is_applied = scene.check(&case, None);
            assert!(is_applied || !scene.desk.join("done").exists(), "{case}");
            continue;
        };
        let recovered = recover(&journal).expect(&case);
        let is_applied = scene.check(&case, None);
        let expected = match journal.phase() {
            ApplyPhase::Preparing => RecoveryOutcome::NothingWritten,
            _ => RecoveryOutcome::Applied,
        };
        assert_eq!(recovered, expected, "{case}");
        assert_eq!(is_applied, recovered == RecoveryOutcome::Applied, "{case}");
        let again = recover(&journal).expect(&case);
        assert_eq!(again, expected, "{case}: once more");
        scene.check(&case, None);
    }
    phases.check();
}

#[test]
fn a_save_before_recovery_is_kept_and_everything_else_rolls_back() {
    let paths = [
        "edited/3",
        "edited/11",
        "deleted/5",
        "mode",
        "text/merged",
        "deleted/kept",
    ];
    let scene = Scene::new();
    let whole = whole_time(&scene);
    let (mut delays, mut phases) = (Delays::new(), Phases::default());
    for kill in 0..KILLS {
        let saved = paths[usize::try_from(delays.next(paths.len() as u64)).expect("index")];
        let case = format!("kill {kill}, save of {saved}");
        scene.reset();
        delays.kill(scene.start("apply"), whole);
        let path = scene.fixture.source().join(saved);
        if delays.next(2) == 0 {
            fs::write(&path, SAVE).expect("saved in place");
        } else {
            fs::write(path.with_extension("swp"), SAVE).expect("saved beside");
            fs::rename(path.with_extension("swp"), &path).expect("saved");
        }
        chmod(&path, 0o644);
        let journal = scene.journal();
        phases.count(journal.as_ref());
        if let Some(journal) = journal {
            let recovered = recover(&journal).expect(&case);
            if journal.phase() == ApplyPhase::Committing {
                let saves = vec![PathBuf::from(saved)];
                assert_eq!(recovered, RecoveryOutcome::RolledBack { saves }, "{case}");
                assert!(!scene.check(&case, Some(saved)), "{case}");
            }
        }
        scene.check(&case, Some(saved));
    }
    phases.check();
}

#[test]
fn recovery_may_be_killed_as_well() {
    let scene = Scene::new();
    let (whole, mut delays) = (whole_time(&scene), Delays::new());
    let mut killed = 0;
    for kill in 0..KILLS / 2 {
        let saved = (kill % 2 == 0).then_some("edited/7");
        let case = format!("kill {kill}, save of {saved:?}");
        scene.reset();
        delays.kill(scene.start("apply"), whole);
        if let Some(path) = saved {
            fs::write(scene.fixture.source().join(path), SAVE).expect("saved");
        }
        let Some(journal) = scene.journal() else {
            continue;
        };
        for _ in 0..3 {
            delays.kill(scene.start("recover"), whole);
            killed += 1;
        }
        let recovered = recover(&journal).expect(&case);
        let is_applied = scene.check(&case, saved);
        let expected = match journal.phase() {
            ApplyPhase::Preparing => false,
            ApplyPhase::Committing => saved.is_none(),
            _ => true,
        };
        assert_eq!(is_applied, expected, "{case}: {recovered:?}");
    }
    assert!(killed > KILLS / 4, "recovery was killed {killed} times");
}

/// A user who saves while an application runs loses nothing, and sees all of it or none.
#[test]
fn a_save_during_an_application_is_never_lost() {
    let (mut delays, mut rolled_back) = (Delays::new(), 0);
    let scene = Scene::new();
    for attempt in 0..60 {
        scene.reset();
        let saved = format!("edited/{}", attempt % 12);
        let path = scene.fixture.source().join(&saved);
        let delay = Duration::from_micros(delays.next(6_000));
        let set = fs::read(scene.desk.join("set")).expect("set");
        let set = ChangeSet::from_document(&set).expect("set");
        let tree = PathBuf::from(fs::read_to_string(scene.desk.join("tree")).expect("tree"));
        let applied = std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                std::thread::sleep(delay);
                fs::write(path.with_extension("swp"), SAVE).expect("saved beside");
                fs::rename(path.with_extension("swp"), &path).expect("saved");
            });
            let applied = Application::begin(&tree, &set, &[], image_of(&[]))
                .and_then(Application::stage_contents)
                .and_then(abp_workspace::StagedApplication::commit)
                .and_then(abp_workspace::CommittedApplication::clean_up);
            user.join().expect("user");
            applied
        });
        let is_applied = scene.check(&format!("{saved} {delay:?}"), Some(&saved));
        assert_eq!(is_applied, applied.is_ok(), "{applied:?}");
        rolled_back += u32::from(!is_applied);
    }
    println!("{rolled_back} of 60 rolled back");
}

/// Every call that changes a name or a mode is the last one once. The first call that no child makes
/// any more ends the row.
#[test]
fn an_application_killed_before_any_single_call_is_whole_after_recovery() {
    let scene = Scene::new();
    for (call, step) in [
        ("renameat", 1),
        ("renameat2", 1),
        ("mkdirat", 1),
        ("fchmod", 4),
        ("unlinkat", 5),
    ] {
        let mut number = 1;
        loop {
            scene.reset();
            let case = format!("{call} {number}");
            let injected = format!("signal=KILL:when={number}");
            let status = scene.traced(call, &injected).status();
            let Some(status) = status.ok().filter(|status| status.code() != Some(1)) else {
                return skip(
                    "an_application_killed_before_any_single_call_is_whole_after_recovery",
                    "strace cannot be run",
                );
            };
            if status.success() {
                break;
            }
            let saved = (number % 2 == 0).then_some("edited/7");
            if let Some(path) = saved {
                fs::write(scene.fixture.source().join(path), SAVE).expect("saved");
            }
            let journal = scene.journal();
            let expected = match journal.as_ref().map(ApplyJournal::phase) {
                None => scene.desk.join("done").exists(),
                Some(ApplyPhase::Preparing) => false,
                Some(ApplyPhase::Committing) => saved.is_none(),
                Some(_) => true,
            };
            if let Some(journal) = journal {
                recover(&journal).expect(&case);
            }
            assert_eq!(scene.check(&case, saved), expected, "{case}");
            number += step;
        }
        assert!(number > 1, "{call} is never made");
    }
}

/// The user saves while one exchange of names is under way, which therefore displaces the save, and
/// the process may be killed before it looks.
#[test]
fn a_save_that_an_exchange_displaces_comes_back() {
    let scene = Scene::new();
    let mut edited: Vec<String> = (0..12).map(|number| format!("edited/{number}")).collect();
    edited.sort();
    // Two new names come first, then the exchanges of the edited files.
    let exchanges = edited.iter().zip(3..).step_by(3);
    for ((saved, number), is_killed) in
        exchanges.flat_map(|exchange| [(exchange, false), (exchange, true)])
    {
        scene.reset();
        let case = format!("exchange of {saved}, killed {is_killed}");
        let delays = format!("delay_enter=200ms:delay_exit=200ms:when={number}");
        let Ok(mut child) = scene.traced("renameat2", &delays).spawn() else {
            return skip(
                "a_save_that_an_exchange_displaces_comes_back",
                "strace cannot be run",
            );
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while scene.journal().map(|journal| journal.phase()) != Some(ApplyPhase::Committing) {
            assert!(Instant::now() < deadline, "{case}: strace cannot trace");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(60));
        fs::write(scene.fixture.source().join(saved), SAVE).expect("saved");
        if is_killed {
            std::thread::sleep(Duration::from_millis(240));
            scene.kill_traced();
        }
        child.wait().expect("reaped");
        let journal = scene.journal().expect("journal");
        let recovered = loop {
            match recover(&journal) {
                Err(Error::Busy { .. }) => std::thread::sleep(Duration::from_millis(20)),
                recovered => break recovered.expect(&case),
            }
        };
        assert!(
            matches!(recovered, RecoveryOutcome::RolledBack { .. }),
            "{case}"
        );
        assert!(!scene.check(&case, Some(saved)), "{case}");
    }
}
