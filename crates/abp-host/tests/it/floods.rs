//! Too much of everything: the host's memory stays flat and it goes on listening.

use std::time::Duration;

use abp_host::SidecarClient;
use uuid::Uuid;

use crate::support::{order, run, shell};

fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn c2_a_line_of_fifteen_megabytes_is_fine() {
    let script = r#"hello; run; printf '%s' "{\"t\":\"event\",\"ref_id\":\"$id\",\"event\":{\"ts\":\"2026-01-01T00:00:00Z\",\"type\":\"assistant_delta\",\"text\":\"";
        head -c 15728640 /dev/zero | tr '\0' x; say '"}}'; final"#;
    let (spec, _) = shell(script);
    let (events, ended) = run(spec).await.unwrap();
    assert!(ended.result.is_ok(), "{:?}", ended.result);
    assert!(format!("{:?}", events[0].kind).len() > 15_728_640);
}

#[tokio::test]
async fn c6_a_flood_of_errors_is_drained_and_its_end_kept() {
    // One gigabyte; the sidecar would block at 64 KB if nobody read it.
    let before = peak_memory_kb();
    let script = "hello; run; event a; dd if=/dev/zero bs=1M count=1024 2>/dev/null >&2; echo the very end >&2; exit 9";
    let (spec, _) = shell(script);
    let (events, ended) = run(spec).await.unwrap();
    let failed = ended.result.unwrap_err();
    assert_eq!(
        (events.len(), failed.exit),
        (1, Some(abp_host::Exit::Code(9)))
    );
    assert!(failed.stderr_tail.ends_with("the very end\n"));
    assert!(failed.stderr_tail.len() <= 64 * 1024);
    let grown = peak_memory_kb() - before;
    assert!(grown < 64 * 1024, "{grown} KB");
}

#[tokio::test]
async fn c18_a_slow_reader_holds_the_sidecar_back_and_is_not_its_fault() {
    // Eight megabytes: far more than all buffers hold.
    let script = r#"hello; run; piece=$(head -c 20000 /dev/zero | tr '\0' y); i=0;
        while [ $i -lt 400 ]; do event "$piece"; i=$((i+1)); done; final"#;
    let (mut spec, mark) = shell(script);
    spec.timing.progress = Duration::from_millis(1_500);
    let client = SidecarClient::spawn(spec).await.unwrap();
    let mut run = client.run(Uuid::new_v4(), &order()).unwrap();
    // Longer than it may be silent by itself.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(!mark.processes().is_empty(), "it was not held back");
    let mut events = 0;
    while let Some(batch) = run.next_events().await {
        events += batch.len();
    }
    let ended = run.finish().await;
    assert!(ended.result.is_ok(), "{:?}", ended.result);
    assert_eq!(events, 400);
    assert_eq!(mark.processes(), []);
}
