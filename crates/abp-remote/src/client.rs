//! Requests and answers.

use std::fmt;

use abp_control_http::api::{
    AnswerRequest, ApprovalPage, ApprovalView, CancelRequestBody, ChangesView, CheckpointView,
    DeletedRun, DiscardReport, OneTimeCode, ReceiptPage, RunList, RunView, SessionPage,
    SubmitRequest, SubmittedRun, VerifyReport,
};
use abp_core::Receipt;
use abp_error::{AbpError, ErrorBody, ErrorCode};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::connect::{HttpClient, client};

/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 512 << 20;

/// The address of a server and a key of it.
#[derive(Debug, Clone)]
pub struct RemoteAddress {
    /// The address, such as `https://backplane.example.com`.
    pub url: String,
    /// A key with the scopes that the calls need.
    pub key: SecretString,
}

/// A control plane elsewhere. Clones share connections.
#[derive(Clone)]
pub struct Remote {
    client: HttpClient,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    key: HeaderValue,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}://{})", self.scheme, self.authority)
    }
}

impl Remote {
    /// A server that is not connected yet.
    ///
    /// # Errors
    /// Fails where the address or the key cannot be used.
    pub fn new(address: &RemoteAddress) -> Result<Self, AbpError> {
        // The address is not repeated: it may hold a password.
        let wrong = |problem: &str| {
            let message = format!("the address of the remote server {problem}");
            AbpError::new(ErrorCode::ConfigInvalid, message)
        };
        let uri: Uri = address.url.parse().map_err(|_| wrong("is not a URL"))?;
        let scheme = uri.scheme().cloned();
        let scheme = scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let scheme = scheme.ok_or_else(|| wrong("has to begin with http:// or https://"))?;
        let authority = uri.authority().cloned();
        let authority = authority.ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("holds a user name or a password"));
        }
        if uri.query().is_some() {
            return Err(wrong("holds a query"));
        }
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path);
        let key = format!("Bearer {}", address.key.expose_secret());
        let mut key = HeaderValue::from_str(&key).map_err(|_| {
            let message = "the key of the remote server holds what no header can carry";
            AbpError::new(ErrorCode::ConfigInvalid, message)
        })?;
        key.set_sensitive(true);
        Ok(Self {
            client: client(scheme == Scheme::HTTPS)?,
            scheme,
            authority,
            prefix: format!("{path}/v1"),
            key,
        })
    }

    /// Submits a run.
    ///
    /// # Errors
    /// As the server refuses it, or where it cannot be reached.
    pub async fn submit(
        &self,
        request: &SubmitRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SubmittedRun, AbpError> {
        self.submit_at("/runs", request, idempotency_key).await
    }

    /// Submits a run whose agent goes on with a copy of the session that it had in an earlier one.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn fork(
        &self,
        run_id: Uuid,
        request: &SubmitRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SubmittedRun, AbpError> {
        let path = format!("/runs/{run_id}/fork");
        self.submit_at(&path, request, idempotency_key).await
    }

    async fn submit_at(
        &self,
        path: &str,
        request: &SubmitRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SubmittedRun, AbpError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = idempotency_key {
            let value = HeaderValue::from_str(key).map_err(|_| {
                let message = "the idempotency key is not plain text";
                AbpError::new(ErrorCode::ConfigInvalid, message)
            })?;
            headers.insert(HeaderName::from_static("idempotency-key"), value);
        }
        let body = to_json(request)?;
        let answer = self.send(Method::POST, path, headers, body).await?;
        read_json(answer).await
    }

    /// Makes a code that stands for the key, once and for a minute.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn one_time_code(&self) -> Result<OneTimeCode, AbpError> {
        self.post("/codes", &serde_json::json!({})).await
    }

    /// The newest runs that the key may see.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn runs(&self, limit: u32) -> Result<RunList, AbpError> {
        self.get(&format!("/runs?limit={}", limit.clamp(1, 1000)))
            .await
    }

    /// The sessions of agents in the newest runs that the key may see.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn sessions(&self, limit: u32) -> Result<SessionPage, AbpError> {
        self.get(&format!("/sessions?limit={}", limit.clamp(1, 1000)))
            .await
    }

    /// A run.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn run(&self, run_id: Uuid) -> Result<RunView, AbpError> {
        self.get(&format!("/runs/{run_id}")).await
    }

    /// The run that a text means: an id, the beginning of one, or `last`.
    ///
    /// # Errors
    /// Fails where there is none, and where several are meant.
    pub async fn find(&self, text: &str) -> Result<RunView, AbpError> {
        if let Ok(run_id) = text.parse::<Uuid>() {
            return self.run(run_id).await;
        }
        let page = self.runs(1000).await?;
        let wanted = text.to_lowercase();
        let mut found = page
            .runs
            .into_iter()
            .filter(|run| text == "last" || run.run_id.to_string().starts_with(&wanted));
        let first = found.next().ok_or_else(|| {
            let message = format!("no run on the server is {text:?}");
            AbpError::new(ErrorCode::NotFound, message)
        })?;
        if text != "last" && found.next().is_some() {
            let message = format!("several runs begin with {text:?}; give more of the id");
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
        Ok(first)
    }

    /// The receipt of a run that has ended.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn receipt(&self, run_id: Uuid) -> Result<Receipt, AbpError> {
        self.get(&format!("/runs/{run_id}/receipt")).await
    }

    /// The newest receipts of runs that the key may see.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn receipts(&self, limit: u32) -> Result<ReceiptPage, AbpError> {
        self.get(&format!("/receipts?limit={}", limit.clamp(1, 1000)))
            .await
    }

    /// Has the server judge a document that claims to be a receipt.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn verify(&self, document: Bytes) -> Result<VerifyReport, AbpError> {
        let path = "/receipts/verify";
        let answer = self.send(Method::POST, path, HeaderMap::new(), document);
        read_json(answer.await?).await
    }

    /// The newest signed checkpoint of the server's log.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn checkpoint(&self) -> Result<CheckpointView, AbpError> {
        self.get("/log/checkpoint").await
    }

    /// The undecided changes of a run.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn changes(&self, run_id: Uuid) -> Result<ChangesView, AbpError> {
        self.get(&format!("/runs/{run_id}/diff")).await
    }

    /// Throws the changes of a run away.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn discard(&self, run_id: Uuid) -> Result<DiscardReport, AbpError> {
        let path = format!("/runs/{run_id}/discard");
        self.post(&path, &serde_json::json!({})).await
    }

    /// Deletes a run that has ended, except its receipt.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn delete(&self, run_id: Uuid) -> Result<DeletedRun, AbpError> {
        let path = format!("/runs/{run_id}");
        let answer = self.send(Method::DELETE, &path, HeaderMap::new(), Bytes::new());
        read_json(answer.await?).await
    }

    /// Asks a run to end.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn cancel(&self, run_id: Uuid, reason: Option<String>) -> Result<RunView, AbpError> {
        let path = format!("/runs/{run_id}/cancel");
        self.post(&path, &CancelRequestBody { reason }).await
    }

    /// Questions of runs; only open ones, or all.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn approvals(&self, only_open: bool) -> Result<Vec<ApprovalView>, AbpError> {
        let path = match only_open {
            true => "/approvals?open=true&limit=1000",
            false => "/approvals?limit=1000",
        };
        let page: ApprovalPage = self.get(path).await?;
        Ok(page.approvals)
    }

    /// Answers a question.
    ///
    /// # Errors
    /// As [`Self::submit`]; the first answer counts, and a later one is refused.
    pub async fn answer(
        &self,
        approval_id: Uuid,
        approve: bool,
        reason: Option<String>,
    ) -> Result<ApprovalView, AbpError> {
        let path = format!("/approvals/{approval_id}");
        self.post(&path, &AnswerRequest { approve, reason }).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AbpError> {
        let answer = self.send(Method::GET, path, HeaderMap::new(), Bytes::new());
        read_json(answer.await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, AbpError> {
        let answer = self.send(Method::POST, path, HeaderMap::new(), to_json(body)?);
        read_json(answer.await?).await
    }

    /// The bytes at an address.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes, AbpError> {
        let answer = self.send(Method::GET, path, HeaderMap::new(), Bytes::new());
        collect(answer.await?).await
    }

    /// Sends a request and returns the head of an answer that is no error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, AbpError> {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path}", self.prefix))
            .build()
            .map_err(|error| AbpError::new(ErrorCode::ConfigInvalid, error.to_string()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let sent = request.headers_mut();
        sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        sent.insert(ACCEPT, HeaderValue::from_static("application/json"));
        sent.extend(headers);
        sent.insert(AUTHORIZATION, self.key.clone());
        let answer = self.client.request(request).await.map_err(|error| {
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |cause| {
                cause.source()
            });
            let cause = causes.last().map(ToString::to_string).unwrap_or_default();
            let message = format!("{self:?} does not answer: {cause}");
            AbpError::new(ErrorCode::BackendUnavailable, message)
        })?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refusal(answer).await),
        }
    }
}

fn to_json(body: &impl Serialize) -> Result<Bytes, AbpError> {
    let bytes = serde_json::to_vec(body);
    let bytes = bytes.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Bytes::from(bytes))
}

pub(crate) async fn read_json<T: DeserializeOwned>(
    answer: Response<Incoming>,
) -> Result<T, AbpError> {
    let bytes = collect(answer).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("the server's answer cannot be read: {error}");
        AbpError::new(ErrorCode::BackendUnavailable, message)
    })
}

async fn collect(answer: Response<Incoming>) -> Result<Bytes, AbpError> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| {
        let message = format!("the server's answer broke off: {error}");
        AbpError::new(ErrorCode::BackendUnavailable, message)
    })?;
    Ok(body.to_bytes())
}

/// The error of an answer, as the server means it.
async fn refusal(answer: Response<Incoming>) -> AbpError {
    let status = answer.status();
    let body = match collect(answer).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(body) => body.into(),
        Err(_) => {
            let message = format!("the server answers {status}, and is no Agent Backplane");
            AbpError::new(ErrorCode::BackendUnavailable, message)
        }
    }
}
