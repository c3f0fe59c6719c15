//! Commands that only look: they create nothing, and work from anywhere in a project.

use serde_json::json;

use crate::desk::{Desk, Ran};

/// Commands that make something when they are used as they are meant to.
const WRITERS: [&str; 7] = ["run", "serve", "launch", "mcp", "acp", "import", "init"];

/// Commands that are only run: whatever they print, and whether or not they find something.
const PRINTERS: &[&[&str]] = &[
    &["completion", "bash"],
    &["man"],
    &["help"],
    &["schema"],
    &["schema", "receipt"],
    &["explain", "CONFIG_INVALID"],
    &["matrix"],
    &["inspect", "x.json"],
    &["inspect", "last"],
    &["receipt", "verify", "x.json"],
    &["receipt", "verifier"],
    &["ui", "--print"],
    &["receipt", "diff", "x.json", "x.json"],
    &["validate", "x.json"],
    &["translate", "--from", "openai", "--to", "claude", "x.json"],
    &["present", "x.json", "--client", "text"],
    &["sidecar", "check", "--", "true"],
];

/// Commands with their exit status where there is nothing to find.
const READERS: &[(&[&str], i32)] = &[
    (&["sandbox", "explain"], 0),
    (&["receipt", "key"], 2),
    (&["receipt", "key", "--rotate"], 2),
    (&["runs", "list"], 0),
    (&["runs", "list", "--undecided"], 0),
    (&["runs", "show", "last"], 2),
    (&["runs", "show", "0123"], 2),
    (&["runs", "delete", "last"], 2),
    (&["sessions"], 0),
    (&["logs", "last"], 2),
    (&["cancel", "last"], 2),
    (&["approvals"], 0),
    (&["approve", "00000000-0000-7000-8000-000000000000"], 2),
    (&["deny", "00000000-0000-7000-8000-000000000000"], 2),
    (&["diff", "last"], 2),
    (&["apply", "last"], 2),
    (&["discard", "last"], 2),
    (&["backup", "copy"], 2),
    (&["backup", "--check", "copy"], 1),
    (&["restore", "copy"], 1),
    (&["gc"], 0),
    (&["gc", "--dry-run"], 0),
    (&["receipt", "list"], 0),
    (&["receipt", "verify", "--log"], 2),
    (&["receipt", "checkpoint"], 2),
    (&["receipt", "export", "last"], 2),
    (&["keys", "list"], 0),
    (&["keys", "revoke", "key_1"], 2),
    (&["keys", "show", "operator"], 2),
    (&["migrate"], 0),
    (&["migrate", "--check"], 0),
    (&["nodes"], 0),
    (&["doctor"], 0),
    (&["backends"], 0),
    (&["agents", "list"], 0),
    (&["models"], 0),
    (&["upstreams", "list"], 0),
    (&["exchanges", "list"], 0),
    (&["exchanges", "stats"], 0),
    (&["exchanges", "show", "last"], 2),
    (&["upstreams", "list", "--presets"], 0),
    (&["upstreams", "remove", "x"], 2),
    (&["config", "show"], 0),
    (&["config", "check"], 0),
    (&["run", "--task", "t", "--dry-run"], 0),
];

#[test]
fn reading_commands_create_nothing() {
    let assert_untouched = |desk: &Desk, command: &[&str]| {
        let made: Vec<_> = std::fs::read_dir(desk.home()).unwrap().collect();
        assert!(made.is_empty(), "{command:?} made {made:?}");
        let mut files: Vec<_> = std::fs::read_dir(desk.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        files.sort();
        assert_eq!(files, ["readme.txt", "x.json"], "{command:?}");
    };
    let mut known: Vec<&str> = WRITERS.to_vec();
    for command in PRINTERS {
        let desk = Desk::new();
        desk.write("x.json", "{}");
        desk.abp(command);
        assert_untouched(&desk, command);
        known.push(command[0]);
    }
    for (command, status) in READERS {
        let desk = Desk::new();
        desk.write("x.json", "{}");
        let (ran, told) = desk.json(command);
        assert_eq!(ran, *status, "{command:?}: {told:#}");
        assert_untouched(&desk, command);
        known.push(command[0]);
    }
    // A command that is added later belongs to one of the lists.
    let help = Desk::new().abp(&["--help"]).stdout;
    let listed = help.split("Commands:").nth(1).unwrap();
    let listed = listed.split("Options:").next().unwrap();
    for name in listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        assert!(
            known.contains(&name),
            "{name} is neither a reader nor a writer"
        );
    }
}

#[test]
fn lists_of_nothing_are_empty() {
    let desk = Desk::new();
    let empty = [
        (["runs", "list"], "runs"),
        (["receipt", "list"], "receipts"),
        (["keys", "list"], "keys"),
        (["exchanges", "list"], "exchanges"),
    ];
    for (command, rows) in empty {
        assert_eq!(desk.json(&command).1[rows], json!([]), "{command:?}");
    }
}

/// `last` is the newest run of the project around the working directory, however deep that is.
#[test]
fn runs_are_decided_about_from_a_subdirectory() {
    let desk = Desk::new();
    let deep = desk.path("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    desk.receipt();
    let elsewhere = Desk::new();
    let inside = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        Ran::new(command.current_dir(&deep).output().unwrap())
    };
    // A newer run of another project is not meant.
    let mut other = desk.command(&["run", "--task", "of another project"]);
    let other = other.current_dir(elsewhere.path("")).output().unwrap();
    assert!(other.status.success());

    let listed = inside(&["runs", "list"]);
    assert_eq!(listed.stdout.lines().count(), 1, "{}", listed.stdout);
    assert!(listed.stdout.contains("say hello"), "{}", listed.stdout);
    let shown = inside(&["runs", "show", "last"]);
    assert!(shown.stdout.contains("say hello"), "{}", shown.stdout);
    let diff = inside(&["diff", "last"]);
    assert_eq!(diff.status, 0, "{}", diff.stderr);
    assert!(
        diff.stdout.contains("+++ b/abp-hello.md"),
        "{}",
        diff.stdout
    );
    // Paths are those of the working directory.
    let applied = inside(&["apply", "last", "../../abp-hello.md"]);
    assert_eq!(applied.status, 0, "{}", applied.stderr);
    assert!(desk.path("abp-hello.md").exists());
    assert!(!elsewhere.path("abp-hello.md").exists());
}
