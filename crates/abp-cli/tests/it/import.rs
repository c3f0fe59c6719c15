//! State directories of earlier versions, which come with a workspace and are not trusted.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::desk::{Desk, text};

/// A desk with a state directory of an earlier version in it, made hostile.
fn desk() -> Desk {
    let desk = Desk::new();
    let legacy = desk.path(".agent-backplane");
    std::fs::create_dir_all(legacy.join("receipts")).unwrap();
    std::fs::create_dir_all(legacy.join("keys")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(legacy.join(name), bytes).unwrap();
    let made = Desk::new();
    let receipt = std::fs::read(made.receipt()).unwrap();
    write("receipts/a-good.json", &receipt);
    let edited = String::from_utf8(receipt).unwrap();
    write(
        "receipts/b-edited.json",
        edited.replacen("You asked", "You asken", 1).as_bytes(),
    );
    write("receipts/c-no-receipt.json", b"{}");
    write("receipts/notes.txt", b"not a receipt");
    write("receipts/f \x1b[31m.json", b"{}");
    std::fs::write(desk.path("secret"), "of another place").unwrap();
    symlink(desk.path("secret"), legacy.join("receipts/d-link.json")).unwrap();
    let pipe = legacy.join("receipts/e-pipe.json");
    let made_pipe = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made_pipe.unwrap().success());
    // Everything that a later run could believe.
    write("keys/log.key", b"stranger's key");
    write("store.db", b"stranger's store");
    write("config.toml", b"default_backend = \"evil\"\n");
    desk
}

fn copies(desk: &Desk) -> Vec<PathBuf> {
    let Ok(imported) = std::fs::read_dir(desk.state("imported")) else {
        return Vec::new();
    };
    let directories: Vec<_> = imported.map(|entry| entry.unwrap().path()).collect();
    let [directory] = &directories[..] else {
        panic!("{directories:?}");
    };
    let name = directory.file_name().unwrap().to_str().unwrap();
    assert_eq!(name.len(), 12);
    let mode = directory.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut copies: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    copies.sort();
    copies
}

#[test]
fn receipts_of_an_earlier_version_are_copied_and_nothing_is_trusted() {
    let desk = desk();
    let legacy = desk.path(".agent-backplane");
    // The second import replaces the copies of the first.
    for is_first in [true, false] {
        let (status, report) = desk.json(&["import", ".agent-backplane"]);
        assert_eq!(status, 7, "{report:#}");
        let receipts = report["receipts"].as_array().unwrap();
        let seen: Vec<(&str, &str, bool)> = receipts
            .iter()
            .map(|receipt| {
                let text = |member: &str| receipt[member].as_str().unwrap();
                let copied = receipt["is_copied"].as_bool().unwrap();
                assert_eq!(
                    receipt["problems"] == json!([]),
                    text("verdict") == "self_consistent"
                );
                (text("file"), text("verdict"), copied)
            })
            .collect();
        let expected = [
            ("a-good.json", "self_consistent", true),
            ("b-edited.json", "wrong", true),
            ("c-no-receipt.json", "wrong", true),
            ("d-link.json", "wrong", false),
            ("e-pipe.json", "wrong", false),
            ("f \u{1b}[31m.json", "wrong", false),
        ];
        assert_eq!(seen, expected, "{report:#}");
        assert_eq!(
            report["ignored"],
            json!(["config.toml", "keys", "store.db"])
        );
        assert_eq!(report["wrote_gitignore"], is_first);
        let copied = copies(&desk);
        let names = copied.iter().map(|copy| copy.file_name().unwrap());
        let names: Vec<_> = names.map(|name| name.to_str().unwrap()).collect();
        let expected = ["a-good.json", "b-edited.json", "c-no-receipt.json"];
        assert_eq!(names, expected);
        let original = std::fs::read(legacy.join("receipts/a-good.json")).unwrap();
        assert_eq!(std::fs::read(&copied[0]).unwrap(), original);
    }
    let ignore = std::fs::read_to_string(legacy.join(".gitignore")).unwrap();
    assert_eq!(ignore, "*\n");
    let state: Vec<_> = std::fs::read_dir(desk.state(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(
        state,
        ["imported"],
        "neither keys nor a store were taken over"
    );
    // A copy is not proven by being there, and no run is known from it.
    let copied = copies(&desk);
    assert_eq!(desk.abp(&["receipt", "verify", text(&copied[0])]).status, 9);
    assert_eq!(desk.json(&["runs", "list", "--all"]).1["runs"], json!([]));
    let shown = desk.abp(&["import", ".agent-backplane"]).stdout;
    assert!(
        shown.contains("self-consistent only a-good.json"),
        "{shown}"
    );
    assert!(
        !shown.contains("proven") && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
}

#[test]
fn what_is_no_earlier_state_directory_is_refused_or_empty() {
    let desk = Desk::new();
    assert_eq!(desk.abp(&["import", "not-there"]).status, 2);
    assert_eq!(desk.abp(&["import", "readme.txt"]).status, 2);
    std::fs::create_dir(desk.path("empty")).unwrap();
    std::fs::write(desk.path("empty/.gitignore"), "mine\n").unwrap();
    let (status, report) = desk.json(&["import", "empty"]);
    assert_eq!((status, &report["receipts"]), (0, &json!([])), "{report}");
    assert_eq!(report["wrote_gitignore"], false);
    let kept = std::fs::read_to_string(desk.path("empty/.gitignore")).unwrap();
    assert_eq!(kept, "mine\n");
    assert!(!desk.state("").exists(), "nothing was copied");
    // Links in the place of the receipts lead nowhere.
    desk.receipt();
    symlink(desk.state("receipts"), desk.path("empty/receipts")).unwrap();
    assert_eq!(desk.abp(&["import", "empty"]).status, 2);
    std::fs::create_dir(desk.path("elsewhere")).unwrap();
    symlink("elsewhere", desk.path("link")).unwrap();
    for link in ["link", "link/"] {
        assert_eq!(desk.abp(&["import", link]).status, 2);
        assert!(!desk.path("elsewhere/.gitignore").exists());
    }
    for own in [desk.state(""), desk.state("receipts"), desk.home()] {
        let (status, refused) = desk.json(&["import", text(&own)]);
        assert_eq!(status, 2, "{refused}");
        assert!(!own.join(".gitignore").exists());
    }
}

#[test]
fn a_run_says_that_an_earlier_state_directory_is_not_used() {
    let desk = Desk::new();
    let run = ["run", "--task", "t"];
    assert_eq!(desk.abp(&run).stderr, "");
    std::fs::create_dir(desk.path(".agent-backplane")).unwrap();
    let ran = desk.abp(&run);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let warnings: Vec<_> = ran.stderr.lines().collect();
    let [warning] = warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(warning.contains("is not used"), "{warning}");
    assert!(warning.contains("`abp import "), "{warning}");
    let made: Vec<_> = std::fs::read_dir(desk.path(".agent-backplane"))
        .unwrap()
        .collect();
    assert!(made.is_empty(), "{made:?}");
    let summary = desk.json(&run);
    assert_eq!(
        (summary.0, &summary.1["outcome"]),
        (0, &Value::from("complete"))
    );
}
