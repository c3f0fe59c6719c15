//! What several tests need.

use std::collections::BTreeSet;

use abp_mcp::{CapabilityFlag, ClientCapabilities, ClientFlag, ServerCapabilities, ServerFlag};
use proptest::prelude::*;
use serde_json::Value;

pub(crate) fn fixture(name: &str) -> String {
    let path = format!("{}/../../fixtures/mcp/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn json_fixture(name: &str) -> Vec<Value> {
    serde_json::from_str(&fixture(name)).unwrap()
}

pub(crate) fn server(json: &Value) -> ServerCapabilities {
    ServerCapabilities::from_json(&json.to_string()).unwrap()
}

pub(crate) fn client(json: &Value) -> ClientCapabilities {
    ClientCapabilities::from_json(&json.to_string()).unwrap()
}

pub(crate) fn names<F: CapabilityFlag>(flags: &BTreeSet<F>) -> BTreeSet<String> {
    flags.iter().map(ToString::to_string).collect()
}

pub(crate) fn strings(value: &Value) -> BTreeSet<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

fn some_of<F: CapabilityFlag>() -> impl Strategy<Value = BTreeSet<F>> {
    prop::collection::btree_set(prop::sample::select(F::ALL), 0..=F::ALL.len())
}

pub(crate) fn server_flags() -> impl Strategy<Value = BTreeSet<ServerFlag>> {
    some_of()
}

pub(crate) fn client_flags() -> impl Strategy<Value = BTreeSet<ClientFlag>> {
    some_of()
}
