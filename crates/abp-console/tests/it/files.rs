//! The files of the console: all of them, only them, and the libraries as they were published.

use std::collections::BTreeSet;
use std::path::Path;

use abp_console::{FILES, INDEX, verifier_page};
use sha2::{Digest as _, Sha256};

/// Parts of the one-file verifier, and the page itself: not served below `/console/`.
const APART: [&str; 3] = ["index.html", "verifier.html", "verifier.js"];

#[test]
fn every_file_is_served_and_no_other() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let present: BTreeSet<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !APART.contains(&name.as_str()))
        .collect();
    let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(served, present);
    assert!(!INDEX.bytes.is_empty());
}

/// Hashes of the files as the packages have them: preact 11.2.0 and htm 3.1.1.
#[test]
fn the_libraries_are_as_they_were_published() {
    let cases = [
        (
            "preact.mjs",
            "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
        ),
        (
            "hooks.mjs",
            "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4",
        ),
        (
            "htm.mjs",
            "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
        ),
    ];
    for (name, expected) in cases {
        let file = FILES.iter().find(|file| file.name == name).unwrap();
        // A browser finds no package by its name: the one import of `hooks.mjs` is of a file.
        let text = std::str::from_utf8(file.bytes).unwrap();
        let published = text.replace("from\"./preact.mjs\"", "from\"preact\"");
        let hash: String = Sha256::digest(published)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hash, expected, "{name}");
    }
    for name in ["LICENSE-preact.txt", "LICENSE-htm.txt"] {
        assert!(FILES.iter().any(|file| file.name == name), "{name}");
    }
}

#[test]
fn the_verifier_is_one_file_without_imports() {
    let page = verifier_page();
    assert!(page.contains("async function verifyFile"));
    assert!(page.contains("document.getElementById('drop')"));
    assert!(!page.contains("/*SCRIPT*/"));
    for line in page.lines() {
        let is_loading = line.starts_with("import ") || line.starts_with("export ");
        assert!(!is_loading, "{line}");
    }
    assert!(!page.contains("src=") && !page.contains("href="));
}
