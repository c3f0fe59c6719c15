//! What came of runs, as resources.

use abp_error::{AbpError, ErrorCode};
use abp_mcp::{McpAnswer, RpcRefusal};
use abp_store::{KeyScope, RunFilter, Store};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::server::{AbpServer, ToolResult, result};

/// How many of the newest runs are listed.
const LISTED: u32 = 50;
/// How many events are read at a time.
const PAGE: u32 = 1_000;
/// The most bytes of events that one answer has.
const MAX_BYTES: usize = 4 << 20;

/// A part of a run that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Events,
    Diff,
    Receipt,
}

impl Part {
    const ALL: [Self; 3] = [Self::Events, Self::Diff, Self::Receipt];

    const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Diff => "diff",
            Self::Receipt => "receipt",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Events => "application/x-ndjson",
            Self::Diff => "text/x-diff",
            Self::Receipt => "application/json",
        }
    }

    fn describe(self, uri_key: &str, uri: &str, title: &str) -> Value {
        json!({
            uri_key: uri,
            "name": title,
            "mimeType": self.media_type(),
        })
    }
}

pub(super) fn templates() -> Value {
    let template = |part: Part| {
        let name = part.name();
        part.describe(
            "uriTemplate",
            &format!("abp://runs/{{run_id}}/{name}"),
            &format!("{name} of a run"),
        )
    };
    json!({ "resourceTemplates": Part::ALL.map(template) })
}

impl AbpServer {
    pub(super) async fn list_resources(&self) -> ToolResult {
        self.principal.require(KeyScope::RunsRead)?;
        let filter = RunFilter::default();
        let page = self.plane.runs(&self.principal, &filter, LISTED).await?;
        let mut resources = Vec::new();
        for run in page.runs {
            let id = run.run_id;
            let parts: &[Part] = match run.ended_at {
                Some(_) => &Part::ALL,
                None => &[Part::Events],
            };
            for part in parts {
                let name = part.name();
                let uri = format!("abp://runs/{id}/{name}");
                resources.push(part.describe("uri", &uri, &format!("{name} of run {id}")));
            }
        }
        Ok(json!({ "resources": resources }))
    }

    pub(super) async fn read_resource(&self, params: &Map<String, Value>) -> McpAnswer {
        let Some(uri) = params.get("uri").and_then(Value::as_str) else {
            return McpAnswer::invalid("reading needs the uri of a resource");
        };
        let unknown = || {
            let uri = uri.to_owned();
            McpAnswer::Refused(RpcRefusal::UnknownResource { uri })
        };
        let Some((run_id, part)) = parse(uri) else {
            return unknown();
        };
        match self.read_part(run_id, part).await {
            Ok(Some(text)) => {
                let media = part.media_type();
                result(&json!({ "contents": [{ "uri": uri, "mimeType": media, "text": text }] }))
            }
            Ok(None) => unknown(),
            Err(error) => McpAnswer::internal(error.to_string()),
        }
    }

    async fn read_part(&self, run_id: Uuid, part: Part) -> Result<Option<String>, AbpError> {
        self.principal.require(KeyScope::RunsRead)?;
        match self.plane.run(&self.principal, run_id).await {
            Ok(_) => {}
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let store = self.plane.store().await?;
        if part == Part::Events {
            return events(store, run_id).await.map(Some);
        }
        let Some(record) = store.receipt(run_id).await? else {
            return Ok(None);
        };
        let document = String::from_utf8_lossy(&record.document).into_owned();
        if part == Part::Receipt {
            return Ok(Some(document));
        }
        let receipt: Value = serde_json::from_str(&document).unwrap_or_default();
        let diff = receipt
            .pointer("/verification/git_diff")
            .and_then(Value::as_str);
        Ok(Some(diff.unwrap_or_default().to_owned()))
    }
}

/// The events of a run, one per line; the last line says so where there are more.
async fn events(store: &Store, run_id: Uuid) -> Result<String, AbpError> {
    let mut text = String::new();
    let mut next = 0;
    loop {
        let page = store.events(run_id, next, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(text);
        };
        next = last.seq + 1;
        for record in page {
            if text.len() + record.json.len() > MAX_BYTES {
                let seq = record.seq;
                text.push_str(&format!("{{\"truncated_before_event\":{seq}}}\n"));
                return Ok(text);
            }
            text.push_str(&record.json);
            text.push('\n');
        }
    }
}

fn parse(uri: &str) -> Option<(Uuid, Part)> {
    let (run_id, name) = uri.strip_prefix("abp://runs/")?.split_once('/')?;
    let part = Part::ALL.into_iter().find(|part| part.name() == name)?;
    Some((run_id.parse().ok()?, part))
}
