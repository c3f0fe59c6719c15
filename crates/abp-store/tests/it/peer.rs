//! Other processes: this test binary, started again to play a part.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use abp_core::MicroUsd;
use abp_store::{Reserved, Store, StoreError};
use uuid::Uuid;

use crate::lab::{
    accepted, append, exchange, finish, new_key, open, recorded, reservation, wait_for_its_death,
};

const PART: &str = "ABP_STORE_TEST_PART";
const DIR: &str = "ABP_STORE_TEST_DIR";

/// A process that plays a part and says what it did, line by line.
pub(crate) struct Peer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts a process; `through` is a command to start it with, such as a tracer.
    pub(crate) fn start(through: &[&str], part: &str, dir: &Path) -> Self {
        Self::start_with(&[], through, part, dir)
    }

    /// As [`Self::start`], with more in its environment.
    pub(crate) fn start_with(
        environment: &[(&str, String)],
        through: &[&str],
        part: &str,
        dir: &Path,
    ) -> Self {
        let own = std::env::current_exe().expect("a path");
        let own = own.to_str().expect("a plain path");
        let words: Vec<&str> = [
            through,
            &[own, "--exact", "peer::plays_its_part", "--nocapture"],
        ]
        .concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .env(PART, part)
            .env(DIR, dir)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let stdout = child.stdout.take().expect("its output");
        Self {
            child,
            lines: BufReader::new(stdout).lines(),
        }
    }

    /// The next thing it says; `None` when it ended.
    pub(crate) fn say(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.expect("text");
            if let Some((_, said)) = line.split_once("peer: ") {
                return Some(said.to_owned());
            }
        }
    }

    pub(crate) fn run_id(&mut self) -> Uuid {
        let said = self.say().expect("its run");
        let id = said.strip_prefix("run ").expect("a run");
        id.parse().expect("an id")
    }

    /// Sends it a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill")
            .args([signal, self.child.id().to_string()])
            .status();
        assert!(sent.expect("a command").success());
    }

    /// Kills it as hard as can be, and returns what it still said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("killed");
        let said = self.rest();
        wait_for_its_death();
        said
    }

    /// Waits for its end.
    pub(crate) fn rest(mut self) -> Vec<String> {
        let said = std::iter::from_fn(|| self.say()).collect();
        self.child.wait().expect("its end");
        said
    }
}

/// Whether a command can be started.
pub(crate) fn has(command: &str) -> bool {
    let mut trial = Command::new(command);
    trial
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success())
}

fn say(words: &str) {
    // Written to the stream itself, and at once: the parent may kill us at any moment.
    let mut out = std::io::stdout().lock();
    writeln!(out, "peer: {words}").expect("the parent listens");
    out.flush().expect("the parent listens");
}

/// Plays the part named in the environment; does nothing where none is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plays_its_part() {
    let (Ok(part), Some(dir)) = (std::env::var(PART), std::env::var_os(DIR)) else {
        return;
    };
    let store = open(Path::new(&dir)).await;
    match part.as_str() {
        "append for ever" => append_for_ever(&store).await,
        "a hundred events" => some_events(&store, 100).await,
        "thirty runs" => {
            for _ in 0..30 {
                one_life(&store).await.expect("a whole run");
            }
        }
        "one life" => one_life(&store).await.expect("a whole run"),
        "a gateway for ever" => serve_for_ever(&store).await,
        "a hundred reservations" => reserve_at_once(&store, 100).await,
        "reserve and wait" => {
            let reserved = store.reserve(reservation("k_shared", 300, 30)).await;
            say(&format!("{:?}", reserved.expect("durable")));
            std::future::pending::<()>().await;
        }
        "apply and wait" => apply_and_wait(&store).await,
        "some exchanges" => some_exchanges(&store, 300).await,
        other => panic!("no part is named {other}"),
    }
    store.close().await;
}

async fn append_for_ever(store: &Store) {
    let run = accepted(store).await;
    say(&format!("run {run}"));
    for seq in 0.. {
        append(store, run, seq).await.expect("durable");
        say(&format!("ack {seq}"));
    }
}

/// Appends, and tries the same event again until it is taken.
async fn some_events(store: &Store, count: u64) {
    let run = accepted(store).await;
    say(&format!("run {run}"));
    let mut seq = 0;
    while seq < count {
        match append(store, run, seq).await {
            Ok(()) => {
                say(&format!("ack {seq}"));
                seq += 1;
            }
            Err(error) => {
                say(&format!(
                    "fail {seq} {} {:?}",
                    error.code(),
                    store.health().state
                ));
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    finish(store, run).await.expect("ended");
}

async fn one_life(store: &Store) -> Result<(), StoreError> {
    let run = accepted(store).await;
    say(&format!("run {run}"));
    for seq in 0..5 {
        append(store, run, seq).await?;
        say(&format!("ack {seq}"));
    }
    finish(store, run).await?;
    say("end");
    Ok(())
}

/// A key of its own, and exchanges that are reserved, recorded and settled.
async fn serve_for_ever(store: &Store) {
    let key = format!("k_{}", std::process::id());
    store.add_key(new_key(&key, None)).await.expect("added");
    say(&format!("key {key}"));
    let log = store.exchange_log();
    for number in 0_u64.. {
        let asked = reservation(&key, 100, 10);
        let exchange = asked.exchange;
        let reserved = store.reserve(asked).await.expect("durable");
        assert_eq!(reserved, Reserved::Granted);
        let run_id = recorded(&log);
        if number.is_multiple_of(3) {
            log.flush().await.expect("durable");
            say(&format!("sealed {run_id}"));
        }
        let settled = store.settle(exchange, MicroUsd::from_micros(70), 7).await;
        assert!(settled.expect("durable"));
        say(&format!("settled {number}"));
    }
}

async fn reserve_at_once(store: &Store, count: usize) {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            store.reserve(reservation("k_shared", 300, 30)).await
        }));
    }
    for task in tasks {
        match task.await.expect("no panic").expect("durable") {
            Reserved::Granted => say("granted"),
            Reserved::Refused(_) => say("refused"),
        }
    }
}

/// Records exchanges, whatever the disk does, and says which are durable in the end.
async fn some_exchanges(store: &Store, count: usize) {
    let log = store.exchange_log();
    for number in 0..count {
        let run_id = Uuid::now_v7();
        let permit = log.admit().expect("room");
        permit.record(&exchange(run_id));
        say(&format!("recorded {run_id}"));
        if number % 10 == 0
            && let Err(error) = log.flush().await
        {
            say(&format!("fail {} {:?}", error.code(), store.health().state));
        }
    }
    while log.flush().await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    say("sealed");
}

async fn apply_and_wait(store: &Store) {
    let run = crate::tampering::whole_run(store, true).await;
    say(&format!("run {run}"));
    let (alice, journal) = (crate::tampering::alice(), b"step 1".to_vec());
    let begun = store.begin_application(run, alice, Vec::new(), journal);
    let id = begun.await.expect("begun");
    let updated = store.update_application(id, b"step 2".to_vec()).await;
    updated.expect("durable");
    say(&id.to_string());
    std::future::pending::<()>().await;
}
