//! Broken files and what is said about them: `fixtures/config/NAME.toml` and `NAME.txt`.
//!
//! `UPDATE_FIXTURES=1 cargo test -p abp-config` writes the texts anew.

use std::fs;
use std::path::Path;

use abp_config::{ConfigErrors, Severity, Sources, load, render};

use crate::layers::at_home;

const DIRECTORY: &str = "../../fixtures/config/";

#[test]
fn every_broken_file_gets_its_message() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut seen = 0;
    let mut different = Vec::new();
    for entry in fs::read_dir(DIRECTORY).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        seen += 1;
        let (text, expected) = (message(&path), path.with_extension("txt"));
        if update {
            fs::write(&expected, &text).expect("a writable fixture");
        }
        if fs::read_to_string(&expected).unwrap_or_default() != text {
            different.push(format!("{}:\n{text}", expected.display()));
        }
        assert!(!text.contains("not-to-be-shown"), "{text}");
    }
    assert!(seen >= 10, "{seen} fixtures");
    assert!(
        different.is_empty(),
        "{}\nset UPDATE_FIXTURES=1 to write these texts, then read the diff",
        different.join("\n")
    );
}

/// Files named `project…` are read as those of a repository.
fn message(path: &Path) -> String {
    let mut sources = at_home();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap();
    if name.starts_with("project") {
        sources.project = Some(path.to_owned());
    } else {
        sources.operator = Some(path.to_owned());
    }
    let (diagnostics, end) = match load(&sources) {
        Ok(loaded) => (loaded.warnings, "usable".to_owned()),
        Err(errors) => {
            let end = errors.to_string();
            (errors.diagnostics, end)
        }
    };
    format!("{}\n{end}\n", render(&diagnostics, false)).replace(DIRECTORY, "")
}

#[test]
fn files_that_cannot_be_read_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backplane.toml");
    let load_it = |bytes: Option<&[u8]>| -> Result<(), ConfigErrors> {
        drop(fs::remove_file(&path));
        if let Some(bytes) = bytes {
            fs::write(&path, bytes).unwrap();
        }
        let operator = Some(path.clone());
        let sources = Sources {
            operator,
            ..at_home()
        };
        load(&sources).map(drop)
    };
    let huge = vec![b'#'; 1024 * 1024 + 1];
    let cases: [(Option<&[u8]>, &str); 3] = [
        (None, "cannot read"),
        (Some(&huge), "is larger than 1048576 bytes"),
        (
            Some(b"port = 1\nlog_level = \"\xff\"\n"),
            ":2: not valid UTF-8",
        ),
    ];
    for (bytes, expected) in cases {
        let errors = load_it(bytes).expect_err(expected);
        assert!(errors.to_string().contains(expected), "{errors}");
        assert_eq!(errors.code().exit_status().code(), 2);
    }
    assert!(load_it(Some("\u{FEFF}port = 1\r\n".as_bytes())).is_ok());
}

#[test]
fn colours_only_when_asked() {
    let path = Path::new(DIRECTORY).join("references.toml");
    let sources = Sources {
        operator: Some(path),
        ..at_home()
    };
    let errors = load(&sources).expect_err("a broken file");
    assert!(render(&errors.diagnostics, true).contains("\u{1b}["));
    assert!(!render(&errors.diagnostics, false).contains('\u{1b}'));
    let error = abp_error::AbpError::from(errors.clone());
    let listed = error.context()["diagnostics"].as_array().unwrap();
    assert_eq!(listed.len(), errors.diagnostics.len());
    assert_eq!(listed[0]["severity"], "error");
    assert_eq!(errors.diagnostics[0].severity, Severity::Error);
}
