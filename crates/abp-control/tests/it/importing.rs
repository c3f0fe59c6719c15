//! Taking over the receipts of an earlier version, and the operator's key.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use abp_control::{ImportVerdict, legacy_state_dir, operator_key, operator_key_file};
use abp_error::ErrorCode;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::lab::{Lab, read};

#[tokio::test]
async fn receipts_of_a_stranger_are_copied_and_judged_and_nothing_else_is_taken() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let receipt = lab.run(json!({})).await;
    let good = receipt.to_document().unwrap();
    let legacy = lab.home.path().join("clone/.agent-backplane");
    let receipts = legacy.join("receipts");
    std::fs::create_dir_all(&receipts).unwrap();
    let changed = String::from_utf8(good.clone()).unwrap();
    let changed = changed.replacen("writer", "forger", 1);
    std::fs::write(receipts.join("good.json"), &good).unwrap();
    std::fs::write(receipts.join("changed.json"), changed).unwrap();
    std::fs::write(receipts.join("not.txt"), "x").unwrap();
    std::fs::write(receipts.join("odd name.json"), &good).unwrap();
    std::fs::write(receipts.join("-dash.json"), &good).unwrap();
    let long = format!("{}.json", "n".repeat(124));
    std::fs::write(receipts.join(&long), &good).unwrap();
    let longest = format!("{}.json", "m".repeat(123));
    std::fs::write(receipts.join(&longest), &good).unwrap();
    std::fs::create_dir(receipts.join("directory.json")).unwrap();
    symlink(receipts.join("good.json"), receipts.join("link.json")).unwrap();
    std::fs::write(legacy.join("store.db"), "an attacker's").unwrap();
    assert_eq!(
        legacy_state_dir(&lab.home.path().join("clone")),
        Some(legacy.clone())
    );
    assert_eq!(legacy_state_dir(lab.home.path()), None);

    let imported = lab.plane.import_legacy(&legacy).unwrap();
    let found: Vec<_> = imported
        .receipts
        .iter()
        .map(|one| (one.file.as_str(), one.verdict, one.is_copied))
        .collect();
    let (fine, wrong) = (ImportVerdict::SelfConsistent, ImportVerdict::Wrong);
    let expected = [
        ("-dash.json", wrong, false),
        ("changed.json", wrong, true),
        ("directory.json", wrong, false),
        ("good.json", fine, true),
        ("link.json", wrong, false),
        (longest.as_str(), fine, true),
        (long.as_str(), wrong, false),
        ("odd name.json", wrong, false),
    ];
    assert_eq!(found, expected);
    for one in &imported.receipts {
        let copy = std::fs::read(imported.destination.join(&one.file));
        let original = std::fs::read(receipts.join(&one.file));
        assert_eq!(copy.is_ok(), one.is_copied, "{}", one.file);
        assert!(copy.is_err() || copy.unwrap() == original.unwrap());
        assert_eq!(one.problems.is_empty(), one.verdict == fine, "{}", one.file);
        assert_eq!(one.run_id.is_some(), one.verdict == fine, "{}", one.file);
    }
    let copies = std::fs::read_dir(&imported.destination).unwrap().count();
    assert_eq!(copies, 3, "nothing unfinished is left");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&imported.destination), 0o700);
    assert_eq!(mode(&imported.destination.join("good.json")), 0o600);
    assert!(
        imported
            .destination
            .starts_with(lab.state().join("imported"))
    );
    assert_eq!(
        (imported.left_out, imported.ignored.as_slice()),
        (0, &["store.db".to_owned()][..])
    );
    assert!(imported.wrote_gitignore);
    assert_eq!(read(&legacy.join(".gitignore")).as_deref(), Some("*\n"));
    let again = lab.plane.import_legacy(&legacy).unwrap();
    assert!(!again.wrote_gitignore, "there is one");
    assert_eq!(again.destination, imported.destination);
}

#[test]
fn directories_that_are_none_of_an_earlier_version_are_refused() {
    let lab = Lab::new(&[], json!({}));
    let link = lab.home.path().join("link");
    let real = lab.home.path().join("real");
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let inside = lab.state().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let home = lab.home.path().to_owned();
    for place in [
        home.join("missing"),
        link,
        lab.state(),
        inside,
        home.clone(),
    ] {
        let refused = lab.plane.import_legacy(&place).unwrap_err();
        assert_eq!(
            refused.code(),
            ErrorCode::ConfigInvalid,
            "{}",
            place.display()
        );
    }
    // One without receipts is taken, and makes nothing.
    let imported = lab.plane.import_legacy(&real).unwrap();
    assert!(imported.receipts.is_empty() && !imported.destination.exists());
}

/// The operator's key is made once, for its owner alone, and read only from such a file.
#[test]
fn the_operators_key_is_its_owners_alone() {
    let lab = Lab::new(&[], json!({}));
    let file = operator_key_file(lab.plane.config());
    assert_eq!(file, lab.state().join("gateway.key"));
    let made = operator_key(&file).unwrap();
    let text = made.expose_secret();
    assert!(
        text.len() == 52 && text.starts_with("abp_"),
        "{}",
        text.len()
    );
    assert_eq!(operator_key(&file).unwrap().expose_secret(), text);
    let other = operator_key(&lab.state().join("deeper/other.key")).unwrap();
    assert_ne!(other.expose_secret(), text);
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let problem = || operator_key(&file).unwrap_err().message().to_owned();
    for open in [0o640, 0o604, 0o601] {
        mode(open);
        assert!(problem().contains("others than its owner"), "{open:o}");
    }
    mode(0o600);
    for (key, is_taken) in [("123456789012345\n", false), (" 1234567890123456 \n", true)] {
        std::fs::write(&file, key).unwrap();
        assert_eq!(operator_key(&file).is_ok(), is_taken, "{key:?}");
    }
    assert_eq!(
        operator_key(&file).unwrap().expose_secret(),
        "1234567890123456"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(problem().contains("not a plain file"));
    std::fs::remove_dir(&file).unwrap();
    symlink(lab.state().join("deeper/other.key"), &file).unwrap();
    assert!(operator_key(&file).is_err(), "a link is not followed");
}
