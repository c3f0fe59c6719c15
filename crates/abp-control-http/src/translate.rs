//! `POST /translate/all`: one document in every other dialect, with what became of each field.

use abp_dialect::{Dialect, Exchange};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_store::KeyScope;
use abp_translate::{Options, Translation, translate_error, translate_request, translate_response};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::value::RawValue;

use crate::api::{
    TranslateAllRequest, TranslationFailure, TranslationInput, TranslationReport, TranslationResult,
};
use crate::call::{Call, json_reply};
use crate::query::NoQuery;
use crate::table::{RequestDoc, RouteRow, schema_of};

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::raw(
            Method::POST,
            "/translate/all",
            KeyScope::Models,
            "translate_to_all",
            "Translates a document to every other dialect, and says what became of each field.",
            answer,
        )
        .takes(RequestDoc::Json(schema_of::<TranslateAllRequest>))
        .answers_json::<TranslationReport>(StatusCode::OK, "the translations"),
    ]
}

async fn answer(call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let body = call.body.clone();
    let work = tokio::task::spawn_blocking(move || translate_all(&body));
    let report = work.await;
    let report = report.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))??;
    json_reply(StatusCode::OK, &report)
}

fn translate_all(body: &Bytes) -> Result<TranslationReport, Refusal> {
    // The document keeps its numbers as they are written, which only a reader of the text itself can do.
    let request: TranslateAllRequest = serde_json::from_slice(body)
        .map_err(|error| Refusal::new(ErrorCode::ValidationFailed, error.to_string()))?;
    let targets = Dialect::ALL.into_iter().filter(|to| *to != request.from);
    Ok(TranslationReport {
        from: request.from.as_str().to_owned(),
        results: targets.map(|to| translate_to(&request, to)).collect(),
    })
}

fn translate_to(request: &TranslateAllRequest, to: Dialect) -> TranslationResult {
    let failed = |error: &AbpError| TranslationResult {
        to: to.as_str().to_owned(),
        fidelity: None,
        output: None,
        ledger: Vec::new(),
        failure: Some(TranslationFailure {
            code: error.code(),
            message: error.to_string(),
        }),
    };
    let (from, options) = (request.from, Options::default());
    let document = request.document.get().as_bytes();
    let none = Exchange::default();
    let done = match request.kind {
        TranslationInput::Request => translate_request(document, from, to, &options),
        TranslationInput::Response => translate_response(document, from, to, &none, &options),
        TranslationInput::Error => translate_error(document, from, to, None, &options),
    };
    let Translation { output, ledger, .. } = match done {
        Ok(done) => done,
        Err(error) => return failed(&error.into()),
    };
    if request.reject_losses
        && let Err(error) = ledger.require_lossless()
    {
        return failed(&error);
    }
    match RawValue::from_string(output) {
        Ok(output) => TranslationResult {
            to: to.as_str().to_owned(),
            fidelity: Some(ledger.fidelity()),
            output: Some(output),
            ledger: ledger.entries().to_vec(),
            failure: None,
        },
        Err(error) => failed(&AbpError::new(ErrorCode::Internal, error.to_string())),
    }
}
