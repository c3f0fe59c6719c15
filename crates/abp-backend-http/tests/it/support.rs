//! What the tests share.

use abp_backend_core::{ModelCall, ModelOperation};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, Timeouts, UpstreamAuth};
use abp_dialect::{Dialect, WireFamily};
use abp_testkit::{FakeVendor, VendorRequest};
use bytes::Bytes;
use http::HeaderMap;

/// A key that must not turn up anywhere but at the vendor.
pub(crate) const KEY: &str = "sk-canary-0123456789";

pub(crate) fn spec(base_url: impl Into<String>) -> HttpUpstreamSpec {
    HttpUpstreamSpec {
        name: "vendor".to_owned(),
        dialects: Dialect::ALL.to_vec(),
        base_url: base_url.into(),
        key: Some(KEY.into()),
        key_command: None,
        auth: UpstreamAuth::Dialect,
        headers: Vec::new(),
        query: None,
        proxy: None,
        wire_version: None,
        timeouts: Timeouts::default(),
        max_answer_bytes: 1 << 20,
        ca_file: None,
    }
}

/// An upstream of a vendor, at the address that the dialect's own client would be given.
pub(crate) fn upstream(vendor: &FakeVendor, dialect: Dialect) -> HttpUpstream {
    HttpUpstream::new(HttpUpstreamSpec {
        dialects: vec![dialect],
        ..spec(vendor.url(base_path(dialect)))
    })
    .unwrap()
}

pub(crate) fn base_path(dialect: Dialect) -> &'static str {
    match dialect.family() {
        WireFamily::Messages | WireFamily::GenerateContent => "",
        _ => "/v1",
    }
}

pub(crate) fn call(dialect: Dialect, body: impl Into<Bytes>) -> ModelCall {
    ModelCall {
        dialect,
        operation: ModelOperation::Generate { stream: true },
        model: "some-model".to_owned(),
        query: None,
        headers: HeaderMap::new(),
        body: body.into(),
    }
}

/// Waits at the vendor, while the test's own clock may stand still.
pub(crate) async fn until(
    vendor: &std::sync::Arc<FakeVendor>,
    wanted: impl Fn(&[VendorRequest]) -> bool + Send + 'static,
) -> bool {
    let vendor = vendor.clone();
    let waited = tokio::task::spawn_blocking(move || vendor.wait_until(wanted));
    waited.await.unwrap()
}
