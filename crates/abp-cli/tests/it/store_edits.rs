//! Every column of a store is either covered by `receipt verify --log` or documented as not covered.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::desk::{Desk, Ran, text};
use crate::served::{Served, post};

/// What the documentation says of a table: its covered columns, and the others.
type Documented = BTreeMap<String, (Vec<String>, Vec<String>)>;

/// Reads the table of `docs/store_verification.md`.
fn documented() -> Documented {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/store_verification.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let quoted = |cell: &str| -> Vec<String> {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(ToOwned::to_owned).collect()
    };
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let name = quoted(cells[1]).remove(0);
        (name, (quoted(cells[2]), quoted(cells[3])))
    })
    .collect()
}

/// Runs `store_edits.py`.
fn edit(store: &Path, plan: &Value) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/store_edits.py");
    let mut child = Command::new("python3")
        .args([script, text(store)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(plan.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{plan}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// A state directory with runs of every standing, a rotated key, and exchanges with a ledger.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("a.txt", "old a\n").write("b.txt", "old b\n");
    let write = |path: &str| json!({"do": "write", "path": path, "content": "new\n"});
    let script = json!({"name": "two", "steps": [write("a.txt"), write("b.txt")]});
    desk.write("two.json", script.to_string());
    let run = || {
        let ran = desk.abp(&[
            "run",
            "--task",
            "t",
            "--mock-script",
            "two.json",
            "--backend",
            "two",
        ]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    };
    run();
    assert_eq!(desk.abp(&["apply", "last", "a.txt"]).status, 0);
    assert_eq!(desk.abp(&["receipt", "key", "--rotate"]).status, 0);
    desk.write("a.txt", "old a\n");
    run();
    assert_eq!(desk.abp(&["discard", "last"]).status, 0);
    desk.write("gc.toml", "[retention]\nevents_days = 1\n");
    let mut gc = desk.command(&["gc", "--config", "gc.toml"]);
    let gc = gc.env("ABP_TEST_GC_DAYS_LATER", "2").output().unwrap();
    assert!(gc.status.success());
    run();
    let other = Desk::new();
    let vendor = Served::start(&other, &[]);
    let config = format!(
        "[upstreams.vendor]\ndialect = \"claude\"\nbase_url = \"{}\"\napi_key_env = \"VENDOR_KEY\"\n\
         models = [\"mine\"]\naliases = {{ mine = \"vendor-mock\" }}\n",
        vendor.base
    );
    desk.write("gateway.toml", config);
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--config",
        "gateway.toml",
    ];
    let mut served = Served::spawn(desk.command(&serve).env("VENDOR_KEY", &vendor.key));
    let body = json!({"model": "mine", "user": "u", "n": 1, "messages": [{"role": "user", "content": "hi"}]});
    let (status, answer) = post(&served.base, &served.key, &body);
    assert_eq!(status, 200, "{answer}");
    served.terminate();
    served.wait();
    desk
}

#[test]
fn every_covered_column_of_a_store_is_compared_and_every_other_is_documented() {
    let desk = desk();
    let sound = desk.abp(&["receipt", "verify", "--log"]);
    assert_eq!(sound.status, 0, "{}{}", sound.stdout, sound.stderr);
    let store = desk.state("store.db");
    let documented = documented();
    let found = edit(&store, &json!([]));
    let mut edits = Vec::new();
    for (table, told) in found.as_object().unwrap() {
        let (covered, not) = documented
            .get(table)
            .unwrap_or_else(|| panic!("{table} is not documented"));
        let mut all: Vec<&str> = covered.iter().chain(not).map(String::as_str).collect();
        let mut columns: Vec<&str> = told["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        all.sort_unstable();
        columns.sort_unstable();
        assert_eq!(all, columns, "{table}");
        if covered.is_empty() {
            continue;
        }
        assert!(
            told["rows"].as_u64().unwrap() > 0,
            "no row of {table}: {found:#}"
        );
        edits.extend(
            covered
                .iter()
                .map(|column| (table.as_str(), Some(column.as_str()))),
        );
        // A ledger may be missing after a crash, and an older checkpoint is an additional one.
        if !["ledgers", "checkpoints"].contains(&table.as_str()) {
            edits.push((table, None));
        }
    }
    assert_eq!(documented.len(), found.as_object().unwrap().len());
    let copies = tempfile::tempdir().unwrap();
    let place = |number: usize| copies.path().join(number.to_string());
    let mut plan = Vec::new();
    for (number, (table, column)) in edits.iter().enumerate() {
        std::fs::create_dir(place(number)).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(place(number), private).unwrap();
        plan.push(json!([place(number).join("store.db"), table, column]));
    }
    edit(&store, &json!(plan));
    let mut unseen = Vec::new();
    for (number, edited) in edits.iter().enumerate() {
        let mut command = desk.command(&["receipt", "verify", "--log"]);
        let ran = Ran::new(command.env("ABP_HOME", place(number)).output().unwrap());
        // An empty head says so, and is not taken for a store that is not there.
        if ran.status == 0 || (ran.stdout + &ran.stderr).contains("no store") {
            unseen.push(edited);
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}
