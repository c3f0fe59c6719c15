//! Nothing of a sidecar is left, whatever it did and however it ended.

use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use abp_host::{Containment, Launcher, ResourceLimits, SidecarClient, SidecarSpec, records};
use uuid::Uuid;

use crate::support::{Mark, only_note, order, run, shell};

/// A child, a child that ignores SIGTERM, and a daemon that left session and parent.
const FAMILY: &str = r#"
sleep 300 &
(trap '' TERM; sleep 300; sleep 300) &
(setsid sh -c 'trap "" TERM HUP; sleep 300 & sleep 300' </dev/null >/dev/null 2>&1 &)
hello; run; event ready;
"#;
const BOTH: [Containment; 2] = [Containment::PidNamespace, Containment::Subreaper];
/// The family, the sidecar and its launcher.
const FAMILY_SIZE: usize = 6;
const SOON: Duration = Duration::from_secs(5);

fn family(end: &str, containment: Containment) -> (SidecarSpec, Mark) {
    let (mut spec, mark) = shell(&format!("{FAMILY}{end}"));
    let launcher = Launcher::at(env!("CARGO_BIN_EXE_abp-launcher"));
    spec.launcher = launcher.contained_by(containment);
    (spec, mark)
}

#[tokio::test]
async fn c12_no_descendant_is_left_after_the_end() {
    for containment in BOTH {
        for end in [
            "final; exit 0",
            "exit 3",
            "echo noise; sleep 300",
            "kill -9 $$",
        ] {
            let (spec, mark) = family(end, containment);
            let (events, _) = run(spec).await.unwrap();
            assert_eq!(events.len(), 1);
            assert_eq!(mark.processes(), [], "{containment:?}, {end}");
        }
    }
}

#[tokio::test]
async fn c12_no_descendant_is_left_after_cancel_drop_and_panic() {
    for containment in BOTH {
        for way in ["cancel", "drop", "abort", "panic"] {
            let (spec, mark) = family("trap '' TERM; while :; do sleep 300; done", containment);
            let client = SidecarClient::spawn(spec).await.unwrap();
            assert_eq!(client.containment(), Some(containment));
            let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
            run.next_events().await.unwrap();
            mark.reaches(FAMILY_SIZE).await;
            match way {
                "cancel" => {
                    run.cancel_token().cancel("user");
                    assert!(run.next_events().await.is_none());
                    let failed = run.finish().await.result.unwrap_err();
                    assert_eq!(failed.error.code(), abp_error::ErrorCode::RunCancelled);
                    assert_eq!(mark.processes(), [], "{containment:?}");
                }
                "drop" => drop(run),
                "abort" => {
                    let task = tokio::spawn(run.finish());
                    tokio::task::yield_now().await;
                    task.abort();
                }
                _ => {
                    let task = tokio::spawn(async move {
                        let _run = run;
                        panic!("the backend's own fault");
                    });
                    assert!(task.await.unwrap_err().is_panic());
                }
            }
            mark.gone_within(SOON).await;
        }
    }
}

/// A host of its own, to be killed: this very test program, told to run a sidecar and wait.
#[test]
fn victim_host() {
    let Ok(containment) = std::env::var("ABP_TEST_VICTIM") else {
        return;
    };
    let containment = BOTH.into_iter().find(|way| way.as_str() == containment);
    let (mut spec, _) = family("while :; do sleep 300; done", containment.unwrap());
    spec.env.insert(
        crate::support::MARK.to_owned(),
        std::env::var(crate::support::MARK).unwrap(),
    );
    spec.records = Some(std::env::var("ABP_TEST_RECORDS").unwrap().into());
    // Spawned from a thread that ends, as `spawn_blocking` does: that must not end the sidecar.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    let spawned = std::thread::spawn(move || handle.block_on(SidecarClient::spawn(spec)).ok());
    let client = spawned.join().unwrap().unwrap();
    runtime.block_on(async {
        let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
        run.next_events().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// A host that runs a sidecar, its mark, and its state directory.
pub(crate) async fn start_host(containment: Containment) -> (Child, Mark, tempfile::TempDir) {
    let mark = Mark(Uuid::new_v4().to_string());
    let state = tempfile::tempdir().unwrap();
    let host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "containment::victim_host"])
        .env("ABP_TEST_VICTIM", containment.as_str())
        .env("ABP_TEST_RECORDS", records::directory(state.path()))
        .env(crate::support::MARK, &mark.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    mark.reaches(FAMILY_SIZE + 1).await;
    (host, mark, state)
}

async fn kill_host(containment: Containment, launcher_too: bool) -> (Mark, tempfile::TempDir) {
    let (mut host, mark, state) = start_host(containment).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(host.try_wait().unwrap().is_none(), "C15: the host ended");
    assert!(
        mark.processes().len() > FAMILY_SIZE,
        "C15: the sidecar ended with a thread"
    );
    if launcher_too {
        let (_, note) = only_note(state.path());
        let note: serde_json::Value = serde_json::from_str(&note).unwrap();
        let pid = i32::try_from(note["note"]["launcher"]["pid"].as_i64().unwrap()).unwrap();
        let launcher = rustix::process::Pid::from_raw(pid).unwrap();
        host.kill().unwrap();
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
    } else {
        host.kill().unwrap();
    }
    host.wait().unwrap();
    (mark, state)
}

#[tokio::test]
async fn c13_c15_killing_the_host_leaves_nothing() {
    for containment in BOTH {
        let (mark, _records) = kill_host(containment, false).await;
        mark.gone_within(Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn c13_killing_host_and_launcher_leaves_nothing_after_the_next_start() {
    for containment in BOTH {
        let (mark, state) = kill_host(containment, true).await;
        if containment == Containment::PidNamespace {
            mark.gone_within(Duration::from_secs(2)).await;
        }
        let notes = records::directory(state.path());
        let swept = records::sweep(&notes).unwrap();
        assert_eq!(
            (swept.ended.len(), swept.refused.len()),
            (1, 0),
            "{swept:?}"
        );
        assert_eq!(mark.processes(), [], "{containment:?}");
        assert_eq!(records::sweep(&notes).unwrap().ended.len(), 0);
    }
}

#[tokio::test]
async fn b14_c19_a_sidecar_sees_its_three_streams_and_its_own_environment() {
    // What this process was given, whoever started it, is not for a sidecar.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO_")));
    // A descriptor that a careless host leaves open for its children.
    let (leaked, _other) = rustix::pipe::pipe().unwrap();
    assert!(
        !rustix::io::fcntl_getfd(leaked.as_fd())
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
    for containment in BOTH {
        let script = "hello; run; ls /proc/self/fd > fds; event \"$(echo $(cat fds)) $(env | grep -c CARGO_) $PWD $GIVEN\"; final";
        let (mut spec, _) = shell(script);
        let here = tempfile::tempdir().unwrap();
        spec.directory = here.path().canonicalize().unwrap();
        spec.env.insert("GIVEN".to_owned(), "given".to_owned());
        let launcher = Launcher::at(env!("CARGO_BIN_EXE_abp-launcher"));
        spec.launcher = launcher.contained_by(containment);
        // The fourth is the directory that is being listed.
        let expected = format!("0 1 2 3 0 {} given", spec.directory.display());
        let (events, ended) = run(spec).await.unwrap();
        assert!(ended.result.is_ok(), "{ended:?}");
        let abp_core::AgentEventKind::AssistantDelta { text } = &events[0].kind else {
            panic!("{events:?}");
        };
        assert_eq!(text, &expected);
    }
    drop(leaked);
}

/// A fork bomb and a hog: each ends at its limit, and the host goes on.
#[tokio::test]
async fn c20_limits_hold_for_everything_a_sidecar_starts() {
    let bomb = "hello; run; bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 1; final; exit 0";
    let hog = "hello; run; head -c 300000000 /dev/zero | tail -c 250000000 >/dev/null && final";
    let limits = |processes, memory_bytes| ResourceLimits {
        processes,
        memory_bytes,
        file_bytes: None,
    };
    for (script, limits) in [
        (bomb, limits(Some(64), None)),
        (hog, limits(None, Some(64 * 1024 * 1024))),
    ] {
        let (mut spec, mark) = shell(script);
        spec.limits = limits;
        match run(spec).await {
            Err(failed) if failed.to_string().contains("could not be started") => {
                let cause = abp_error::AbpError::from(failed).cause_chain().unwrap();
                assert!(cause.contains("no control group can be made"), "{cause}");
                return abp_testkit::skip("limits of sidecars", &cause);
            }
            Err(failed) => panic!("{failed}"),
            Ok((_, ended)) => {
                let bombed = limits.processes.is_some();
                assert_eq!(ended.result.is_ok(), bombed, "{:?}", ended.result);
            }
        }
        assert_eq!(mark.processes(), []);
    }
}

#[tokio::test]
async fn c20_no_file_outgrows_its_limit() {
    let script =
        "hello; run; (head -c 3000000 /dev/zero >$FILE) 2>/dev/null || event full; final; exit 0";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let (mut spec, _) = shell(script);
    spec.env
        .insert("FILE".to_owned(), file.to_str().unwrap().to_owned());
    spec.limits.file_bytes = Some(1_000_000);
    let (events, ended) = run(spec).await.unwrap();
    assert!(ended.result.is_ok(), "{ended:?}");
    assert_eq!(events.len(), 1, "the writer was told");
    assert_eq!(file.metadata().unwrap().len(), 1_000_000);
}
