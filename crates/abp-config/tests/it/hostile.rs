//! Files made to break the reader.

use std::fs;
use std::time::{Duration, Instant};

use abp_config::{Loaded, Sources, load, render, render_toml};
use proptest::prelude::*;
use proptest::sample::select;

use crate::layers::at_home;

/// Pieces of configuration, some of them broken; `~` stands for a newline.
const PIECES: &str = "~ ~[ ] [[ ]] = . , # \" ' \"\"\" { } [restrictions]~ [backends.a]~ \
    [policies.b]~ [prices.c.\"*\"]~ [emulation.vision]~ [emulation.audio]~ default_backend port \
    log_level state_dir stages_dir type script command args env priority timeout_secs deny_read \
    allowed_tools prompt detail reason input_usd_per_mtok [server]~ [upstreams.d]~ \
    [upstreams.d.aliases]~ dialect base_url models fallback tls_key api_key_env =\"openai\"~ \
    =\"https://u:p@h/\"~ =\"https://h/\"~ =[\"d\"]~ =\"mock\"~ =\"sidecar\"~ =\"disabled\"~ \
    =\"post_processing\"~ =\"a\"~ =1~ =-1~ =0.5~ =inf~ =true~ =[\"a\"]~ =[\"[\",1]~ ={a=1}~ \
    =\"~/x\"~ \u{1b}[31m \u{202e} é \0 \\u0000";

fn pieces() -> impl Strategy<Value = String> {
    let all: Vec<_> = PIECES.split(' ').collect();
    prop::collection::vec(select(all), 0..40).prop_map(|parts| parts.concat().replace('~', "\n"))
}

/// Loads a text in every role: what is said about it can be shown, what is taken can be read again.
fn survives(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backplane.toml");
    fs::write(&path, bytes).unwrap();
    for role in 0..3 {
        let mut sources = at_home();
        *[
            &mut sources.user,
            &mut sources.project,
            &mut sources.operator,
        ][role] = Some(path.clone());
        match load(&sources) {
            Err(errors) => {
                let shown = render(&errors.diagnostics, false);
                assert!(!shown.contains(['\u{1b}', '\u{202e}', '\0']), "{shown:?}");
                assert!(!shown.contains("does not fit together"), "{shown}");
            }
            Ok(loaded) => read_again(&loaded, &dir),
        }
    }
}

fn read_again(loaded: &Loaded, dir: &tempfile::TempDir) {
    let path = dir.path().join("again.toml");
    for with_origins in [false, true] {
        fs::write(&path, render_toml(loaded, with_origins)).unwrap();
        let sources = Sources {
            operator: Some(path.clone()),
            ..at_home()
        };
        let again = load(&sources).expect("what was shown");
        assert_eq!(again.config, loaded.config);
    }
}

proptest! {
    #[test]
    fn nothing_panics_on_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survives(&bytes);
    }

    #[test]
    fn nothing_panics_on_what_looks_like_configuration(text in pieces()) {
        survives(text.as_bytes());
    }
}

#[test]
fn large_files_end_soon_and_with_few_words() {
    let keys = |separator: &str| {
        let keys: Vec<_> = (0..100_000).map(|n| format!("k{n}=1")).collect();
        keys.join(separator)
    };
    let patterns = "\"a\",".repeat(200_000);
    let cases = [
        "=\n".repeat(50_000),
        keys("\n"),
        format!("restrictions = {{{}}}", keys(",")),
        format!("restrictions.deny_read = [{patterns}]"),
        format!("{} = 1", "k".repeat(1_000_000)),
        format!("{}k = 1", "k.".repeat(500_000)),
        format!("restrictions.deny_read = {}", "[".repeat(1_000_000)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let (user, project) = (
        dir.path().join("user.toml"),
        dir.path().join("project.toml"),
    );
    fs::write(&user, "[restrictions]\ndeny_read = ['a']\n").unwrap();
    let sources = Sources {
        user: Some(user),
        project: Some(project.clone()),
        ..at_home()
    };
    for text in cases {
        let start = Instant::now();
        let beginning: String = text.chars().take(40).collect();
        fs::write(&project, text).unwrap();
        let diagnostics = match load(&sources) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => errors.diagnostics,
        };
        let shown = render(&diagnostics, false);
        assert!(diagnostics.len() <= 101, "{beginning}");
        assert!(
            !shown.is_empty() && shown.len() < 100_000,
            "{beginning}: {}",
            shown.len()
        );
        assert!(start.elapsed() < Duration::from_secs(20), "{beginning}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_in_a_repository_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, link) = (dir.path().join("secret"), dir.path().join("backplane.toml"));
    fs::write(&secret, "hunter2\n").unwrap();
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let sources = Sources {
        project: Some(link),
        ..at_home()
    };
    let errors = load(&sources).unwrap_err();
    let shown = render(&errors.diagnostics, false);
    assert!(
        shown.contains("regular file") && !shown.contains("hunter2"),
        "{shown}"
    );
}
