//! Applying the result of a run: inside the guarantees, whatever dies and whoever writes meanwhile.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::desk::{Desk, text};

/// How often a process is killed at a random moment; `ABP_TEST_KILLS=200` for the long form.
fn kills() -> u32 {
    let asked = std::env::var("ABP_TEST_KILLS").ok();
    asked.map_or(12, |kills| kills.parse().unwrap())
}

/// Every step at which an application can be interrupted.
const STEPS: [&str; 8] = [
    "apply-planned",
    "apply-begun",
    "apply-contents",
    "apply-committing",
    "apply-committed",
    "apply-finished",
    "apply-cleaned",
    "apply-ended",
];

/// A desk with files of known content, and a backend that replaces, adds and deletes some of them.
fn desk() -> Desk {
    let desk = Desk::new();
    for number in 0..FILES {
        desk.write(&format!("f{number}.txt"), format!("old {number}\n"));
    }
    let mut steps: Vec<Value> = (0..FILES)
        .map(|number| {
            json!({"do": "write", "path": format!("f{number}.txt"), "content": format!("new {number}\n")})
        })
        .collect();
    steps.push(json!({"do": "write", "path": "sub/added.txt", "content": "added\n"}));
    let script = json!({"name": "many", "steps": steps});
    desk.write("many.json", script.to_string());
    desk
}

const FILES: usize = 24;
const RUN: [&str; 6] = [
    "run",
    "--task",
    "t",
    "--mock-script",
    "many.json",
    "--backend",
];

/// The state of the tree: all of the changes, none of them, or some.
#[derive(Debug, PartialEq, Eq)]
enum Tree {
    Old,
    New,
    Mixed,
}

fn tree(desk: &Desk) -> Tree {
    let read = |name: &str| std::fs::read_to_string(desk.path(name)).unwrap_or_default();
    let is = |word: &str| {
        (0..FILES).all(|number| read(&format!("f{number}.txt")) == format!("{word} {number}\n"))
    };
    match (is("old"), is("new"), desk.path("sub/added.txt").exists()) {
        (true, false, false) => Tree::Old,
        (false, true, true) => Tree::New,
        _ => Tree::Mixed,
    }
}

/// Names that no user gave.
fn leftovers(desk: &Desk) -> Vec<String> {
    let entries = std::fs::read_dir(desk.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let known = |name: &String| {
        name.ends_with(".txt") || name.ends_with(".json") || name == "sub" || name == "out"
    };
    names.filter(|name| !known(name)).collect()
}

/// After the next command the tree is whole, nothing is left in it, and the log verifies.
fn check_whole(desk: &Desk, place: &str) -> Tree {
    let listed = desk.abp(&["runs", "list"]);
    assert_eq!(listed.status, 0, "{place}: {}", listed.stderr);
    let found = tree(desk);
    assert_ne!(found, Tree::Mixed, "{place}");
    assert_eq!(leftovers(desk), Vec::<String>::new(), "{place}");
    // A process that was killed at once has not made a store yet.
    if desk.state("store.db").exists() {
        let verified = desk.abp(&["receipt", "verify", "--log"]);
        let said = (&verified.stdout, &verified.stderr);
        assert_eq!(verified.status, 0, "{place}: {said:?}");
    }
    found
}

#[test]
fn f1_apply_that_dies_at_any_step_is_all_or_nothing() {
    for step in STEPS {
        let desk = desk();
        let ran = desk.abp(&[&RUN[..], &["many"]].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let mut apply = desk.command(&["apply", "last"]);
        let died = apply.env("ABP_TEST_DIE_AT", step).output().unwrap();
        assert_eq!(died.status.code(), None, "{step}: it should have died");
        let found = check_whole(&desk, step);
        let was_committing = !matches!(step, "apply-planned" | "apply-begun" | "apply-contents");
        assert_eq!(found == Tree::New, was_committing, "{step}");
        let (status, again) = desk.json(&["apply", "last"]);
        let expected = match was_committing {
            true => "already_applied",
            false => "applied",
        };
        assert_eq!(
            (status, &again["decision"]),
            (0, &json!(expected)),
            "{step}"
        );
        assert_eq!(tree(&desk), Tree::New, "{step}");
    }
}

/// F1: the same in a run that applies its result itself; its receipt says which it was.
#[test]
fn f1_workspace_first_that_dies_at_any_step_is_all_or_nothing() {
    for step in STEPS
        .iter()
        .chain(&["kept", "verified", "disposed", "recorded"])
    {
        let desk = desk();
        let mut run = desk.command(&[&RUN[..], &["many", "--lane", "workspace-first"]].concat());
        let died = run.env("ABP_TEST_DIE_AT", step).output().unwrap();
        assert_eq!(died.status.code(), None, "{step}: it should have died");
        let found = check_whole(&desk, step);
        let (_, shown) = desk.json(&["runs", "show", "last"]);
        let workspace = &shown["receipt"]["workspace"];
        assert_eq!(
            workspace["applied"],
            json!(found == Tree::New),
            "{step}: {workspace}"
        );
    }
}

/// Real kills at random moments, of `abp apply` and of a run that applies its result itself. The moments are
/// spread over the time that the command takes when it is let be.
#[test]
fn f1_random_kills_leave_all_or_nothing() {
    let mut seen = [0_u32; 2];
    for lane in ["patch-first", "workspace-first"] {
        let mut whole = Duration::ZERO;
        for number in 0..=kills() {
            let desk = desk();
            let run = [&RUN[..], &["many", "--lane", lane]].concat();
            let victim = if lane == "patch-first" {
                assert_eq!(desk.abp(&run).status, 0);
                vec!["apply", "last"]
            } else {
                run
            };
            let mut command = desk.command(&victim);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let started = Instant::now();
            let mut child = command.spawn().unwrap();
            if number > 0 {
                std::thread::sleep(whole * (number * 619 % 1_000) / 900);
                child.kill().unwrap();
            }
            child.wait().unwrap();
            if number == 0 {
                whole = started.elapsed();
            }
            let found = check_whole(&desk, &format!("{lane} {number}"));
            seen[usize::from(found == Tree::New)] += u32::from(number > 0);
        }
    }
    let [nothing, everything] = seen;
    println!(
        "killed {} times: nothing {nothing}, everything {everything}",
        nothing + everything
    );
}

/// A save of the user between the kill and the next command wins: then nothing else is applied.
#[test]
fn a_save_of_the_user_is_never_lost() {
    let desk = desk();
    desk.abp(&[&RUN[..], &["many"]].concat());
    let mut apply = desk.command(&["apply", "last"]);
    apply
        .env("ABP_TEST_DIE_AT", "apply-committed")
        .output()
        .unwrap();
    desk.write("f3.txt", "the user's own\n");
    let (_, _) = desk.json(&["runs", "list"]);
    let read = |name: &str| std::fs::read_to_string(desk.path(name)).unwrap();
    assert_eq!(read("f3.txt"), "the user's own\n");
    for number in (0..FILES).filter(|number| *number != 3) {
        assert_eq!(read(&format!("f{number}.txt")), format!("old {number}\n"));
    }
    assert_eq!(leftovers(&desk), Vec::<String>::new());
}

#[test]
fn single_paths_are_applied_and_the_rest_stays_undecided() {
    let desk = desk();
    desk.abp(&[&RUN[..], &["many"]].concat());
    let (status, first) = desk.json(&["apply", "last", "f1.txt", "sub"]);
    assert_eq!(
        (status, &first["undecided"]),
        (0, &json!(FILES - 1)),
        "{first}"
    );
    let read = |name: &str| std::fs::read_to_string(desk.path(name)).unwrap();
    assert_eq!(read("f1.txt"), "new 1\n");
    assert_eq!(read("f2.txt"), "old 2\n");
    assert!(desk.path("sub/added.txt").exists());
    let unknown = desk.abp(&["apply", "last", "nowhere.txt"]);
    assert_eq!(unknown.status, 2, "{}", unknown.stderr);
    let (_, rest) = desk.json(&["apply", "last"]);
    assert_eq!(
        (&rest["decision"], &rest["undecided"]),
        (&json!("applied"), &json!(0))
    );
    assert_eq!(tree(&desk), Tree::New);
    assert_eq!(desk.abp(&["receipt", "verify", "--log"]).status, 0);
}

/// What `abp diff` has to show: the paths that are left, those that were applied, and the decision.
type Shown = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

fn assert_shown(desk: &Desk, (left, applied, decision): Shown) {
    let (status, shown) = desk.json(&["diff", "last"]);
    assert_eq!(
        (status, &shown["decision"]),
        (0, &json!(decision)),
        "{shown:#}"
    );
    assert_eq!(shown["applied"], json!(applied), "{shown:#}");
    let paths = shown["paths"].as_array().unwrap().iter();
    let paths: Vec<_> = paths.map(|path| path["path"].clone()).collect();
    assert_eq!(json!(paths), json!(left), "{shown:#}");
    let is_decided = shown["decided"]["by"].is_string();
    assert_eq!(is_decided, left.is_empty(), "{shown:#}");
    let lines = shown["status"].as_str().unwrap().lines().count();
    assert_eq!(lines, left.len(), "{shown:#}");
    let ran = desk.abp(&["diff", "last"]);
    assert_eq!(ran.status, 0);
    let patch = shown["diff"].as_str();
    assert_eq!(
        patch,
        Some(&*ran.stdout),
        "nothing else is beside the patch"
    );
    for path in left.iter().chain(applied) {
        let is_left = left.contains(path);
        let is_shown = ran.stdout.contains(&format!("b/{path}"));
        assert_eq!(is_shown, is_left, "{path}: {}", ran.stdout);
        let is_named = ran.stderr.contains(&format!("already applied: {path}"));
        assert_eq!(is_named, !is_left, "{path}: {}", ran.stderr);
    }
    let is_over = ran
        .stderr
        .contains("nothing is undecided: the changes were");
    assert_eq!(is_over, left.is_empty(), "{}", ran.stderr);
}

/// `abp diff` shows what is left to decide, and says what was applied.
#[test]
fn a_diff_shows_the_rest_and_names_what_was_applied() {
    let desk = Desk::new();
    desk.write("a b.txt", "old\n").write("c.txt", "old\n");
    let write = |path: &str| json!({"do": "write", "path": path, "content": "new\n"});
    let script = json!({"name": "four", "steps": [
        write("a b.txt"), write("c.txt"), write("new/d.txt"), write("new/e.txt"),
    ]});
    desk.write("four.json", script.to_string());
    let run = || {
        let run = ["run", "--task", "t", "--mock-script", "four.json"];
        let ran = desk.abp(&[&run[..], &["--backend", "four"]].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    };
    run();
    let all = &["a b.txt", "c.txt", "new/d.txt", "new/e.txt"];
    assert_shown(&desk, (all, &[], "undecided"));
    let steps: [(&[&str], Shown); 3] = [
        (
            &["a b.txt"],
            (
                &["c.txt", "new/d.txt", "new/e.txt"],
                &["a b.txt"],
                "undecided",
            ),
        ),
        (
            &["new"],
            (
                &["c.txt"],
                &["a b.txt", "new/d.txt", "new/e.txt"],
                "undecided",
            ),
        ),
        (&[], (&[], all, "applied")),
    ];
    for (paths, shown) in steps {
        let applied = desk.abp(&[&["apply", "last"], paths].concat());
        assert_eq!(applied.status, 0, "{paths:?}");
        assert_shown(&desk, shown);
    }
    desk.write("c.txt", "old\n");
    run();
    assert_eq!(desk.abp(&["discard", "last"]).status, 0);
    assert_shown(&desk, (&[], &[], "discarded"));
}

/// D14: a result that takes effect on this machine is applied only when somebody agrees to that.
#[test]
fn d14_host_files_need_agreement() {
    let desk = Desk::new();
    let script = json!({"name": "sly", "steps": [
        {"do": "write", "path": ".vscode/tasks.json", "content": "{}\n"},
        {"do": "write", "path": "plain.txt", "content": "plain\n"},
    ]});
    desk.write("sly.json", script.to_string());
    let run = [
        "run",
        "--task",
        "t",
        "--mock-script",
        "sly.json",
        "--backend",
        "sly",
    ];
    let first = [&run[..], &["--lane", "workspace-first"]].concat();
    let ran = desk.abp(&first);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(!desk.path("plain.txt").exists(), "nothing of it is applied");
    let shown = desk.abp(&["diff", "last"]);
    assert!(
        shown.stderr.contains(".vscode/tasks.json takes effect"),
        "{}",
        shown.stderr
    );
    let refused = desk.abp(&["apply", "last"]);
    assert_eq!(refused.status, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains(".vscode/tasks.json"),
        "{}",
        refused.stderr
    );
    assert!(!desk.path("plain.txt").exists());
    assert_eq!(desk.abp(&["apply", "last", "plain.txt"]).status, 0);
    assert_eq!(desk.abp(&["apply", "last", "--allow-host-files"]).status, 0);
    assert!(desk.path(".vscode/tasks.json").exists());
}

/// A stage that was written after the end, a source that is another directory by now: typed errors, and
/// nothing is written.
#[test]
fn what_was_not_verified_is_not_applied() {
    type Tamper = fn(&Desk, &Path);
    let tamper: [(&str, Tamper); 4] = [
        ("written after the end", |_, tree| {
            std::fs::write(tree.join("f1.txt"), "evil\n").unwrap();
        }),
        ("replaced by a link", |desk, tree| {
            std::fs::rename(tree, desk.path("out")).unwrap();
            std::os::unix::fs::symlink(desk.path("out"), tree).unwrap();
        }),
        ("a file became a link", |desk, tree| {
            std::fs::remove_file(tree.join("f1.txt")).unwrap();
            std::os::unix::fs::symlink(desk.path("readme.txt"), tree.join("f1.txt")).unwrap();
        }),
        ("removed", |_, tree| std::fs::remove_dir_all(tree).unwrap()),
    ];
    for (how, tamper) in tamper {
        let desk = desk();
        desk.abp(&[&RUN[..], &["many"]].concat());
        let [stage] = desk.stages().try_into().unwrap();
        tamper(&desk, &stage.join("tree"));
        let refused = desk.abp(&["apply", "last"]);
        assert_ne!(refused.status, 0, "{how}");
        assert!(
            refused.stderr.contains("error["),
            "{how}: {}",
            refused.stderr
        );
        assert_eq!(tree(&desk), Tree::Old, "{how}");
        assert_eq!(leftovers(&desk), Vec::<String>::new(), "{how}");
    }
    let desk = desk();
    desk.abp(&[&RUN[..], &["many"]].concat());
    let (root, moved) = (desk.path(""), desk.path("").with_extension("moved"));
    std::fs::rename(&root, &moved).unwrap();
    std::fs::create_dir(&root).unwrap();
    let (_, listed) = desk.json(&["runs", "list", "--all"]);
    let run = listed["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let refused = desk.abp(&["apply", &run]);
    assert_eq!(refused.status, 8, "{}", refused.stderr);
    assert_eq!(
        std::fs::read_dir(&root).unwrap().count(),
        0,
        "{}",
        text(&root)
    );
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&moved, &root).unwrap();
}
