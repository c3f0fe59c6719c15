//! Stages over a live source, mounted by `unshare` and `mount` as the sandbox does it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use abp_workspace::{
    ChangeKind, Error, FileKind, GitBaseline, GitLimits, PreparedWorkspace, SpecialKind,
    StageChoice, StageForm,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::fixture::{
    Fixture, Mount, apply_changes, apply_set, build, chmod, globs, snapshot, stored_change_set,
};

const NOBODY: u32 = 65534;
/// Set in the process that runs the tests as another user.
const ELSEWHERE: &str = "ABP_TEST_OVERLAY_ELSEWHERE";

fn overlay(fixture: &Fixture) -> PreparedWorkspace {
    let workspace = try_overlay(fixture).expect("workspace");
    assert_eq!(*workspace.form(), StageForm::Overlay);
    workspace
}

fn try_overlay(fixture: &Fixture) -> Result<PreparedWorkspace, Error> {
    let manager = fixture.manager.clone().with_choice(StageChoice::Overlay);
    manager.prepare(&fixture.spec, Uuid::new_v4(), &fixture.hidden)
}

/// Runs a script in an overlay, as the agent.
fn work(workspace: &PreparedWorkspace, script: &[u8]) -> Output {
    let layers = workspace.overlays().first().expect("layers");
    let lower: Vec<_> = layers.lower.iter().map(|path| path.as_os_str()).collect();
    let mut options = OsString::from("userxattr,lowerdir=");
    options.push(lower.join(std::ffi::OsStr::new(":")));
    options.push(",upperdir=");
    options.push(&layers.upper);
    options.push(",workdir=");
    options.push(&layers.work);
    let mounting =
        "mount -t overlay overlay -o \"$1\" \"$2\" && cd \"$2\" && umask 022 && exec sh -c \"$3\"";
    Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mounting,
            "sh",
        ])
        .arg(options)
        .arg(workspace.root())
        .arg(OsString::from_vec(script.to_vec()))
        .output()
        .expect("unshare")
}

fn must_work(workspace: &PreparedWorkspace, script: &str) -> String {
    let output = work(workspace, script.as_bytes());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Says plainly that a test is skipped because this user cannot mount overlays.
fn lacks_overlays(what: &str) -> bool {
    static REFUSED: OnceLock<Option<String>> = OnceLock::new();
    let refused = REFUSED.get_or_init(|| {
        let fixture = Fixture::new(&[("a", "a")]);
        let output = work(&overlay(&fixture), b"cat a");
        let errors = || String::from_utf8_lossy(&output.stderr).into_owned();
        (output.stdout != b"a").then(errors)
    });
    if let Some(reason) = refused {
        abp_testkit::skip(what, reason);
    }
    refused.is_some()
}

const NAMES: [&[u8]; 14] = [
    b"a",
    b"a/b",
    b"a/b/c",
    b"a/d",
    b"a.txt",
    b"e",
    b"e/f",
    b"e/not\xffutf8",
    b"e/with space",
    b"g/h/i",
    b"g/h",
    b"build/out",
    b"secret.key",
    b"l",
];

/// One edit, as a line of a shell script.
#[derive(Debug, Clone)]
enum Edit {
    Write(usize, &'static str),
    Append(usize, &'static str),
    Remove(usize),
    Directory(usize),
    /// Removes a directory and makes an empty one of its name.
    Replace(usize),
    /// With symbols, so that its owner can still enter a directory.
    Mode(usize, &'static str),
    Move(usize, usize),
    HardLink(usize, usize),
    Link(usize, &'static str),
    Touch(usize),
    Fifo(usize),
}

impl Edit {
    fn line(&self) -> Vec<u8> {
        let name = |index: usize| [b"'", NAMES[index], b"'"].concat();
        let parent = |index: usize| {
            let parent = Path::new(std::ffi::OsStr::from_bytes(NAMES[index])).parent();
            let parent = parent.map_or(b".".to_vec(), |path| path.as_os_str().as_bytes().to_vec());
            let parent = if parent.is_empty() {
                b".".to_vec()
            } else {
                parent
            };
            [b"mkdir -p '".as_slice(), &parent, b"' && "].concat()
        };
        match self {
            Self::Write(at, text) => [
                parent(*at),
                format!("rm -rf -- {{}} && printf '{text}' > {{}}").into_bytes(),
            ]
            .concat()
            .fill(&name(*at)),
            // A pipe that nobody reads would wait for ever.
            Self::Append(at, text) => format!("[ ! -p {{}} ] && printf '{text}' >> {{}}")
                .into_bytes()
                .fill(&name(*at)),
            Self::Remove(at) => [b"rm -rf -- ".as_slice(), &name(*at)].concat(),
            Self::Directory(at) => [b"mkdir -p -- ".as_slice(), &name(*at)].concat(),
            Self::Replace(at) => b"rm -rf -- {} && mkdir -p -- {}".to_vec().fill(&name(*at)),
            Self::Mode(at, mode) => [format!("chmod {mode} ").as_bytes(), &name(*at)].concat(),
            Self::Move(from, to) => {
                [b"mv -T -- ".as_slice(), &name(*from), b" ", &name(*to)].concat()
            }
            Self::HardLink(from, to) => {
                [b"ln -T -- ".as_slice(), &name(*from), b" ", &name(*to)].concat()
            }
            Self::Link(at, target) => [
                parent(*at),
                format!("rm -rf -- {{}} && ln -s -T '{target}' {{}}").into_bytes(),
            ]
            .concat()
            .fill(&name(*at)),
            Self::Touch(at) => {
                [b"[ -f ".as_slice(), &name(*at), b" ] && touch ", &name(*at)].concat()
            }
            Self::Fifo(at) => [b"mkfifo ".as_slice(), &name(*at)].concat(),
        }
    }
}

trait Fill {
    fn fill(&self, name: &[u8]) -> Vec<u8>;
}

impl Fill for Vec<u8> {
    /// Puts a name at each pair of braces.
    fn fill(&self, name: &[u8]) -> Vec<u8> {
        let mut filled = Self::new();
        let mut rest = self.as_slice();
        while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
            filled.extend_from_slice(&rest[..at]);
            filled.extend_from_slice(name);
            rest = &rest[at + 2..];
        }
        filled.extend_from_slice(rest);
        filled
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || 0..NAMES.len();
    let text = || prop::sample::select(vec!["", "x\\n", "x\\ny\\n", "z"]);
    let mode = prop::sample::select(vec!["u=rwX,go=rX", "u=rwX,go=", "a+x", "go-rwx"]);
    // Later edits follow links, so none may lead to a place that is there outside of the workspace.
    let outside = ["../missing/out", "/missing/etc"];
    let target = prop::sample::select([&["missing", "a", "g/h"], &outside[..]].concat());
    prop_oneof![
        4 => (at(), text()).prop_map(|(at, text)| Edit::Write(at, text)),
        2 => (at(), text()).prop_map(|(at, text)| Edit::Append(at, text)),
        3 => at().prop_map(Edit::Remove),
        1 => at().prop_map(Edit::Directory),
        2 => at().prop_map(Edit::Replace),
        2 => (at(), mode).prop_map(|(at, mode)| Edit::Mode(at, mode)),
        2 => (at(), at()).prop_map(|(from, to)| Edit::Move(from, to)),
        1 => (at(), at()).prop_map(|(from, to)| Edit::HardLink(from, to)),
        1 => (at(), target).prop_map(|(at, target)| Edit::Link(at, target)),
        1 => at().prop_map(Edit::Touch),
        1 => at().prop_map(Edit::Fifo),
    ]
}

fn script(edits: &[Edit]) -> Vec<u8> {
    let lines: Vec<Vec<u8>> = edits.iter().map(Edit::line).collect();
    lines.join(&b'\n')
}

/// The same source, edited in an overlay and in a copy.
fn check_same(start: &[Edit], edits: &[Edit]) {
    let fixture = || {
        let mut fixture = Fixture::in_memory(&[(".gitignore", "build\n")]);
        fixture.hidden = globs(&["*.key", "**/hidden"]);
        let made = Command::new("sh")
            .arg("-c")
            .arg(OsString::from_vec(
                [b"umask 022\n".as_slice(), &script(start)].concat(),
            ))
            .current_dir(fixture.source())
            .output();
        made.expect("sh");
        fixture
    };
    let (under, copied) = (fixture(), fixture());
    let (over, copy) = (overlay(&under), copied.prepare());
    assert_eq!(over.left_out(), copy.left_out());
    assert_eq!(over.hidden(), copy.hidden());
    assert_eq!(over.baseline().files(), copy.baseline().files());
    let script = script(edits);
    let before = snapshot(&under.source());
    drop(work(&over, &script));
    assert_eq!(
        snapshot(&under.source()),
        before,
        "the source is not written"
    );
    let edited = Command::new("sh")
        .arg("-c")
        .arg(OsString::from_vec(
            [b"umask 022\n".as_slice(), &script].concat(),
        ))
        .current_dir(copy.root())
        .output();
    edited.expect("sh");
    let changes = [&over, &copy].map(|workspace| workspace.changes().expect("changes"));
    let [seen, expected] = &changes;
    assert_eq!(seen.files(), expected.files());
    assert_eq!(seen.git_status(), expected.git_status());
    assert_eq!(seen.git_diff(), expected.git_diff());
    assert_eq!(seen.notes(), expected.notes());
    let (set, images) = stored_change_set(&over, seen).expect("change set");
    let (expected_set, expected_images) = stored_change_set(&copy, expected).expect("change set");
    assert_eq!(set.changes(), expected_set.changes());
    assert_eq!(images, expected_images);
    let applied = apply_set(over.root(), &set, &[], &images);
    let expected = apply_set(copy.root(), &expected_set, &[], &expected_images);
    match (applied, expected) {
        (Ok(applied), Ok(expected)) => assert_eq!(applied, expected),
        // Paths are those of each source.
        (Err(error), Err(expected)) => assert_eq!(error.code(), expected.code()),
        (applied, expected) => panic!("{applied:?} and {expected:?}"),
    }
    assert_eq!(snapshot(&under.source()), snapshot(&copied.source()));
    for workspace in [over, copy] {
        workspace.discard().expect("discarded");
    }
    for fixture in [under, copied] {
        fixture
            .manager
            .sweep_trash(std::time::Duration::from_secs(10))
            .expect("swept");
        assert_eq!((fixture.stages().len(), fixture.trash()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn overlay_and_copy_give_the_same_change_set(
        start in prop::collection::vec(edit(), 0..12),
        edits in prop::collection::vec(edit(), 0..10),
    ) {
        if !lacks_overlays("random overlays") {
            check_same(&start, &edits);
        }
    }
}

/// Runs only where the next test starts it as another user.
#[test]
fn overlays_elsewhere() {
    if std::env::var_os(ELSEWHERE).is_none() || lacks_overlays("overlays of another user") {
        return;
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let edits = || prop::collection::vec(edit(), 0..10);
    let checked = runner.run(&(edits(), edits()), |(start, edits)| {
        check_same(&start, &edits);
        Ok(())
    });
    checked.expect("the same");
}

#[test]
fn overlay_and_copy_are_the_same_for_a_user_without_privileges() {
    if !rustix::process::geteuid().is_root() {
        return abp_testkit::skip("another user", "it takes root to become one");
    }
    let temporary = tempfile::tempdir().expect("directory");
    chown(temporary.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
    let output = Command::new(std::env::current_exe().expect("program"))
        .args(["--exact", "overlay::overlays_elsewhere", "--nocapture"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env("TMPDIR", temporary.path())
        .env(ELSEWHERE, "1")
        .output()
        .expect("test");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

/// Each source of the list can only be copied, and the reason says why.
#[test]
fn sources_that_an_overlay_would_show_differently_are_copied() {
    type Prepare = fn(&mut Fixture);
    let cases: [(&str, Prepare); 5] = [
        ("set-id", |fixture| {
            chmod(&fixture.source().join("a"), 0o4755);
        }),
        ("another user", |fixture| {
            if rustix::process::geteuid().is_root() {
                chown(fixture.source().join("d/b"), Some(NOBODY), None).expect("chown");
            }
        }),
        ("attributes", |fixture| {
            let dir = fs::File::open(fixture.source().join("d")).expect("directory");
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&dir, "user.overlay.opaque", b"y", flags).expect("attribute");
        }),
        ("included", |fixture| {
            fixture.spec.include = vec!["d/**".to_owned()];
        }),
        ("more than 4096", |fixture| {
            let ignored = fixture.source().join("d");
            for number in 0..4100 {
                fs::write(ignored.join(format!("{number}.o")), "").expect("file");
            }
            fs::write(fixture.source().join(".gitignore"), "*.o\n").expect("file");
        }),
    ];
    for (expected, prepare) in cases {
        let mut fixture = Fixture::new(&[("a", "a"), ("d/b", "b")]);
        prepare(&mut fixture);
        if expected == "another user" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let workspace = try_overlay(&fixture).expect("workspace");
        let StageForm::Copy {
            reason: Some(reason),
        } = workspace.form()
        else {
            panic!("{expected}: {:?}", workspace.form());
        };
        assert!(reason.contains(expected), "{reason}");
        assert!(workspace.overlays().is_empty());
        assert!(
            workspace.root().join("d/b").exists(),
            "{expected}: it is a copy"
        );
    }
}

#[test]
fn names_that_are_left_out_are_not_seen_even_when_they_appear_later() {
    if lacks_overlays("masked names") {
        return;
    }
    let mut fixture = Fixture::new(&[
        (".gitignore", "*.log\nnode_modules\n"),
        ("x.log", "log"),
        (".env", "secret"),
        ("d/.env", "secret"),
        ("d/kept", "kept"),
        (".git/config", "config"),
        ("node_modules/m/index.js", "m"),
        ("out", "-> /etc/passwd"),
    ]);
    fixture.hidden = globs(&["**/.env", "later.key"]);
    chmod(&fixture.source().join("d"), 0o2750);
    let workspace = overlay(&fixture);
    fs::write(fixture.source().join("later.key"), "secret").expect("file");
    let seen = must_work(&workspace, "find . | sort; stat -c %a d");
    assert_eq!(seen, ".\n./.gitignore\n./d\n./d/kept\n750\n");
    must_work(
        &workspace,
        "echo mine > .env; chmod 700 d; echo more >> d/kept",
    );
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), " M d/\n M d/kept\n?? .env\n");
    let error =
        apply_changes(&workspace, &changes, &[]).expect_err("the source has one of its own");
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    apply_changes(&workspace, &changes, &["d"]).expect("applied");
    let kept = fs::read_to_string(fixture.source().join("d/kept")).expect("file");
    assert_eq!(kept, "keptmore\n");
}

/// The host resolves what an agent announces by the layers, as the agent's own calls do.
#[test]
fn paths_resolve_through_the_layers() {
    if lacks_overlays("paths in layers") {
        return;
    }
    let fixture = Fixture::new(&[
        ("a/real/file", "x"),
        ("link", "-> a/real"),
        ("gone", "-> a"),
        ("old/deep/file", "x"),
    ]);
    let workspace = overlay(&fixture);
    must_work(
        &workspace,
        "rm gone; mkdir gone; ln -s ../a/real gone/up; rm -rf old; mkdir old; ln -s a new; ln -s /etc away",
    );
    for (path, expected) in [
        ("link/file", Some("a/real/file")),
        ("gone/up/file", Some("a/real/file")),
        ("new/real/../x", Some("a/x")),
        ("old/deep/file", Some("old/deep/file")),
        ("link/../../..", None),
        ("away/passwd", None),
    ] {
        let resolved = workspace.resolve(path).ok();
        assert_eq!(resolved.as_deref(), expected.map(Path::new), "{path}");
    }
    assert!(matches!(workspace.list(), Err(Error::OnlyInSandbox { .. })));
}

/// The new link leads through a link of the source, and out.
#[test]
fn a_link_that_leads_out_through_the_source_is_refused() {
    if lacks_overlays("links through layers") {
        return;
    }
    let fixture = Fixture::new(&[("p/q/top", "-> ../.."), ("file", "x")]);
    let workspace = overlay(&fixture);
    must_work(
        &workspace,
        "cd p/q; ln -s top first; ln -s first/../../x second",
    );
    let changes = workspace.changes().expect("changes");
    let error = apply_changes(&workspace, &changes, &[]).expect_err("refused");
    assert!(matches!(error, Error::UnsafeLinks { .. }), "{error}");
}

#[test]
fn a_source_that_changes_under_the_overlay_is_never_mixed_in() {
    if lacks_overlays("a live source") {
        return;
    }
    let mut fixture = Fixture::new(&[
        ("both", "one\n"),
        ("gone", "one\n"),
        ("theirs", "one\n"),
        ("mine", "one\n"),
        ("read", "one\n"),
    ]);
    fixture.hidden = globs(&["*.key"]);
    let workspace = overlay(&fixture);
    let source = fixture.source();
    for name in ["both", "gone", "theirs"] {
        // Saved as editors do: same size, other file, with the old time.
        let time = fs::metadata(source.join(name))
            .expect("file")
            .modified()
            .expect("time");
        fs::write(source.join("saved"), "two\n").expect("file");
        let saved = fs::File::options()
            .write(true)
            .open(source.join("saved"))
            .expect("file");
        saved.set_modified(time).expect("time");
        fs::rename(source.join("saved"), source.join(name)).expect("rename");
    }
    fs::write(source.join("appeared.key"), "secret").expect("file");
    must_work(
        &workspace,
        "echo agent >> both; rm gone; echo agent >> mine; cat read",
    );
    let changes = workspace.changes().expect("changes");
    let found: Vec<_> = changes
        .files()
        .iter()
        .map(|change| (change.path.to_str().expect("text"), change.kind))
        .collect();
    assert_eq!(
        found,
        [
            ("both", ChangeKind::TypeChanged),
            ("gone", ChangeKind::Deleted),
            ("mine", ChangeKind::Modified),
        ]
    );
    for change in &changes.files()[..2] {
        let before = change.before.as_ref().expect("before");
        assert_eq!(
            before.kind(),
            FileKind::Special(SpecialKind::ChangedInSource)
        );
        assert_eq!(before.sha256(), &[0; 32], "no content is claimed");
    }
    let notes = changes.notes().join("\n");
    for expected in [
        "which may have seen either content: both, gone, theirs",
        "not applied: both, gone",
        "could be read there: appeared.key",
    ] {
        assert!(notes.contains(expected), "{notes}");
    }
    let applied = apply_changes(&workspace, &changes, &[]).expect("applied");
    assert_eq!(applied, [Path::new("mine")]);
    let read = |name: &str| fs::read_to_string(source.join(name)).expect("file");
    assert_eq!(
        (read("both"), read("gone")),
        ("two\n".to_owned(), "two\n".to_owned())
    );
    assert_eq!(read("mine"), "one\nagent\n");
}

/// Both forms of marks are read, also those that only other kernels write.
#[test]
fn whiteouts_and_opaque_directories_are_read_in_every_form() {
    let fixture = Fixture::new(&[
        ("a", "a"),
        ("d/x", "x"),
        ("d/y", "y"),
        ("o/p", "p"),
        ("o/q", "q"),
    ]);
    let workspace = overlay(&fixture);
    let upper = workspace.root();
    let flags = rustix::fs::XattrFlags::empty();
    build(upper, &[("d/x", ""), ("d/new", ""), ("o/q", "q")]);
    let mark = |path: &str, name: &str, value: &[u8]| {
        let file = fs::File::open(upper.join(path)).expect("file");
        rustix::fs::fsetxattr(&file, name, value, flags).expect("attribute");
    };
    mark("d", "user.overlay.opaque", b"x");
    mark("d/x", "user.overlay.whiteout", b"");
    mark("o", "user.overlay.opaque", b"y");
    let (kind, mode) = (
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::empty(),
    );
    rustix::fs::mknodat(rustix::fs::CWD, upper.join("a"), kind, mode, 0).expect("whiteout");
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), " D a\n D d/x\n D o/p\n?? d/new\n");
}

#[test]
fn an_overlay_starts_as_the_same_repository_as_a_copy() {
    if lacks_overlays("repositories of overlays") {
        return;
    }
    let fixture = Fixture::new(&[
        ("a", "a\n"),
        ("odd \"name\\\n", "x"),
        ("d/run.sh", "#!/bin/sh\n"),
        ("link", "-> d/run.sh"),
        (".gitignore", "ignored\n"),
        ("ignored", "no"),
        (".gitattributes", "* filter=evil\n"),
    ]);
    chmod(&fixture.source().join("d/run.sh"), 0o755);
    let mut fixture = fixture.with_git();
    fixture.hidden = globs(&["secret"]);
    fs::write(fixture.source().join("secret"), "secret").expect("file");
    let (over, copy) = (overlay(&fixture), fixture.prepare());
    assert_eq!(*over.git_baseline(), GitBaseline::Made);
    let tree = "git rev-parse 'HEAD^{tree}'; git status --porcelain";
    let in_copy = Command::new("sh")
        .args(["-c", tree])
        .current_dir(copy.root())
        .output();
    let in_copy = String::from_utf8(in_copy.expect("git").stdout).expect("text");
    let own = "git config --global safe.directory '*'; ";
    let home = tempfile::tempdir().expect("home");
    let script = format!("export HOME={}; {own}{tree}", home.path().display());
    assert_eq!(must_work(&over, &script), in_copy);
    must_work(
        &over,
        &format!(
            "export HOME={}; echo b > b; git add -A; git -c user.name=n -c user.email=e commit -qm two",
            home.path().display()
        ),
    );
    assert_eq!(over.changes().expect("changes").git_status(), "?? b\n");
    let few = GitLimits {
        max_files: 2,
        ..GitLimits::default()
    };
    fixture.manager = fixture.manager.with_git_limits(few);
    let over = overlay(&fixture);
    assert!(matches!(over.git_baseline(), GitBaseline::Skipped { .. }));
    assert!(!over.root().join(".git").exists());
}

/// The run meets the full disk, and the host still tells what was changed before.
#[test]
fn a_full_top_layer_fails_the_write_and_not_the_verification() {
    let temporary = tempfile::tempdir().expect("directory");
    let stages = temporary.path().join("stages");
    let Some(_mount) = Mount::new(&stages, "size=1m,mode=700") else {
        return abp_testkit::skip("a full top layer", "it takes root to mount");
    };
    let fixture = Fixture::new(&[("a", "a\n")]);
    let manager = abp_workspace::WorkspaceManager::new(&stages)
        .without_git_baseline()
        .with_choice(StageChoice::Overlay);
    let workspace = manager
        .prepare(&fixture.spec, Uuid::new_v4(), &fixture.hidden)
        .expect("workspace");
    if work(&workspace, b"true").status.code() != Some(0) {
        return abp_testkit::skip("a full top layer", "this kernel has no overlays in memory");
    }
    let seen = must_work(
        &workspace,
        "echo b >> a; head -c 4m /dev/zero > big || echo full; rm big",
    );
    assert_eq!(seen, "full\n");
    let changes = workspace.changes().expect("changes");
    assert_eq!(changes.git_status(), " M a\n");
    workspace.discard().expect("discarded");
}

/// What the kernel leaves in the stage can be removed by its owner.
#[test]
fn a_stage_with_closed_directories_is_removed() {
    if lacks_overlays("removal of overlays") {
        return;
    }
    let fixture = Fixture::new(&[("d/a", "a")]);
    let workspace = overlay(&fixture);
    must_work(&workspace, "echo b > d/b; rm d/a; chmod 000 d");
    let mode = fs::metadata(workspace.root().join("d")).expect("directory");
    assert_eq!(mode.permissions().mode() & 0o777, 0);
    workspace.discard().expect("discarded");
    fixture
        .manager
        .sweep_trash(std::time::Duration::from_secs(10))
        .expect("swept");
    assert_eq!((fixture.stages().len(), fixture.trash()), (0, 0));
}
