//! What the server says of its own.

use std::sync::Arc;

use abp_dialect::{Dialect, Exchange};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{Answer, CONSUMED, FORWARDED, Gateway, Principal, Refusal, ServedModel};
use abp_telemetry::{JsonExporter, PrometheusExporter, TelemetryExporter};
use abp_translate::{
    Options, TranslateError, Translation, translate_error, translate_request, translate_response,
    translate_stream,
};
use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::body::{self, HttpReply};
use crate::extra::ExtraRoute;
use crate::route::PREFIXES;

/// What a page of ours may load: nothing from elsewhere.
pub(crate) const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

pub(crate) fn health() -> Answer {
    body::json_answer(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Ready means: what is accepted can be recorded.
pub(crate) fn ready(gateway: &Gateway) -> Answer {
    let health = gateway.store().health();
    let ready = health.state == abp_gateway::StoreState::Ready;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    body::json_answer(
        status,
        &json!({ "status": if ready { "ready" } else { "not_ready" } }),
    )
}

pub(crate) fn root() -> Answer {
    let text = "Agent Backplane. GET /protocol says what there is.\n";
    body::text("text/plain; charset=utf-8", text.to_owned())
}

pub(crate) fn version() -> Answer {
    let version = json!({
        "name": "agent-backplane",
        "version": env!("CARGO_PKG_VERSION"),
        "contract": abp_gateway::CONTRACT_VERSION,
    });
    body::json_answer(StatusCode::OK, &version)
}

/// What was counted: for Prometheus, or as JSON for those who ask for that.
pub(crate) fn metrics(gateway: &Gateway, headers: &HeaderMap) -> Answer {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let exporter: &dyn TelemetryExporter = match accepts {
        Some(accepts) if accepts.starts_with("application/json") => &JsonExporter,
        _ => &PrometheusExporter,
    };
    body::text(exporter.content_type(), exporter.export(&gateway.metrics()))
}

/// A fixed text that says nothing of any caller, under a content security policy.
pub(crate) fn fixed(media_type: &'static str, policy: &'static str, text: Bytes) -> HttpReply {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A newer program has newer files under the same names.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    HttpReply::whole(StatusCode::OK, headers, text)
}

fn described(route: &ExtraRoute) -> String {
    let methods: Vec<_> = route.methods.iter().map(http::Method::as_str).collect();
    format!("{} {}", methods.join("|"), route.path)
}

/// What is forwarded, consumed and changed, for machines.
pub(crate) fn protocol(extras: &[ExtraRoute]) -> Answer {
    let families = [
        ("openai", "POST /v1/chat/completions"),
        ("codex", "POST /v1/responses"),
        ("codex", "POST /v1/responses/input_tokens"),
        ("codex", "GET|DELETE /v1/responses/{id}"),
        ("codex", "POST /v1/responses/{id}/cancel"),
        ("codex", "GET /v1/responses/{id}/input_items"),
        ("claude", "POST /v1/messages"),
        ("claude", "POST /v1/messages/count_tokens"),
        ("gemini", "POST /v1beta/models/{model}:generateContent"),
        (
            "gemini",
            "POST /v1beta/models/{model}:streamGenerateContent",
        ),
        ("gemini", "POST /v1beta/models/{model}:countTokens"),
    ];
    let routes: Vec<Value> = families
        .iter()
        .map(|(dialect, route)| json!({ "route": route, "dialect": dialect }))
        .collect();
    let own = [
        "GET /v1/models",
        "GET /v1/models/{model}",
        "GET /v1beta/models",
        "POST /v1/translate",
        "GET /v1/receipts/{run_id}",
        "GET /protocol",
        "GET /version",
        "GET /metrics",
        "GET /healthz",
        "GET /readyz",
    ];
    let own = own.into_iter().map(str::to_owned);
    let own: Vec<_> = own.chain(extras.iter().map(described)).collect();
    let page = json!({
        "protocol": "abp-gateway",
        "version": 1,
        "vendor_routes": routes,
        "own_routes": own,
        "prefixes": PREFIXES.map(|(prefix, _)| prefix),
        "version_in_path": "may be left out",
        "authentication": {
            "headers": ["authorization: Bearer", "x-api-key", "x-goog-api-key"],
            "query": "key, on Gemini's routes only",
            "sent_upstream": "never; the upstream's own key is used",
        },
        "passthrough": {
            "when": "the upstream speaks the dialect of the route and the model keeps its name",
            "request_body": "byte for byte",
            "response_body": "byte for byte; an answer that breaks off is followed by an error event",
            "request_headers_forwarded": FORWARDED.each_ref().map(HeaderName::as_str),
        },
        "mapped": {
            "when": "otherwise",
            "request_body": "translated; the ledger in the receipt names every change",
            "response_body": "translated, event by event where it is streamed",
            "keep_alive": "comments while the model is silent; empty lines on Gemini's routes",
            "request_headers_forwarded": ["traceparent", "tracestate"],
            "request_headers_forwarded_in_the_same_dialect": "as in passthrough, where only the model's \
                                                              name is another",
        },
        "request_headers_consumed": CONSUMED,
        "response_headers": {
            "x-abp-run-id": "the exchange; its receipt is at /v1/receipts/{run_id}",
            "x-abp-backend": "the upstream that answered",
            "x-abp-mode": "passthrough or mapped",
            "x-abp-fidelity": "lossless, lossy;n=COUNT;meaning=COUNT or, with x-abp-on-loss: label, unsupported;n=COUNT;meaning=COUNT \
                               of what changed its meaning in the request and in \
                               an answer in one piece; a translated stream ends in a comment that says it \
                               again, with the answer (not on Gemini's routes, whose clients know none)",
            "x-abp-emulated": "what was made up for",
            "x-abp-error": "the code of an error of the gateway itself",
        },
        "opt_in": { "x-abp-on-loss": "reject: nothing is sent where something would be lost; label: also what \
                                      the upstream cannot do at all is left out and labelled, instead of \
                                      being refused" },
        "passed_on": "what else the vendors offer (embeddings, files, batches, images, audio, moderations, \
                      compaction), byte for byte, to upstreams with pass_through",
        "not_served": ["websockets on the vendors' routes"],
    });
    body::json_answer(StatusCode::OK, &page)
}

/// In whose words models are listed: the address tells, or else what only its clients send.
pub(crate) fn whose_models(vendor: Option<Dialect>, headers: &HeaderMap) -> Dialect {
    // The newer of Google's clients ask under the same address as everybody else.
    let by_headers = || {
        if headers.contains_key("x-goog-api-key") {
            Dialect::Gemini
        } else if headers.contains_key("anthropic-version") {
            Dialect::Claude
        } else {
            Dialect::OpenAi
        }
    };
    vendor.unwrap_or_else(by_headers)
}

/// The models, in the words of a vendor.
pub(crate) fn models(
    gateway: &Gateway,
    principal: &Principal,
    vendor: Dialect,
    name: Option<String>,
) -> Result<Answer, Refusal> {
    let words = match vendor {
        Dialect::Gemini => Words::Gemini,
        Dialect::Claude => Words::Claude,
        _ => Words::OpenAi,
    };
    let page = match name {
        Some(name) => {
            let model = gateway.model(principal, &name).ok_or_else(|| {
                let message = format!("no upstream serves the model {name}");
                Refusal::new(ErrorCode::BackendModelNotFound, message)
            })?;
            words.model(&model)
        }
        None => words.list(&gateway.models(principal)),
    };
    Ok(body::json_answer(StatusCode::OK, &page))
}

#[derive(Clone, Copy)]
enum Words {
    OpenAi,
    Claude,
    Gemini,
}

impl Words {
    fn model(self, model: &ServedModel) -> Value {
        let dialects: Vec<&str> = model
            .dialects
            .iter()
            .map(|dialect| dialect.as_str())
            .collect();
        let abp = json!({ "upstream": model.upstream, "dialects": dialects });
        let ServedModel { name, upstream, .. } = model;
        match self {
            Self::OpenAi => {
                json!({ "id": name, "object": "model", "created": 0, "owned_by": upstream, "abp": abp })
            }
            Self::Claude => json!({
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "1970-01-01T00:00:00Z",
                "abp": abp,
            }),
            Self::Gemini => json!({
                "name": format!("models/{name}"),
                "displayName": name,
                "supportedGenerationMethods":
                    ["generateContent", "streamGenerateContent", "countTokens"],
            }),
        }
    }

    fn list(self, models: &[ServedModel]) -> Value {
        let list: Vec<Value> = models.iter().map(|model| self.model(model)).collect();
        let name = |model: Option<&ServedModel>| model.map(|model| model.name.clone());
        match self {
            Self::OpenAi => json!({ "object": "list", "data": list }),
            Self::Claude => json!({
                "data": list,
                "has_more": false,
                "first_id": name(models.first()),
                "last_id": name(models.last()),
            }),
            Self::Gemini => json!({ "models": list }),
        }
    }
}

pub(crate) async fn receipt(
    gateway: &Gateway,
    principal: &Arc<Principal>,
    id: &str,
) -> Result<Answer, Refusal> {
    let missing = || Refusal::new(ErrorCode::NotFound, "there is no such receipt");
    let run_id: Uuid = id.parse().map_err(|_| missing())?;
    let internal = |error: serde_json::Error| AbpError::new(ErrorCode::Internal, error.to_string());
    let document = match gateway.receipt(principal, run_id).await? {
        Some(receipt) => serde_json::to_value(&receipt).map_err(internal)?,
        // Runs belong to the operator.
        None if principal.is_operator => {
            let record = gateway.store().receipt(run_id).await?.ok_or_else(missing)?;
            serde_json::from_slice(&record.document).map_err(internal)?
        }
        None => return Err(missing()),
    };
    Ok(body::json_answer(StatusCode::OK, &document))
}

/// A document to be translated, without being sent anywhere.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DryRun {
    from: Dialect,
    to: Dialect,
    #[serde(default)]
    kind: DryRunKind,
    /// The model to ask for, where it is another one.
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    wire_version: Option<String>,
    /// Whether losses are an error.
    #[serde(default)]
    on_loss: DryRunLoss,
    /// JSON; the text of a stream as a string.
    document: Box<RawValue>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum DryRunKind {
    #[default]
    Request,
    Response,
    Error,
    Stream,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum DryRunLoss {
    #[default]
    Label,
    Reject,
}

/// A dry run of a translation, with its ledger.
pub(crate) async fn translate(body: Bytes) -> Result<Answer, Refusal> {
    let work = tokio::task::spawn_blocking(move || dry_run(&body));
    let done = work.await;
    done.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?
}

fn dry_run(body: &[u8]) -> Result<Answer, Refusal> {
    let asked: DryRun = serde_json::from_slice(body)
        .map_err(|error| AbpError::new(ErrorCode::ValidationFailed, error.to_string()))?;
    let options = Options {
        profile: abp_dialect::TargetProfile {
            model: asked.model.clone(),
            wire_version: asked.wire_version.clone(),
            ..abp_dialect::TargetProfile::default()
        },
        ..Options::default()
    };
    let (from, to) = (asked.from, asked.to);
    let document = asked.document.get().as_bytes();
    let none = Exchange::default();
    let done = match asked.kind {
        DryRunKind::Request => translate_request(document, from, to, &options),
        DryRunKind::Response => translate_response(document, from, to, &none, &options),
        DryRunKind::Error => translate_error(document, from, to, None, &options),
        DryRunKind::Stream => return dry_stream(&asked, &options),
    };
    let Translation {
        output,
        ledger,
        status,
        ..
    } = done.map_err(AbpError::from)?;
    if asked.on_loss == DryRunLoss::Reject {
        ledger.require_lossless()?;
    }
    let output: Value = serde_json::from_str(&output)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(body::json_answer(
        StatusCode::OK,
        &json!({
            "from": from,
            "to": to,
            "fidelity": ledger.fidelity(),
            "status": status,
            "output": output,
            "ledger": ledger.entries(),
        }),
    ))
}

fn dry_stream(asked: &DryRun, options: &Options) -> Result<Answer, Refusal> {
    let text: String = serde_json::from_str(asked.document.get()).map_err(|_| {
        let message = "the document of a stream is its text, as a string";
        AbpError::new(ErrorCode::ValidationFailed, message)
    })?;
    let (from, to) = (asked.from, asked.to);
    let none = Exchange::default();
    let done = translate_stream(text.as_bytes(), from, to, &none, options);
    let (events, ledger) = done.map_err(|error: TranslateError| AbpError::from(error))?;
    if asked.on_loss == DryRunLoss::Reject {
        ledger.require_lossless()?;
    }
    let output: Vec<Value> = events
        .iter()
        .map(|event| {
            let data = serde_json::from_str(&event.data);
            json!({
                "event": event.name,
                "data": data.unwrap_or_else(|_| Value::from(event.data.as_str())),
            })
        })
        .collect();
    let page = json!({
        "from": from,
        "to": to,
        "fidelity": ledger.fidelity(),
        "output": output,
        "ledger": ledger.entries(),
    });
    Ok(body::json_answer(StatusCode::OK, &page))
}
