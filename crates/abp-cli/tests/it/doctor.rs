//! What `abp doctor` says of backends, directories and servers.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::desk::{Desk, text};
use crate::served::Served;

/// The status and the detail of one check.
fn check(report: &Value, name: &str) -> (String, String) {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no check is {name:?}: {report:#}"));
    let text = |member: &str| found[member].as_str().unwrap().to_owned();
    (text("status"), text("detail"))
}

/// Every backend is looked at, and no program is started.
#[test]
fn every_backend_is_checked_and_none_is_started() {
    let desk = Desk::new();
    let (script, mark) = (desk.path("agent.sh"), desk.path("started"));
    desk.write("agent.sh", format!("#!/bin/sh\ntouch {}\n", text(&mark)));
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let sidecar = |name: &str, command: &str, more: &str| {
        format!("[backends.{name}]\ntype = \"sidecar\"\ncommand = {command:?}\n{more}\n")
    };
    let config = |default: &str| {
        let upstream = |name: &str, more: &str| {
            format!(
                "[upstreams.{name}]\ndialect = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"{name}\"]\n{more}\n"
            )
        };
        [
            format!(
                "state_dir = {:?}\ndefault_backend = {default:?}\n",
                desk.state("")
            ),
            sidecar("good", "sh", ""),
            sidecar("own", text(&script), ""),
            sidecar("missing", "no-such-program", ""),
            sidecar("lost", "sh", "[backends.lost.env]\nPATH = \"/not/there\""),
            upstream("keyless", "api_key_env = \"ABP_TEST_NO_SUCH_KEY\""),
            upstream("open", ""),
        ]
        .concat()
    };
    desk.write("operator.toml", config("missing"));
    let doctor = ["doctor", "--config", "operator.toml"];
    let (status, report) = desk.json(&doctor);
    assert_eq!((status, &report["ok"]), (1, &false.into()));
    let cases = [
        ("mock", "ok", "this process"),
        ("upstream:mock", "ok", "this process"),
        ("good", "ok", "/sh"),
        ("own", "ok", "agent.sh"),
        (
            "missing",
            "failed",
            "\"no-such-program\" was not found on PATH",
        ),
        ("lost", "warning", "was not found on PATH in /not/there"),
        ("upstream:keyless", "warning", "ABP_TEST_NO_SUCH_KEY"),
        ("upstream:open", "ok", "http://127.0.0.1:9/v1"),
        ("sidecar:python", "warning", "ABP_HOSTS_DIR"),
    ];
    for (name, expected, part) in cases {
        let (status, detail) = check(&report, &format!("backend {name}"));
        assert_eq!(status, expected, "{name}: {detail}");
        assert!(detail.contains(part), "{name}: {part:?} is not in {detail}");
    }
    assert!(!mark.exists(), "a sidecar was started");
    // A backend that runs need not use is no failure.
    desk.write("operator.toml", config("good"));
    let (_, report) = desk.json(&doctor);
    assert_eq!(check(&report, "backend missing").0, "warning");
    let shown = desk.abp(&doctor).stdout;
    assert!(shown.contains("backend missing"), "{shown}");
}

#[test]
fn directories_that_others_can_reach_are_named() {
    let desk = Desk::new();
    let (_, fresh) = desk.json(&["doctor"]);
    let names = ["state directory", "stages directory"];
    for name in names {
        let (status, detail) = check(&fresh, name);
        assert_eq!(status, "ok");
        assert!(detail.ends_with("will be made"), "{detail}");
    }
    desk.receipt();
    let stages = desk.stages().pop().unwrap();
    let directories = [desk.state(""), stages.parent().unwrap().to_owned()];
    for (name, directory) in names.into_iter().zip(directories) {
        let (_, report) = desk.json(&["doctor"]);
        let (status, detail) = check(&report, name);
        assert_eq!(status, "ok", "{detail}");
        assert!(detail.contains("by its owner alone"), "{detail}");
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        let (status, report) = desk.json(&["doctor"]);
        assert_eq!(status, 1, "{report:#}");
        let (status, detail) = check(&report, name);
        assert_eq!(status, "failed", "{detail}");
        assert!(detail.contains("chmod 700"), "{detail}");
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
    }
}

/// A server that cannot listen has closed its store; a server that was killed has not.
#[test]
fn a_server_that_cannot_listen_is_no_crash() {
    let desk = Desk::new();
    let crashes = || {
        // The next process that opens the store counts the crashes before it.
        assert_eq!(desk.abp(&["keys", "list"]).status, 0);
        check(&desk.json(&["doctor"]).1, "gateway crashes")
    };
    let served = Served::start(&desk, &[]);
    for _ in 0..2 {
        let refused = desk.abp(&["serve", "--listen", served.address()]);
        assert_ne!(refused.status, 0, "{}", refused.stdout);
        assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    }
    assert_eq!(crashes().0, "ok", "{:?}", crashes());
    drop(served);
    let (status, detail) = crashes();
    assert_eq!(status, "warning", "{detail}");
    assert!(detail.starts_with("1 server crashed"), "{detail}");
}
