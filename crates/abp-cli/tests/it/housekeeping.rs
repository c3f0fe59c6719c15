//! `abp gc` removes what the retention lets go, and nothing else, whenever it is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::desk::{Desk, Ran};
use crate::served::Served;

const RETENTION: &str = "[retention]\nevents_days = 30\nundecided_days = 60\nhomes_days = 30\n";

/// A desk with a run that was discarded, one that waits for a decision, a queued one, and old homes and
/// uploads.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("gc.toml", RETENTION);
    desk.receipt();
    assert_eq!(desk.abp(&["discard", "last"]).status, 0);
    desk.receipt();
    let queued = desk.abp(&["run", "--task", "later", "--detach"]);
    assert_eq!(queued.status, 0, "{}", queued.stderr);
    desk
}

fn gc(desk: &Desk, days_later: u32, die_at: Option<&str>, more: &[&str]) -> Ran {
    let mut command = desk.command(&[&["gc", "--config", "gc.toml", "--json"], more].concat());
    command.env("ABP_TEST_GC_DAYS_LATER", days_later.to_string());
    if let Some(place) = die_at {
        command.env("ABP_TEST_DIE_AT", place);
    }
    Ran::new(command.output().unwrap())
}

fn removed(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let mut told: Value = serde_json::from_str(&ran.stdout).unwrap();
    // Every process deletes discarded stages in the background, so which of them does is chance.
    told["removed"].as_object_mut().unwrap().remove("trash");
    told["removed"].clone()
}

fn count(removed: &Value, kind: &str) -> u64 {
    removed[kind]["items"].as_u64().unwrap_or(0)
}

fn assert_sound(desk: &Desk, erased: u64) {
    let (status, told) = desk.json(&["receipt", "verify", "--log"]);
    assert_eq!(status, 0, "{told:#}");
    assert_eq!(told["coverage"]["erased_traces"], erased, "{told:#}");
}

fn runs(desk: &Desk) -> Vec<Value> {
    let (_, told) = desk.json(&["runs", "list"]);
    told["runs"].as_array().unwrap().clone()
}

/// The directory that `homes` or uploads are in, beside the stages.
fn cache(desk: &Desk) -> std::path::PathBuf {
    desk.home().join(".cache/abp")
}

/// How many stages there are; uploads are beside them.
fn stages(desk: &Desk) -> usize {
    let is_stage = |path: &&std::path::PathBuf| {
        let place = path.parent().unwrap();
        place.extension().is_none_or(|end| end != "uploads")
    };
    desk.stages().iter().filter(is_stage).count()
}

fn states(desk: &Desk) -> String {
    let stages = std::fs::read_dir(cache(desk).join("stages")).unwrap();
    let own = stages.map(|own| own.unwrap()).find(|own| {
        let name = own.file_name();
        Path::new(&name)
            .extension()
            .is_none_or(|end| end != "uploads")
    });
    own.unwrap().file_name().into_string().unwrap()
}

/// Each kind goes when it is old enough, after a dry run said so and removed nothing.
#[test]
fn what_is_old_enough_goes_and_everything_else_stays() {
    let desk = desk();
    let runs = runs(&desk);
    let id = |number: usize| runs[number]["run_id"].as_str().unwrap().to_owned();
    let (queued, undecided, discarded) = (id(0), id(1), id(2));
    let homes = cache(&desk).join("homes").join(states(&desk));
    for run in [&queued, &undecided, &discarded] {
        std::fs::create_dir_all(homes.join(run)).unwrap();
        std::fs::write(homes.join(run).join("session"), "s").unwrap();
    }
    let uploads = cache(&desk)
        .join("stages")
        .join(format!("{}.uploads", states(&desk)));
    std::fs::create_dir_all(uploads.join("p/blobs/ab")).unwrap();
    std::fs::write(uploads.join("p/blobs/ab/abcd"), "blob").unwrap();

    assert_eq!(removed(&gc(&desk, 0, None, &[])), json!({}));
    let planned = gc(&desk, 31, None, &["--dry-run"]);
    let told = removed(&planned);
    assert_eq!(count(&told, "events"), 1, "{told:#}");
    assert_eq!(count(&told, "homes"), 1, "{told:#}");
    assert_eq!(count(&told, "uploads"), 1, "{told:#}");
    assert_eq!(count(&told, "change_sets"), 0, "{told:#}");
    assert_sound(&desk, 0);
    assert!(homes.join(&discarded).exists() && uploads.join("p/blobs/ab/abcd").exists());

    assert_eq!(removed(&gc(&desk, 31, None, &[])), told);
    assert_sound(&desk, 1);
    assert!(!homes.join(&discarded).exists() && !uploads.join("p/blobs/ab/abcd").exists());
    assert!(homes.join(&undecided).exists() && homes.join(&queued).exists());
    assert_eq!(stages(&desk), 1);
    let logs = desk.abp(&["logs", &discarded]);
    assert!(logs.stderr.contains("were removed at"), "{}", logs.stderr);
    assert_eq!(desk.receipts().len(), 2);

    // Undecided for too long, it expires, and its events go with it.
    let planned = removed(&gc(&desk, 61, None, &["--dry-run"]));
    let told = removed(&gc(&desk, 61, None, &[]));
    assert_eq!(planned["events"], told["events"]);
    assert_eq!(planned["change_sets"], told["change_sets"]);
    assert_eq!(planned["homes"], told["homes"]);
    assert_eq!(count(&told, "change_sets"), 1, "{told:#}");
    assert_eq!(count(&told, "events"), 1, "{told:#}");
    assert_eq!(count(&told, "homes"), 1, "{told:#}");
    assert_eq!(stages(&desk), 0);
    assert_sound(&desk, 2);
    let diff = desk.json(&["diff", &undecided]).1;
    assert_eq!(diff["decision"], "expired", "{diff:#}");
    // A run that has not ended keeps everything, however old it is.
    assert!(homes.join(&queued).exists());
    assert_eq!(removed(&gc(&desk, 9_999, None, &[])), json!({}));
}

/// Killed at any step, it leaves a sound store, and the next round ends what was begun.
#[test]
fn a_killed_round_is_ended_by_the_next() {
    for place in ["expired", "erasing", "erased", "removed"] {
        let desk = desk();
        let homes = cache(&desk).join("homes").join(states(&desk));
        let discarded = runs(&desk)[2]["run_id"].as_str().unwrap().to_owned();
        std::fs::create_dir_all(homes.join(&discarded)).unwrap();
        let killed = gc(&desk, 61, Some(place), &[]);
        assert_eq!(killed.status, -1, "{place}: {}", killed.stderr);
        let (status, told) = desk.json(&["receipt", "verify", "--log"]);
        assert_eq!(status, 0, "{place}: {told:#}");
        removed(&gc(&desk, 61, None, &[]));
        assert_sound(&desk, 2);
        assert_eq!(stages(&desk), 0, "{place}");
        assert!(!homes.join(&discarded).exists(), "{place}");
        assert_eq!(removed(&gc(&desk, 61, None, &[])), json!({}), "{place}");
    }
}

/// Sizes remove the oldest first, but nothing that is young.
#[test]
fn a_size_removes_the_oldest_and_nothing_young() {
    let desk = Desk::new();
    desk.write("gc.toml", "[retention]\nstages_mb = 2\nkeep_days = 5\n");
    let content = "x".repeat(700_000);
    let script = json!({"name": "large", "steps": [
        {"do": "write", "path": "large.txt", "content": content},
    ]});
    desk.write("large.json", script.to_string());
    for _ in 0..2 {
        let run = ["run", "--task", "t", "--backend", "large"];
        let ran = desk.abp(&[&run[..], &["--mock-script", "large.json"]].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
    assert_eq!(removed(&gc(&desk, 0, None, &[])), json!({}));
    let told = removed(&gc(&desk, 6, None, &[]));
    assert_eq!(count(&told, "change_sets"), 1, "{told:#}");
    let runs = runs(&desk);
    let decision = |number: usize| {
        let id = runs[number]["run_id"].as_str().unwrap();
        desk.json(&["diff", id]).1["decision"].clone()
    };
    assert_eq!(decision(1), "expired");
    assert_ne!(decision(0), "expired");
    assert_sound(&desk, 0);
}

/// A server does the same by itself, while it carries out runs.
#[test]
fn a_server_keeps_house() {
    let desk = desk();
    let mut command = desk.command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--config",
        "gc.toml",
    ]);
    command.env("ABP_TEST_GC_DAYS_LATER", "31");
    command.env("ABP_TEST_GC_MS", "10");
    let _served = Served::spawn(&mut command);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, told) = desk.json(&["receipt", "verify", "--log"]);
        if told["coverage"]["erased_traces"] == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "{told:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
