//! The hosts in other languages have tests of their own; these run them with this `abp`.

use std::path::Path;
use std::process::Command;

/// Runs a program in a folder of the repository; skips where the program is missing.
fn run(program: &str, arguments: &[&str], folder: &str) {
    let version = Command::new(program).arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return abp_testkit::skip(
            &format!("{program} {}", arguments.join(" ")),
            &format!("{program} is not installed"),
        );
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root.join(folder))
        .env("ABP_BIN", env!("CARGO_BIN_EXE_abp"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_javascript_library() {
    run("node", &["--test", "hosts/tests/lib.test.js"], "");
}

#[test]
fn the_hosts_of_vendors() {
    run("node", &["--test", "hosts/tests/vendors.test.js"], "");
}

#[test]
fn the_python_host() {
    run(
        "python3",
        &["-m", "unittest", "test_hosts.PythonHost"],
        "hosts/tests",
    );
}

#[test]
fn the_node_host() {
    run(
        "python3",
        &["-m", "unittest", "test_hosts.NodeHost"],
        "hosts/tests",
    );
}

#[test]
fn fixtures_libraries_and_transcripts() {
    let modules = [
        "-m",
        "unittest",
        "test_fixtures",
        "test_lib",
        "test_transcripts",
    ];
    run("python3", &modules, "hosts/tests");
}
