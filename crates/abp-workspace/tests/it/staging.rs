//! What a stage holds, what it leaves out, and what happens when it cannot be made.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abp_error::ErrorCode;
use abp_workspace::{Error, StageLimits};

use crate::fixture::{Fixture, build, chmod, fifo, path, snapshot};

/// The names left out, each with its reason.
fn left_out(fixture: &Fixture) -> Vec<(String, String)> {
    let workspace = fixture.prepare();
    let (first, count) = workspace.left_out();
    assert_eq!(first.len() as u64, count);
    first
        .iter()
        .map(|left| (left.path.clone(), left.reason.clone()))
        .collect()
}

#[test]
fn a_stage_is_the_source_without_its_repository() {
    let fixture = Fixture::new(&[
        ("a.txt", "text"),
        ("bin/run", "#!/bin/sh\n"),
        ("empty/", ""),
        ("link", "-> bin/run"),
        (".git/config", "[core]"),
        ("sub/.git", "gitdir: elsewhere"),
        (".agent-backplane/state", "ours"),
        ("sub/.agent-backplane/keys", "of a clone"),
    ]);
    chmod(&fixture.source().join("bin/run"), 0o755);
    chmod(&fixture.source().join("empty"), 0o750);
    let workspace = fixture.prepare();
    let mut expected = snapshot(&fixture.source());
    let never_staged: [&[u8]; 2] = [b".git", b".agent-backplane"];
    let is_outside = |path: &[u8]| {
        let mut components = path.split(|&byte| byte == b'/');
        components.any(|component| never_staged.contains(&component))
    };
    expected.retain(|path, _| !is_outside(path));
    assert_eq!(snapshot(workspace.root()), expected);
    assert!(workspace.is_staged());
    assert_eq!(workspace.baseline().files(), 3);
    assert!(workspace.changes().expect("changes").is_empty());
    let names: Vec<_> = workspace
        .left_out()
        .0
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    let expected = [
        ".agent-backplane",
        ".git",
        "sub/.agent-backplane",
        "sub/.git",
    ];
    assert_eq!(names, expected);
    let stage = workspace.root().parent().expect("stage").to_owned();
    let mode = fs::metadata(&stage).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let beside: Vec<_> = fs::read_dir(&stage).expect("stage").collect();
    assert_eq!(beside.len(), 1, "only the tree has a name: {beside:?}");
    workspace.discard().expect("removed");
    assert!(fixture.stages().is_empty());
}

#[test]
fn rules_select_files() {
    let check = |include: &[&str], exclude: &[&str], respect: bool, expected: &[&str]| {
        let mut fixture = Fixture::new(&[
            (
                ".gitignore",
                "*.log\n/target/\n!keep.log\nnode_modules\n*.{js,ts}\nx\\\n",
            ),
            ("a.rs", ""),
            ("b.js", ""),
            ("app.log", ""),
            ("keep.log", ""),
            ("target/debug/app", ""),
            ("src/target/x.rs", ""),
            ("src/.gitignore", "local.rs\n!*.log"),
            ("src/local.rs", ""),
            ("src/trace.log", ""),
            ("web/node_modules/m/index.js", ""),
        ]);
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        fixture.spec.include = owned(include);
        fixture.spec.exclude = owned(exclude);
        fixture.spec.respect_gitignore = respect;
        let workspace = fixture.prepare();
        let listed = workspace.list().expect("list");
        let names: Vec<_> = listed
            .iter()
            .map(|path| path.to_str().expect("utf-8"))
            .collect();
        let shown: Vec<_> = names
            .into_iter()
            .filter(|name| !name.ends_with(".gitignore"))
            .collect();
        assert_eq!(shown, expected, "include {include:?} exclude {exclude:?}");
    };
    let all = [
        "a.rs",
        "app.log",
        "b.js",
        "keep.log",
        "src/local.rs",
        "src/target/x.rs",
        "src/trace.log",
        "target/debug/app",
        "web/node_modules/m/index.js",
    ];
    check(
        &[],
        &[],
        true,
        &[
            "a.rs",
            "b.js",
            "keep.log",
            "src/target/x.rs",
            "src/trace.log",
        ],
    );
    check(&[], &[], false, &all);
    check(&[], &["src", "*.js"], true, &["a.rs", "keep.log"]);
    check(
        &["target", "*.log"],
        &["keep.*"],
        true,
        &["app.log", "src/trace.log", "target/debug/app"],
    );
    check(
        &["./src/"],
        &["**/target"],
        true,
        &["src/local.rs", "src/trace.log"],
    );
}

#[test]
fn what_is_left_out_has_a_reason() {
    let mut fixture = Fixture::new(&[
        (".gitignore", "node_modules/\n"),
        ("node_modules/a/b", ""),
        ("node_modules/c", ""),
        ("secret.key", ""),
        ("a", ""),
    ]);
    fixture.spec.exclude = vec!["*.key".to_owned()];
    fifo(&fixture.source().join("pipe"));
    let _listener = UnixListener::bind(fixture.source().join("socket")).expect("socket");
    fs::hard_link(fixture.source().join("a"), fixture.source().join("setuid")).expect("link");
    chmod(&fixture.source().join("setuid"), 0o4755);
    let expected = [
        ("a", "its set-id and sticky bits; the file itself is staged"),
        ("node_modules", "ignored by \"node_modules/\" in .gitignore"),
        ("pipe", "is a FIFO, socket or device"),
        ("secret.key", "excluded by \"*.key\""),
        (
            "setuid",
            "its set-id and sticky bits; the file itself is staged",
        ),
        ("socket", "is a FIFO, socket or device"),
        (
            "a",
            "its other names: it is a hard link, as for 1 other file; the file itself is staged",
        ),
    ];
    let expected = expected.map(|(path, reason)| (path.to_owned(), reason.to_owned()));
    assert_eq!(
        left_out(&fixture),
        expected,
        "D4 hard link, D5 fifo and socket, D26 setuid"
    );
    let workspace = fixture.prepare();
    let mode = |name: &str| {
        fs::metadata(workspace.root().join(name))
            .expect("metadata")
            .mode()
            & 0o7777
    };
    assert_eq!(mode("setuid"), 0o755, "D26 setuid");
    fs::write(workspace.root().join("setuid"), "changed").expect("write");
    let content = |name: &str| fs::read_to_string(fixture.source().join(name)).expect("content");
    assert_eq!(
        (content("a"), content("setuid")),
        (String::new(), String::new()),
        "D4 hard link"
    );
    assert_eq!(
        fs::read_to_string(workspace.root().join("a")).expect("content"),
        "",
        "D4 hard link"
    );
}

#[test]
fn links_are_staged_only_where_they_stay_inside() {
    let check = |case: &str, entries: &[(&str, &str)], link: &str, staged: bool| {
        let fixture = Fixture::new(entries);
        let source = fixture.source();
        let before = snapshot(&source);
        let workspace = fixture.prepare();
        let found = fs::read_link(workspace.root().join(link)).ok();
        let target = fs::read_link(source.join(link)).expect("link");
        assert_eq!(found, staged.then_some(target), "{case}");
        let listed = workspace
            .left_out()
            .0
            .iter()
            .any(|left| left.path == link && left.reason.contains("link"));
        assert_eq!(listed, !staged, "{case}");
        workspace.discard().expect("removed");
        assert_eq!(snapshot(&source), before, "{case}");
    };
    check("D1 inside", &[("a", ""), ("l", "-> a")], "l", true);
    check(
        "D1 inside from below",
        &[("a", ""), ("d/e/l", "-> ../../a")],
        "d/e/l",
        true,
    );
    check("D1 dangling", &[("l", "-> nowhere/at/all")], "l", true);
    check("D1 absolute link", &[("l", "-> /etc/passwd")], "l", false);
    check("D1 parent", &[("l", "-> ../outside")], "l", false);
    check(
        "D1 parent from below",
        &[("d/l", "-> ../../outside")],
        "d/l",
        false,
    );
    check(
        "D1 through proc",
        &[("l", "-> /proc/self/root/etc")],
        "l",
        false,
    );
    check(
        "D1 chain",
        &[("x", "-> /etc"), ("l", "-> x/passwd")],
        "l",
        false,
    );
    check("D1 loop", &[("l", "-> m"), ("m", "-> l")], "l", false);
    check(
        "D1 dots behind a link",
        &[("d/e/s", "-> ../.."), ("l", "-> d/e/s/../etc")],
        "l",
        false,
    );
    check(
        "D1 dots behind nothing",
        &[("l", "-> gone/../../etc")],
        "l",
        false,
    );
}

#[test]
fn d2_a_directory_swapped_for_a_link_is_never_followed() {
    let fixture = Fixture::new(&[("d/inner/file", "inside"), ("d/other", "inside")]);
    build(
        &fixture.outside(),
        &[("inner/file", "canary"), ("other", "canary")],
    );
    let (source, outside) = (fixture.source(), fixture.outside());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            symlink(&outside, source.join("decoy")).expect("decoy");
            while !stop.load(Ordering::Relaxed) {
                let at = rustix::fs::CWD;
                let (one, two) = (source.join("d"), source.join("decoy"));
                rustix::fs::renameat_with(at, &one, at, &two, rustix::fs::RenameFlags::EXCHANGE)
                    .expect("swap");
            }
        });
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(2) {
            let workspace = fixture.prepare();
            for (name, content) in snapshot(workspace.root()) {
                assert!(!content.contains("canary"), "D2 {}", name.escape_ascii());
            }
            workspace.discard().expect("removed");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(snapshot(&outside).len(), 3);
}

#[test]
fn budgets_stop_a_stage_and_leave_nothing() {
    let check = |case: &str, limits: StageLimits, prepare: &dyn Fn(&Fixture), expected: &str| {
        let mut fixture = Fixture::new(&[("a", "12345"), ("d/e/f", "12345")]);
        prepare(&fixture);
        fixture.manager = fixture.manager.with_limits(limits);
        let started = Instant::now();
        let error = fixture.try_prepare().expect_err(case);
        assert!(matches!(error, Error::TooLarge { .. }), "{case}: {error:?}");
        assert_eq!(error.code(), ErrorCode::WorkspaceStagingFailed, "{case}");
        assert!(error.to_string().contains(expected), "{case}: {error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{case}");
        assert!(fixture.stages().is_empty(), "D7 half a stage: {case}");
    };
    let nothing = |_: &Fixture| {};
    let limits = StageLimits::default();
    check(
        "D6 files",
        StageLimits {
            max_files: 3,
            ..limits
        },
        &nothing,
        "number of files of 3",
    );
    check(
        "D6 bytes",
        StageLimits {
            max_bytes: 9,
            ..limits
        },
        &nothing,
        "number of bytes of 9",
    );
    check(
        "D6 depth",
        StageLimits {
            max_depth: 1,
            ..limits
        },
        &nothing,
        "depth of 1 at d/e",
    );
    check(
        "D6 a terabyte of nothing",
        limits,
        &|fixture| {
            let file = fs::File::create(fixture.source().join("sparse")).expect("file");
            file.set_len(1 << 40).expect("length");
        },
        "number of bytes",
    );
}

#[test]
fn d6_holes_stay_holes() {
    let fixture = Fixture::new(&[]);
    let file = fs::File::create(fixture.source().join("sparse")).expect("file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 20 << 20).expect("write");
    file.set_len(40 << 20).expect("length");
    let workspace = fixture.prepare();
    let stat = fs::metadata(workspace.root().join("sparse")).expect("metadata");
    assert_eq!(stat.len(), 40 << 20);
    assert!(stat.blocks() * 512 < 1 << 20, "{} blocks", stat.blocks());
    assert!(workspace.changes().expect("changes").is_empty());
}

#[test]
fn d12_odd_names_are_staged_and_shown_safely() {
    let names: [&[u8]; 8] = [
        b"sp ace",
        b"new\nline",
        b"ta\tb",
        b"quo\"te",
        b"back\\slash",
        b"not\xffutf8",
        "\u{202e}rtl".as_bytes(),
        b"-dash",
    ];
    let mut fixture = Fixture::new(&[]);
    for name in names {
        fs::write(fixture.source().join(path(name)), name).expect("file");
    }
    let workspace = fixture.prepare();
    assert_eq!(snapshot(workspace.root()), snapshot(&fixture.source()));
    fixture.spec.exclude = vec!["*".to_owned()];
    let shown: Vec<_> = left_out(&fixture)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    let expected = [
        "-dash",
        r#""back\\slash""#,
        r#""new\nline""#,
        r#""not\377utf8""#,
        r#""quo\"te""#,
        "sp ace",
        r#""ta\tb""#,
        r#""\342\200\256rtl""#,
    ];
    assert_eq!(shown, expected);
}

#[test]
fn the_root_must_be_a_directory_and_may_be_named_by_a_link() {
    let mut fixture = Fixture::new(&[("a", "text")]);
    let alias = fixture.source().with_file_name("alias");
    symlink(fixture.source(), &alias).expect("link");
    fixture.spec.root = alias.to_str().expect("utf-8").to_owned();
    assert_eq!(fixture.prepare().list().expect("list"), [path(b"a")]);
    for root in ["missing", "source/a"] {
        let root = fixture.source().with_file_name(root);
        fixture.spec.root = root.to_str().expect("utf-8").to_owned();
        let error = fixture.try_prepare().expect_err("no directory");
        assert_eq!(error.code(), ErrorCode::WorkspaceInitFailed);
    }
}

#[test]
fn bad_rules_are_refused_before_anything_is_made() {
    let mut fixture = Fixture::new(&[(".gitignore", &"*a".repeat(100))]);
    let error = fixture.try_prepare().expect_err("gitignore");
    assert!(
        error.to_string().contains("200 bytes") || error.to_string().contains("stars"),
        "A11 {error}"
    );
    fixture.spec.exclude = vec!["[".to_owned()];
    let error = fixture.try_prepare().expect_err("exclude");
    assert_eq!(error.code(), ErrorCode::ValidationFailed);
    assert!(
        error
            .to_string()
            .starts_with("workspace list exclude: pattern 0 \"[\""),
        "{error}"
    );
    assert!(fixture.stages().is_empty());
}
