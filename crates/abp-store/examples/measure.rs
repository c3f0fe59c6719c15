//! Temporary measurement.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]
use abp_store::*;
use std::io::Write as _;
use std::time::Instant;
use uuid::Uuid;

fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    let l = s.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    l.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let many: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    let json = format!(
        "{{\"type\":\"assistant_delta\",\"text\":\"{}\"}}",
        "x".repeat(260)
    );
    for _ in 0..3 {
        let file_path = dir.with_extension("raw");
        let mut f = std::fs::File::create(&file_path).unwrap();
        let n = 2000;
        let t = Instant::now();
        for _ in 0..n {
            f.write_all(json.as_bytes()).unwrap();
            f.sync_data().unwrap();
        }
        let s = t.elapsed().as_secs_f64();
        println!(
            "bare write+fdatasync: {:.0}/s ({:.0} us)",
            n as f64 / s,
            s / n as f64 * 1e6
        );
    }
    let store = Store::open(&dir, StoreOptions::default()).await.unwrap();
    let new = |run_id| NewRun {
        run_id,
        order_json: "{}".into(),
        order_sha256: "5e".repeat(32),
        backend: "mock".into(),
        at: abp_core::Timestamp::from_unix_millis(0),
        idempotency_key: None,
    };
    for _ in 0..3 {
        let run = Uuid::now_v7();
        let t = Instant::now();
        store.accept(new(run)).await.unwrap();
        println!("accept: {:.0} us", t.elapsed().as_secs_f64() * 1e6);
        let n = 2000;
        let mut lat = Vec::new();
        let t = Instant::now();
        for i in 0..n {
            let t = Instant::now();
            store
                .append_event(run, i, json.clone())
                .await
                .unwrap()
                .await
                .unwrap();
            lat.push(t.elapsed().as_secs_f64() * 1e6);
        }
        let s = t.elapsed().as_secs_f64();
        lat.sort_by(f64::total_cmp);
        println!(
            "durable single appends: {:.0}/s p50 {:.0} us p99 {:.0} us",
            n as f64 / s,
            lat[n as usize / 2],
            lat[n as usize * 99 / 100]
        );
    }
    for round in 0..3 {
        let run = Uuid::now_v7();
        store.accept(new(run)).await.unwrap();
        let before = store.health().commits;
        let t = Instant::now();
        let mut acks = std::collections::VecDeque::new();
        let mut top = 0;
        for i in 0..many {
            acks.push_back(store.append_event(run, i, json.clone()).await.unwrap());
            if acks.len() > 20000 {
                acks.pop_front().unwrap().await.unwrap();
            }
            if i % 10000 == 0 {
                top = top.max(rss());
            }
        }
        for a in acks {
            a.await.unwrap();
        }
        let s = t.elapsed().as_secs_f64();
        println!(
            "group commit, one run, {many} events: {:.0}/s, {} commits, top rss {} KiB",
            many as f64 / s,
            store.health().commits - before,
            top
        );
        if round == 0 {
            let t = Instant::now();
            let mut next = 0;
            let mut top = 0;
            loop {
                let page = store.events(run, next, 1000).await.unwrap();
                if page.is_empty() {
                    break;
                }
                next += page.len() as u64;
                top = top.max(rss());
            }
            println!(
                "read back {next}: {:.0}/s rss {top} KiB",
                next as f64 / t.elapsed().as_secs_f64()
            );
        }
    }
    // many runs each awaiting
    let mut tasks = Vec::new();
    let before = store.health().commits;
    let t = Instant::now();
    for _ in 0..64 {
        let store = store.clone();
        let json = json.clone();
        let new = new(Uuid::now_v7());
        tasks.push(tokio::spawn(async move {
            let run = new.run_id;
            store.accept(new).await.unwrap();
            for i in 0..500 {
                store
                    .append_event(run, i, json.clone())
                    .await
                    .unwrap()
                    .await
                    .unwrap();
            }
        }));
    }
    for t in tasks {
        t.await.unwrap();
    }
    println!(
        "64 runs, each waits for every ack: {:.0}/s, {} commits",
        64.0 * 500.0 / t.elapsed().as_secs_f64(),
        store.health().commits - before
    );
    let t = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..300 {
        let id = Uuid::now_v7();
        store.accept(new(id)).await.unwrap();
        runs.push(id);
    }
    println!(
        "accepts, one after the other: {:.0}/s",
        300.0 / t.elapsed().as_secs_f64()
    );
    let t = Instant::now();
    for id in runs {
        let at = abp_core::Timestamp::from_unix_millis(0);
        let receipt: abp_core::Receipt = serde_json::from_value(serde_json::json!({
            "meta": {"run_id": id, "work_order_id": Uuid::nil(), "contract_version": "abp/v0.1", "started_at": at, "finished_at": at, "duration_ms": 0},
            "backend": {"id":"mock"}, "usage_raw": {"note": "x".repeat(5000)}, "verification": {"harness_ok": true}, "outcome": "complete"})).unwrap();
        let receipt = receipt.with_hash().unwrap();
        store
            .finish(
                id,
                receipt.to_document().unwrap(),
                receipt.receipt_sha256.as_ref().unwrap(),
            )
            .await
            .unwrap();
    }
    println!(
        "finishes (5 KB receipt), one after the other: {:.0}/s",
        300.0 / t.elapsed().as_secs_f64()
    );
    let t = Instant::now();
    let r = store.verify(VerifyOptions::default()).await.unwrap();
    println!(
        "verify: ok {} size {} in {:.2}s, rss {} KiB, db {} MB",
        r.is_ok(),
        r.log.size,
        t.elapsed().as_secs_f64(),
        rss(),
        std::fs::metadata(dir.join("store.db")).unwrap().len() / 1_000_000
    );
    let t = Instant::now();
    store.close().await;
    println!("close: {:.0} ms", t.elapsed().as_secs_f64() * 1e3);
    for _ in 0..3 {
        let t = Instant::now();
        let store = Store::open(&dir, StoreOptions::default()).await.unwrap();
        println!("open: {:.1} ms", t.elapsed().as_secs_f64() * 1e3);
        store.close().await;
    }
}
