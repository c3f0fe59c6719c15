//! Sidecars written in shell, and what is left of them.

use std::path::Path;
use std::time::{Duration, Instant};

use abp_core::{AgentEvent, WorkOrder, WorkOrderBuilder};
use abp_host::{Grace, Launcher, RunEnded, SidecarClient, SidecarFailure, SidecarSpec, Timing};
use abp_sandbox::procfs::{ProcessId, with_variable};
use uuid::Uuid;

/// Marks every process of a test.
pub(crate) const MARK: &str = "ABP_TEST_MARK";

/// What most scripts need: the messages, and the run's id from the first line of input.
const PRELUDE: &str = r#"
say() { printf '%s\n' "$1"; }
hello() { say '{"t":"hello","contract_version":"abp/v0.1","backend":{"id":"test"},"capabilities":{"streaming":"native"},"later":1}'; }
run() { read -r line; id=${line#*'"id":"'}; id=${id%%'"'*}; }
event() { say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"assistant_delta\",\"text\":\"$1\"}}"; }
kind() { say "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"$1\",$2}}"; }
final() { say "{\"t\":\"final\",\"ref_id\":\"$id\",\"receipt\":{\"usage_raw\":{\"tokens\":7}}}"; }
"#;

/// Short, and yet long enough for a machine with better things to do.
pub(crate) fn timing() -> Timing {
    let millis = Duration::from_millis;
    Timing {
        hello: millis(8_000),
        write: millis(8_000),
        cancel: Grace {
            before_term: millis(400),
            before_kill: millis(400),
        },
        exit: Grace {
            before_term: millis(2_000),
            before_kill: millis(400),
        },
        ..Timing::default()
    }
}

/// A sidecar in shell. Its processes are found by the mark.
pub(crate) fn shell(script: &str) -> (SidecarSpec, Mark) {
    sidecar("sh", &["-c", &format!("{PRELUDE}{script}")])
}

pub(crate) fn sidecar(command: &str, args: &[&str]) -> (SidecarSpec, Mark) {
    let mark = Mark(Uuid::new_v4().to_string());
    let mut spec = SidecarSpec::new(command, std::env::temp_dir());
    spec.args = args.iter().map(|&arg| arg.to_owned()).collect();
    spec.env.insert(MARK.to_owned(), mark.0.clone());
    spec.launcher = Launcher::at(env!("CARGO_BIN_EXE_abp-launcher"));
    spec.timing = timing();
    (spec, mark)
}

pub(crate) struct Mark(pub(crate) String);

impl Mark {
    pub(crate) fn processes(&self) -> Vec<ProcessId> {
        with_variable(MARK, &self.0)
    }

    /// Waits until that many processes run, the launcher's own included.
    pub(crate) async fn reaches(&self, count: usize) {
        let since = Instant::now();
        while self.processes().len() < count {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "{:?}",
                self.processes()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until nothing is left, but not for long.
    pub(crate) async fn gone_within(&self, patience: Duration) {
        let since = Instant::now();
        while !self.processes().is_empty() {
            assert!(
                since.elapsed() < patience,
                "left behind: {:?}",
                self.processes()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn order() -> WorkOrder {
    WorkOrderBuilder::new("test").build()
}

/// Runs a sidecar to its end.
pub(crate) async fn run(spec: SidecarSpec) -> Result<(Vec<AgentEvent>, RunEnded), SidecarFailure> {
    let client = SidecarClient::spawn(spec).await?;
    let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
    let mut events = Vec::new();
    while let Some(batch) = run.next_events().await {
        events.extend(batch);
    }
    Ok((events, run.finish().await))
}

/// The failure of a sidecar that is known to fail.
pub(crate) async fn failure(spec: SidecarSpec) -> (Vec<AgentEvent>, SidecarFailure) {
    match run(spec).await {
        Err(failure) => (Vec::new(), failure),
        Ok((events, ended)) => (events, ended.result.expect_err("it did its work")),
    }
}

/// The name and the content of the one note in a state directory. It is written when the sidecar runs, so it
/// may come a moment after the sidecar's own signs of life.
pub(crate) fn only_note(state: &Path) -> (String, String) {
    let directory = abp_host::records::directory(state);
    let since = std::time::Instant::now();
    let has_note = || {
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        let mut names = entries.flatten().map(|entry| entry.path());
        names.any(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
    };
    while !has_note() && since.elapsed() < std::time::Duration::from_secs(10) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let notes: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_name() != "refused")
        .collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let name = notes[0].file_name().into_string().unwrap();
    (name, std::fs::read_to_string(notes[0].path()).unwrap())
}
