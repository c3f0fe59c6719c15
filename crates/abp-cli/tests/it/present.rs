//! `abp present`: one recorded run for three clients.
//!
//! `fixtures/present/` holds the run, what each client gets and what is recorded about it.
//! `UPDATE_FIXTURES=1 cargo test -p abp-cli present` writes the results anew; read the diff.

use std::fs;
use std::path::{Path, PathBuf};

use abp_core::Receipt;
use serde_json::{Value, json};

use crate::desk::{Desk, Ran, text};

fn fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../fixtures/present").join(name)
}

#[test]
fn one_run_for_three_clients() {
    let desk = Desk::new();
    let run = fixture("run.jsonl");
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    for (client, shown) in [
        ("web", "web.jsonl"),
        ("cli", "cli.txt"),
        ("voice", "voice.txt"),
    ] {
        let ran = desk.abp(&["present", "--as", client, text(&run)]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let records = format!("{client}.adaptations.txt");
        for (name, found) in [(shown, &ran.stdout), (records.as_str(), &ran.stderr)] {
            if update {
                fs::write(fixture(name), found).unwrap();
            }
            let expected = fs::read_to_string(fixture(name)).unwrap_or_default();
            assert_eq!(*found, expected, "{name}");
        }
    }
}

/// As one object, with the records in it, and with capabilities of the caller's own.
#[test]
fn capabilities_can_be_given() {
    let desk = Desk::new();
    let run = fixture("run.jsonl");
    let says = r#"{"supported_events": ["SANKEY_DIAGRAM", "THOUGHT_TRACE"], "later": 1}"#;
    let (status, result) =
        desk.json(&["present", "--as", "cli", "--capabilities", says, text(&run)]);
    assert_eq!(status, 0);
    assert_eq!(
        result["client"]["origins"],
        json!({"supported_events": "body", "prefers_markdown": "protocol", "image_resolution": "protocol"})
    );
    let blocks = |name: &str| {
        let events = result["events"].as_array().unwrap().iter();
        events.filter(|event| event["block_type"] == name).count()
    };
    assert_eq!(
        (blocks("sankey_diagram"), blocks("PROGRESS_INDICATOR")),
        (1, 0)
    );
    let adapted = result["adaptations"].as_array().unwrap();
    let named = |name: &str| adapted.iter().filter(|one| one["event"] == name).count();
    assert_eq!((named("sankey_diagram"), named("THOUGHT_TRACE")), (0, 0));
    assert!(named("PROGRESS_INDICATOR") > 0, "{adapted:?}");

    let (_, spoken) = desk.json(&["present", "--as", "voice", text(&run)]);
    let voice = fs::read_to_string(fixture("voice.txt")).unwrap();
    assert_eq!(spoken["text"], Value::from(voice));
}

/// `abp run` itself: with looks on a terminal, plain through a pipe; the receipt knows which it was.
#[test]
fn a_terminal_and_a_pipe_get_a_run_as_they_can_show_it() {
    let source = json!({"title": "Sales", "uri": "https://example.org/s"});
    let script = json!({"name": "report", "steps": [
        {"do": "think", "text": "hm"},
        {"do": "say", "text": "Sales **grew**\u{1b}[2J, see `a.csv`."},
        {"do": "emit", "event": {"type": "content_block", "block_type": "CITATION_BLOCK", "data": {"citations": [source]}}},
    ]});
    let cases = [
        (
            true,
            "\u{1b}[2mhm\u{1b}[0m\nSales \u{1b}[1mgrew\u{1b}[0m[2J, see \u{1b}[36ma.csv\u{1b}[0m.\n  \u{1b}[2m[1]\u{1b}[0m Sales ",
            Vec::new(),
        ),
        (
            false,
            "\nSales grew[2J, see a.csv.\n1. Sales (https://example.org/s)\n\n",
            vec![
                "thought",
                "block",
                "markdown emphasis",
                "markdown code span",
                "control or direction character",
            ],
        ),
    ];
    for (is_terminal, shown, changes) in cases {
        let desk = Desk::new();
        desk.write("report.json", script.to_string());
        let run = [
            "run",
            "--task",
            "a",
            "--mock-script",
            "report.json",
            "--backend",
            "report",
        ];
        let mut command = desk.command(&run);
        if is_terminal {
            command.env("CLICOLOR_FORCE", "1");
        }
        let ran = Ran::new(command.output().unwrap());
        assert!(ran.stdout.contains(shown), "{:?}", ran.stdout);
        let receipt = fs::read(&desk.receipts()[0]).unwrap();
        let receipt: Receipt = serde_json::from_slice(&receipt).unwrap();
        let changed: Vec<_> = receipt
            .adaptations
            .iter()
            .map(|one| one.from.as_str())
            .collect();
        assert_eq!(changed, changes);
        let client = &receipt.trace[0].ext.as_ref().unwrap()["client"];
        assert_eq!(client["origins"]["prefers_markdown"], "protocol");
        assert_eq!(client["capabilities"]["prefers_markdown"], is_terminal);
    }
}

#[test]
fn what_is_no_run_is_a_clear_error() {
    let desk = Desk::new();
    desk.write("run.jsonl", "\n{\"type\": \"warning\"}\n");
    let run = |capabilities: &str, file: &str| {
        let ran = desk.abp(&[
            "present",
            "--as",
            "cli",
            "--capabilities",
            capabilities,
            file,
        ]);
        (ran.status, ran.stderr)
    };
    for (capabilities, file, says) in [
        (
            "{}",
            "run.jsonl",
            "run.jsonl, line 2: at the top level: missing field `ts`",
        ),
        (
            "{\"prefers_markdown\": 1}",
            "run.jsonl",
            "--capabilities: at /prefers_markdown",
        ),
        ("{}", "nothing.jsonl", "cannot read nothing.jsonl"),
    ] {
        let (status, stderr) = run(capabilities, file);
        assert_ne!(status, 0, "{says}");
        assert!(stderr.contains(says), "{stderr}");
    }
}
