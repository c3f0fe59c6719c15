//! Workspaces over HTTP: manifests and blobs in, patches and blobs out.

use std::sync::Arc;

use abp_error::{AbpError, ErrorCode};
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_store::KeyScope;
use bytes::Bytes;
use http::{Method, StatusCode};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::api::{BlobStored, BlobsStored, WorkspaceManifest, WorkspaceView};
use crate::bundle::BundleReader;
use crate::call::{Call, json_reply, media};
use crate::manifest::{CheckedManifest, is_hash};
use crate::query::NoQuery;
use crate::table::{RequestDoc, RouteRow};

/// The largest blob that the route takes; the configured limit may be lower.
const MAX_BLOB: u64 = 4 << 30;

/// The largest bundle.
const MAX_BUNDLE: u64 = 64 << 20;

pub(crate) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::post(
            "/workspaces",
            KeyScope::Upload,
            "create_workspace",
            "Names the files of a workspace and returns the hashes that have to be uploaded.",
            create,
        ),
        RouteRow::raw(
            Method::PUT,
            "/blobs/{sha256}",
            KeyScope::Upload,
            "upload_blob",
            "Uploads the bytes of a file under their SHA-256.",
            upload,
        )
        .takes(RequestDoc::Bytes(MAX_BLOB))
        .answers_json::<BlobStored>(StatusCode::CREATED, "the blob is stored"),
        RouteRow::raw(
            Method::POST,
            "/blobs",
            KeyScope::Upload,
            "upload_blobs",
            "Uploads many small files at once: each a line with its SHA-256 and its size, then its bytes.",
            upload_bundle,
        )
        .takes(RequestDoc::Bytes(MAX_BUNDLE))
        .answers_json::<BlobsStored>(StatusCode::CREATED, "the blobs are stored"),
        RouteRow::raw(
            Method::GET,
            "/runs/{run_id}/blobs/{sha256}",
            KeyScope::RunsRead,
            "get_run_blob",
            "Returns the content of a changed file, before or after the run, by its hash.",
            run_blob,
        )
        .answers(
            StatusCode::OK,
            "the bytes",
            "application/octet-stream",
            bytes_schema,
        ),
        RouteRow::raw(
            Method::GET,
            "/runs/{run_id}/change_set",
            KeyScope::RunsRead,
            "get_run_change_set",
            "Returns the undecided changes of a run as the document that `abp apply --remote` applies.",
            change_set,
        )
        .answers(
            StatusCode::OK,
            "the change set",
            "application/vnd.abp.change-set",
            bytes_schema,
        ),
    ]
}

fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

async fn create(call: Call, manifest: WorkspaceManifest) -> Result<WorkspaceView, Refusal> {
    blocking(move || {
        let manifest = CheckedManifest::check(manifest).map_err(|refusal| refusal.error)?;
        let uploads = call.face.uploads().of(call.caller.id());
        uploads.add_workspace(&manifest)
    })
    .await
}

async fn upload(mut call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let sha256 = call.params.get("sha256").to_owned();
    if !is_hash(&sha256) {
        let message = "the address is the SHA-256 in 64 lower-case hexadecimal digits";
        return Err(Refusal::new(ErrorCode::ValidationFailed, message).at("sha256"));
    }
    let max = u64::from(call.face.config().server.max_blob_mb) << 20;
    let too_large = || {
        let message = format!("a blob has at most {max} bytes");
        Refusal::new(ErrorCode::RequestTooLarge, message)
    };
    let Some(mut body) = call.upload.take() else {
        return Err(Refusal::new(ErrorCode::Internal, "the upload has no body"));
    };
    if body.announced().is_some_and(|size| size > max) {
        return Err(too_large());
    }
    let face = Arc::clone(&call.face);
    let principal = call.caller.id().to_owned();
    let mut blob = call.face.uploads().of(&principal).begin_blob()?;
    let mut received: u64 = 0;
    while let Some(bytes) = body.next().await? {
        received = received.saturating_add(bytes.len() as u64);
        if received > max {
            return Err(too_large());
        }
        // Writing waits for the disk: not on a thread that serves others.
        blob = blocking(move || {
            blob.write(&bytes)?;
            Ok(blob)
        })
        .await?;
    }
    let named = sha256.clone();
    let size = blocking(move || face.uploads().of(&principal).finish_blob(&blob, &named)).await?;
    json_reply(StatusCode::CREATED, &BlobStored { sha256, size })
}

/// Stores the blobs of a bundle as they come. Those before one that is refused stay, and need not be sent again.
async fn upload_bundle(mut call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let Some(mut body) = call.upload.take() else {
        return Err(Refusal::new(ErrorCode::Internal, "the upload has no body"));
    };
    let mut reader = BundleReader::default();
    let mut stored = BlobsStored { count: 0, bytes: 0 };
    while let Some(bytes) = body.next().await? {
        let blobs = reader.read(&bytes)?;
        if blobs.is_empty() {
            continue;
        }
        let (face, principal) = (Arc::clone(&call.face), call.caller.id().to_owned());
        stored.count += blobs.len() as u64;
        stored.bytes += blobs
            .iter()
            .map(|blob| blob.bytes.len() as u64)
            .sum::<u64>();
        // Writing waits for the disk: not on a thread that serves others.
        blocking(move || {
            let uploads = face.uploads().of(&principal);
            blobs.iter().try_for_each(|blob| uploads.store_blob(blob))
        })
        .await?;
    }
    reader.finish()?;
    if stored.count == 0 {
        let message = "the bundle has no blob";
        return Err(Refusal::new(ErrorCode::ValidationFailed, message));
    }
    json_reply(StatusCode::CREATED, &stored)
}

async fn run_blob(call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let unknown = || Refusal::new(ErrorCode::NotFound, "the run changed no such file").at("sha256");
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let hash = read_hash(call.params.get("sha256")).ok_or_else(unknown)?;
    let content = call.face.plane().changed_content(run.run_id, hash).await?;
    let content = content.ok_or_else(unknown)?;
    let headers = media("application/octet-stream");
    Ok(HttpReply::whole(
        StatusCode::OK,
        headers,
        Bytes::from(content),
    ))
}

async fn change_set(call: Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let run = call.face.run_of(&call.caller, call.run_id()?).await?;
    let document = call.face.plane().change_set_document(run.run_id).await?;
    let headers = media("application/vnd.abp.change-set");
    Ok(HttpReply::whole(
        StatusCode::OK,
        headers,
        Bytes::from(document),
    ))
}

fn read_hash(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    is_hash(text).then_some(bytes)
}

/// Carries out what waits for the disk on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AbpError> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Refusal::new(ErrorCode::Internal, error.to_string())),
    }
}
