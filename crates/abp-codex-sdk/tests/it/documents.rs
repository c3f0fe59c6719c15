//! The documents under `fixtures/codex`, which show every feature of the dialect.

use std::fs;
use std::path::{Path, PathBuf};

use crate::same::{Writing, assert_same, events, recode, rewrite_request, rewrite_response};

fn fixtures() -> Vec<(String, String)> {
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/codex");
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the fixtures are part of the repository")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let name = |path: &PathBuf| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    files
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).expect("text")))
        .collect()
}

#[test]
fn every_fixture_comes_back_the_same() {
    let mut checked = [0; 3];
    for (name, source) in fixtures() {
        let (kind, written) = match name.split('_').next() {
            Some("request") => (0, rewrite_request(&source, Writing::Copied)),
            Some("response") => (1, rewrite_response(&source, Writing::Copied)),
            _ => {
                checked[2] += 1;
                let (answer, written) = recode(&events(&source)).expect(&name);
                let (again, _) = recode(&written).expect(&name);
                assert_eq!(answer, again, "{name}");
                continue;
            }
        };
        checked[kind] += 1;
        assert_same(&name, &source, &written.expect(&name));
    }
    assert!(checked.iter().all(|count| *count > 0), "{checked:?}");
}
