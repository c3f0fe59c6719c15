//! `abp backup` while a server writes, and `abp restore`: verified both ways.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::desk::{Desk, Ran, text};
use crate::served::Served;

/// Every file below a directory, with its mode.
fn files(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => {
                let mode = path.metadata().unwrap().permissions().mode() & 0o777;
                found.push((path, mode));
            }
        }
    }
    found.sort();
    found
}

fn restored(desk: &Desk, backup: &str) -> (tempfile::TempDir, PathBuf, Ran) {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let ran = desk.abp(&["restore", backup, "--state-dir", text(&state)]);
    (place, state, ran)
}

/// A backup of a store in use has what was acknowledged before it, and a restored store is the same one.
#[test]
fn a_backup_of_a_store_in_use_restores() {
    let desk = Desk::new();
    desk.receipt();
    let served = Served::start(&desk, &[]);
    // Runs end while the backup is written.
    let writer = std::thread::spawn({
        let mut command = desk.command(&["run", "--task", "meanwhile"]);
        move || command.output().unwrap()
    });
    let (status, told) = desk.json(&["backup", "copy"]);
    assert_eq!(status, 0, "{told:#}");
    assert!(writer.join().unwrap().status.success());
    drop(served);
    let secrets = told["secrets"].as_array().unwrap();
    let names: Vec<&str> = secrets.iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.contains(&"gateway.key"), "{names:?}");
    assert!(
        names.iter().any(|name| name.starts_with("keys/")),
        "{names:?}"
    );
    let copy = desk.path("copy");
    let mode = copy.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    for (path, mode) in files(&copy) {
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    let again = desk.abp(&["backup", "copy"]);
    assert_eq!(again.status, 2, "{}", again.stderr);
    let inside = desk.abp(&["backup", text(&desk.state("inside"))]);
    assert_eq!(inside.status, 2, "{}", inside.stderr);

    let (_place, state, ran) = restored(&desk, "copy");
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let state = text(&state);
    let (status, report) = desk.json(&["receipt", "verify", "--log", "--state-dir", state]);
    assert_eq!(status, 0, "{report:#}");
    let listed = |more: &[&str]| -> Vec<Value> {
        let (_, told) = desk.json(&[&["runs", "list", "--all"], more].concat());
        told["runs"].as_array().unwrap().clone()
    };
    let (old, new) = (listed(&[]), listed(&["--state-dir", state]));
    assert!(!new.is_empty() && new.len() <= old.len());
    assert_eq!(new.last().unwrap()["run_id"], old.last().unwrap()["run_id"]);
    // It goes on: the key that signs the log came along.
    let run = desk.abp(&["run", "--task", "t", "--state-dir", state]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let full = desk.abp(&["restore", "copy", "--state-dir", state]);
    assert_eq!(full.status, 2, "{}", full.stderr);
}

/// Whichever file is changed, cut, missing or added: it is named, and nothing is restored.
#[test]
fn a_changed_byte_of_a_backup_is_found_and_named() {
    let desk = Desk::new();
    desk.receipt();
    assert_eq!(desk.abp(&["backup", "copy"]).status, 0);
    assert_eq!(desk.abp(&["backup", "--check", "copy"]).status, 0);
    let assert_named = |file: &Path, what: &str| {
        let name = file.file_name().unwrap().to_str().unwrap();
        let checked = desk.abp(&["backup", "--check", "copy"]);
        assert_eq!(checked.status, 7, "{what} {name}: {}", checked.stderr);
        assert!(checked.stderr.contains(name), "{what}: {}", checked.stderr);
        let (place, state, ran) = restored(&desk, "copy");
        assert_eq!(ran.status, 7, "{what} {name}: {}", ran.stderr);
        assert!(!state.exists());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    };
    for (file, _) in files(&desk.path("copy")) {
        let sound = std::fs::read(&file).unwrap();
        for place in [0, sound.len() / 2, sound.len() - 1] {
            let mut bent = sound.clone();
            bent[place] ^= 1;
            std::fs::write(&file, bent).unwrap();
            assert_named(&file, "changed");
        }
        std::fs::write(&file, &sound[..sound.len() - 1]).unwrap();
        assert_named(&file, "cut");
        std::fs::write(&file, &sound).unwrap();
        if !file.ends_with("MANIFEST") {
            std::fs::remove_file(&file).unwrap();
            assert_named(&file, "missing");
            std::fs::write(&file, &sound).unwrap();
        }
    }
    let added = desk.path("copy/keys/other");
    std::fs::write(&added, "x").unwrap();
    assert_named(&added, "added");
    std::fs::remove_file(&added).unwrap();
    assert_eq!(desk.abp(&["backup", "--check", "copy"]).status, 0);
}

/// A store on Postgres is none of the files that are copied; a copy of another store would be a false promise.
#[test]
fn a_store_elsewhere_is_not_backed_up_as_a_file() {
    let desk = Desk::new();
    for command in ["backup", "restore"] {
        let mut command = desk.command(&[command, "copy"]);
        let ran = command.env("ABP_DATABASE_URL", "postgres://nowhere.invalid/abp");
        let ran = Ran::new(ran.output().unwrap());
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("pg_dump"), "{}", ran.stderr);
    }
}
