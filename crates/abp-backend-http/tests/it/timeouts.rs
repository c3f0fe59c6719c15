//! Four limits, each with its own error. Where the wait is long, the clock is stopped once the
//! exchange has come as far as it will: time then passes at once.

use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{ModelBody, ModelReply, Upstream as _, UpstreamError};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, Timeouts};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_testkit::{FakeVendor, Reply};
use tokio::time::Instant;

use crate::support::{call, spec, until};

fn limited(vendor: &FakeVendor, timeouts: Timeouts) -> Arc<HttpUpstream> {
    let spec = HttpUpstreamSpec {
        timeouts,
        ..spec(vendor.url("/v1"))
    };
    Arc::new(HttpUpstream::new(spec).unwrap())
}

async fn send(upstream: &HttpUpstream) -> Result<ModelReply, UpstreamError> {
    upstream.send(call(Dialect::OpenAi, "{}")).await
}

async fn first_part(body: &mut ModelBody) {
    let part = body.next().await.unwrap().unwrap();
    assert_eq!(part, "0123456789");
}

/// So many seconds passed, give or take what passed before the clock was stopped.
fn took(since: Instant, seconds: u64) -> bool {
    since.elapsed().abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(6)
}

const PARTS: &str = "01234567890123456789";

#[tokio::test]
async fn b21_a_connection_that_does_not_come_about() {
    // Accepts, and never says a word of TLS.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = HttpUpstream::new(HttpUpstreamSpec {
        timeouts: Timeouts {
            connect: Duration::from_millis(100),
            ..Timeouts::default()
        },
        ..spec(format!("https://{}", listener.local_addr().unwrap()))
    })
    .unwrap();
    let error = send(&upstream).await.unwrap_err();
    assert_eq!(error, UpstreamError::ConnectTimeout { limit_ms: 100 });
    assert_eq!(error.code(), ErrorCode::BackendConnectTimeout);
}

#[tokio::test]
async fn b21_an_answer_that_does_not_begin() {
    let vendor = Arc::new(FakeVendor::start(Reply::silence()).unwrap());
    let upstream = limited(&vendor, Timeouts::default());
    let sent = tokio::spawn(async move { send(&upstream).await });
    assert!(until(&vendor, |seen| !seen.is_empty()).await);
    tokio::time::pause();
    let stopped = Instant::now();
    let error = sent.await.unwrap().unwrap_err();
    assert_eq!(error, UpstreamError::FirstByteTimeout { limit_ms: 600_000 });
    assert_eq!(error.code(), ErrorCode::BackendFirstByteTimeout);
    assert!(took(stopped, 600));
}

#[tokio::test]
async fn b21_an_answer_that_stalls() {
    let vendor = FakeVendor::start(Reply::events(PARTS).stall_at(10)).unwrap();
    let mut body = send(&limited(&vendor, Timeouts::default()))
        .await
        .unwrap()
        .body;
    first_part(&mut body).await;
    tokio::time::pause();
    let stopped = Instant::now();
    let error = body.next().await.unwrap().unwrap_err();
    assert_eq!(error, UpstreamError::Stalled { limit_ms: 120_000 });
    assert_eq!(error.code(), ErrorCode::BackendStalled);
    assert!(took(stopped, 120));
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn b21_an_exchange_that_takes_too_long_as_a_whole() {
    let timeouts = Timeouts {
        total: Duration::from_secs(60),
        ..Timeouts::default()
    };
    let silent = Arc::new(FakeVendor::start(Reply::silence()).unwrap());
    let upstream = limited(&silent, timeouts);
    let sent = tokio::spawn(async move { send(&upstream).await });
    assert!(until(&silent, |seen| !seen.is_empty()).await);
    let stalling = FakeVendor::start(Reply::events(PARTS).stall_at(10)).unwrap();
    let mut body = send(&limited(&stalling, timeouts)).await.unwrap().body;
    first_part(&mut body).await;
    // Never a wait, and still too long: the parts come faster than they are taken.
    let endless =
        FakeVendor::start(Reply::events(vec![b'x'; 64 << 20]).in_chunks(1 << 14)).unwrap();
    let mut fast = send(&limited(&endless, timeouts)).await.unwrap().body;
    fast.next().await.unwrap().unwrap();
    tokio::time::pause();
    let late = UpstreamError::TotalTimeout { limit_ms: 60_000 };
    assert_eq!(sent.await.unwrap().unwrap_err(), late);
    assert_eq!(body.next().await.unwrap().unwrap_err(), late);
    tokio::time::advance(timeouts.total).await;
    assert_eq!(fast.next().await.unwrap().unwrap_err(), late);
    assert_eq!(late.code(), ErrorCode::BackendTimeout);
}

#[tokio::test]
async fn b21_a_reader_that_takes_its_time_is_not_a_vendor_that_stalls() {
    let pause = Duration::from_millis(20);
    let reply = Reply::events(PARTS).in_chunks(10).every(pause).stall_at(20);
    let vendor = FakeVendor::start(reply).unwrap();
    let upstream = limited(&vendor, Timeouts::default());
    let mut body = send(&upstream).await.unwrap().body;
    first_part(&mut body).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1_000)).await;
    tokio::time::resume();
    first_part(&mut body).await;
    // The timer went off meanwhile; it watches over what comes after all the same.
    tokio::time::pause();
    let stopped = Instant::now();
    let stalled = tokio::time::timeout(Duration::from_secs(200), body.next()).await;
    let stalled = stalled.unwrap().unwrap().unwrap_err();
    assert_eq!(stalled, UpstreamError::Stalled { limit_ms: 120_000 });
    assert!(took(stopped, 120));
}

#[tokio::test]
async fn b21_an_answer_may_take_longer_than_any_of_its_pauses() {
    let timeouts = Timeouts {
        idle: Duration::from_millis(400),
        ..Timeouts::default()
    };
    let reply = Reply::events(PARTS)
        .in_chunks(1)
        .every(Duration::from_millis(25));
    let vendor = FakeVendor::start(reply).unwrap();
    let reply = send(&limited(&vendor, timeouts)).await.unwrap();
    assert_eq!(reply.body.collect(100).await.unwrap(), PARTS);
}
