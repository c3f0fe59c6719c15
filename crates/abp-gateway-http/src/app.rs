//! One request, from its head to its response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::OtherCall;
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_gateway::{Admission, Ask, Gateway, KeyScope, OtherAsk, Refusal};
use abp_plan::OnLoss;
use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::auth::{Doorkeeper, protocol_key, split_query};
use crate::body::{self, HttpReply, Outgoing};
use crate::cors;
use crate::extra::{BodyRule, ExtraCall, ExtraRoute, PathParams, RouteAnswer};
use crate::guard::{Allowed, check_body_coding, check_body_kind};
use crate::pages;
use crate::route::{Route, unversioned, without_slash};
use crate::upgrade::UpgradeSlot;
use crate::upload::UploadBody;
use crate::wire::Phase;

/// Everything that requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) gateway: Gateway,
    pub(crate) extras: Vec<ExtraRoute>,
    pub(crate) allowed: Allowed,
    pub(crate) door: Doorkeeper,
    pub(crate) max_body: usize,
    pub(crate) body_deadline: Duration,
    /// Whether only this machine can reach the server.
    pub(crate) is_local: bool,
    /// Where work goes on that outlasts a connection, or would hold up others on its thread.
    pub(crate) tasks: Handle,
    /// What is done with a loss where the request does not say.
    pub(crate) on_loss: OnLoss,
}

impl App {
    /// Answers a request. There is always an answer.
    pub(crate) async fn serve(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        peer: IpAddr,
        phase: Arc<Phase>,
        slot: &UpgradeSlot,
    ) -> Response<Outgoing> {
        // Asking for it costs a request that wants no upgrade nothing but the look at its headers.
        let wants_upgrade = request.headers().contains_key(UPGRADE);
        let on_upgrade = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
        let (parts, incoming) = request.into_parts();
        let (query_key, query) = split_query(parts.uri.query());
        let route = Route::of(&parts.method, parts.uri.path());
        let dialect = route.dialect(&parts.headers);
        let has_body = !incoming.is_end_stream();
        let out_of_turn = !phase.was_read();
        let checked = if out_of_turn {
            let message = "requests have to wait for the answer to the one before";
            Err(Refusal::new(ErrorCode::ValidationFailed, message))
        } else {
            self.allowed.check(&parts)
        };
        let page = match &checked {
            Ok(()) => self.allowed.listed_page(&parts.headers),
            Err(_) => None,
        };
        let answer = match checked {
            Ok(()) if page.is_some() && cors::is_preflight(&parts) => {
                Ok(HttpReply::empty(cors::permission(&parts)))
            }
            Ok(()) => {
                let asked = Asked {
                    parts,
                    incoming,
                    peer,
                    query_key,
                    query,
                };
                self.answer(route, asked).await
            }
            Err(problem) => Err(problem),
        };
        // A refusal does not wait for the body, and what comes of it later is no request.
        let close = out_of_turn || (has_body && answer.is_err());
        let mut reply = answer.unwrap_or_else(|problem| match dialect {
            Some(dialect) => problem.answer(dialect).into(),
            None => problem.plain_answer().into(),
        });
        if let (Some(session), Some(on_upgrade)) = (reply.take_session(), on_upgrade) {
            phase.upgrade();
            slot.put(on_upgrade, session, self.tasks.clone());
        }
        let mut response = Outgoing::response(reply, &phase);
        if let Some(page) = page {
            cors::share(response.headers_mut(), page);
        }
        if close {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Whatever takes long to begin its answer is kept apart, in a box: a connection has room for the
    /// largest of all answers in the making for as long as it is open, and moves it with every request.
    async fn answer(self: &Arc<Self>, route: Route, asked: Asked) -> Result<HttpReply, Refusal> {
        match route {
            // A program's own rows may replace the answer about a receipt, and add to its address.
            Route::Receipt(_) | Route::WrongMethod if self.find_extra(&asked).is_some() => {
                Box::pin(self.extra(asked)).await
            }
            Route::Health => Ok(pages::health().into()),
            Route::Ready => Ok(pages::ready(&self.gateway).into()),
            Route::Root => Ok(pages::root().into()),
            Route::Version => Ok(pages::version().into()),
            Route::Metrics => {
                if !self.is_local {
                    self.admit(&asked, false).await?;
                }
                Ok(pages::metrics(&self.gateway, &asked.parts.headers).into())
            }
            Route::Nothing => Box::pin(self.extra(asked)).await,
            Route::WrongMethod => Err(wrong_method(&asked.parts.method)),
            Route::Protocol => {
                self.admit(&asked, false).await?;
                Ok(pages::protocol(&self.extras).into())
            }
            Route::Other {
                dialect,
                part,
                path,
            } => Box::pin(self.other(dialect, part, path, asked)).await,
            Route::Models { vendor, name } => {
                let vendor = pages::whose_models(vendor, &asked.parts.headers);
                let admitted = self
                    .admit_to_models(&asked, vendor == Dialect::Gemini)
                    .await?;
                let models = pages::models(&self.gateway, admitted.principal(), vendor, name)?;
                Ok(models.into())
            }
            Route::Receipt(id) => {
                let admitted = self.admit(&asked, false).await?;
                let receipt = pages::receipt(&self.gateway, admitted.principal(), &id);
                Ok(Box::pin(receipt).await?.into())
            }
            Route::Stored { id, action } => {
                let admitted = self.admit_to_models(&asked, false).await?;
                let stored = self.gateway.stored(&admitted, &id, action, asked.query);
                Ok(Box::pin(stored).await.into())
            }
            Route::Translate => {
                let mut admitted = self.admit_to_models(&asked, false).await?;
                check_body_kind(&asked.parts)?;
                let body = self
                    .read(asked.incoming, self.max_body, &mut admitted)
                    .await?;
                Ok(Box::pin(pages::translate(body)).await?.into())
            }
            Route::Vendor {
                dialect,
                operation,
                model,
            } => {
                let mut admitted = self
                    .admit_to_models(&asked, dialect == Dialect::Gemini)
                    .await?;
                refuse_upgrade(&asked.parts)?;
                check_body_kind(&asked.parts)?;
                let on_loss = on_loss(&asked.parts.headers, self.on_loss)?;
                let body = self
                    .read(asked.incoming, self.max_body, &mut admitted)
                    .await?;
                let ask = Ask {
                    admitted: Arc::new(admitted),
                    dialect,
                    operation,
                    model,
                    query: asked.query,
                    headers: asked.parts.headers,
                    body,
                    on_loss,
                };
                let answer = Box::pin(self.gateway.exchange(ask)).await;
                // Whatever else came in by now is worked on first; then all answers go out together.
                tokio::task::yield_now().await;
                Ok(answer.into())
            }
        }
    }

    /// Passes on what is not translated.
    async fn other(
        &self,
        dialect: Dialect,
        part: &'static str,
        path: String,
        asked: Asked,
    ) -> Result<HttpReply, Refusal> {
        let dialect = of_client(dialect, &asked.parts.headers);
        let mut admitted = self
            .admit_to_models(&asked, dialect == Dialect::Gemini)
            .await?;
        refuse_other_upgrade(&asked.parts)?;
        check_body_coding(&asked.parts)?;
        let on_loss = on_loss(&asked.parts.headers, self.on_loss)?;
        let body = self
            .read(asked.incoming, self.max_body, &mut admitted)
            .await?;
        let ask = OtherAsk {
            admitted,
            dialect,
            part,
            call: OtherCall {
                method: asked.parts.method,
                path,
                content_type: asked.parts.headers.get(CONTENT_TYPE).cloned(),
            },
            query: asked.query,
            headers: asked.parts.headers,
            body,
            on_loss,
        };
        Ok(self.gateway.pass_on(ask).await.into())
    }

    /// The rows for an address. One that is written out hides those with names that would match it, too.
    fn rows_at(&self, path: &str) -> Vec<(&ExtraRoute, PathParams)> {
        let path = unversioned(without_slash(path));
        let is_written = self.extras.iter().any(|route| route.path == path);
        self.extras
            .iter()
            .filter(|route| !is_written || route.path == path)
            .filter_map(|route| Some((route, route.matches(path)?)))
            .collect()
    }

    /// The row for an address: one that takes the method, or else any.
    fn find_extra(&self, asked: &Asked) -> Option<(&ExtraRoute, PathParams)> {
        let mut other = None;
        for (route, params) in self.rows_at(asked.parts.uri.path()) {
            if route.takes(&asked.parts.method) {
                return Some((route, params));
            }
            other.get_or_insert((route, params));
        }
        other
    }

    /// Every method that rows take at an address.
    fn methods_at(&self, path: &str) -> String {
        let rows = self.rows_at(path).into_iter();
        let methods = rows.flat_map(|(route, _)| route.methods);
        let methods: Vec<_> = methods.map(Method::as_str).collect();
        methods.join(", ")
    }

    /// Answers at an address that the program added.
    async fn extra(&self, asked: Asked) -> Result<HttpReply, Refusal> {
        let Some((route, params)) = self.find_extra(&asked) else {
            // Realtime sessions of OpenAI and Gemini's live ones have addresses of their own.
            refuse_other_upgrade(&asked.parts)?;
            return Err(nothing());
        };
        if !route.takes(&asked.parts.method) {
            let mut answer = wrong_method(&asked.parts.method).plain_answer();
            let methods = self.methods_at(asked.parts.uri.path());
            if let Ok(methods) = HeaderValue::try_from(methods) {
                answer.headers.insert(ALLOW, methods);
            }
            return Ok(answer.into());
        }
        let handler = match &route.answer {
            RouteAnswer::Handler(handler) => handler,
            RouteAnswer::Open(handler) => {
                self.door.check(asked.peer)?;
                let answered = self.apart(handler(asked.parts.headers)).await;
                if let Err(refusal) = &answered
                    && refusal.error.code() == ErrorCode::Unauthenticated
                {
                    self.door.count_wrong(asked.peer);
                }
                return answered;
            }
            RouteAnswer::Page { media_type, text } => {
                return Ok(pages::fixed(media_type, pages::PAGE_POLICY, text.clone()));
            }
            RouteAnswer::Files { policy, files } => {
                let name = params.get("file");
                let file = files.iter().find(|file| file.name == name);
                let file = file.ok_or_else(nothing)?;
                let bytes = Bytes::from_static(file.bytes);
                return Ok(pages::fixed(file.media_type, policy, bytes));
            }
        };
        let mut admitted = self.admit_to(&asked, route.body).await?;
        let mut call = ExtraCall {
            principal: Arc::clone(admitted.principal()),
            parts: asked.parts,
            params,
            query: asked.query,
            body: Bytes::new(),
            upload: None,
        };
        let limit = match route.body {
            BodyRule::Json => Some(self.max_body),
            BodyRule::JsonOfPost(limit) => Some(self.max_body.min(limit)),
            BodyRule::Nothing | BodyRule::Upgrade => None,
            BodyRule::Upload(limit) => {
                check_body_coding(&call.parts)?;
                let upload = UploadBody::new(asked.incoming, limit, self.body_deadline)?;
                call.upload = Some(upload);
                let reply = self.apart((handler)(call)).await?;
                return Ok(reply.holding(admitted.place()));
            }
        };
        if let Some(limit) = limit {
            if route.body == BodyRule::Json || call.parts.method == Method::POST {
                check_body_kind(&call.parts)?;
            }
            call.body = self.read(asked.incoming, limit, &mut admitted).await?;
        }
        let reply = self.apart((handler)(call)).await?;
        // An answer may be a stream that goes on for hours.
        Ok(reply.holding(admitted.place()))
    }

    /// Authenticates the caller of an extra row; browsers show their key for a WebSocket as a subprotocol.
    async fn admit_to(&self, asked: &Asked, body: BodyRule) -> Result<Admission, Refusal> {
        if body != BodyRule::Upgrade {
            return self.admit(asked, false).await;
        }
        let shown = protocol_key(&asked.parts.headers);
        self.admit_with(asked, shown).await
    }

    async fn read(
        &self,
        incoming: Incoming,
        limit: usize,
        admitted: &mut Admission,
    ) -> Result<Bytes, Refusal> {
        body::read(incoming, limit, self.body_deadline, admitted).await
    }

    /// Carries out what belongs to runs and sessions where they live; dropping it ends it there.
    async fn apart(
        &self,
        work: impl Future<Output = Result<HttpReply, Refusal>> + Send + 'static,
    ) -> Result<HttpReply, Refusal> {
        let mut apart = JoinSet::new();
        apart.spawn_on(work, &self.tasks);
        match apart.join_next().await {
            Some(Ok(answered)) => answered,
            Some(Err(error)) => Err(Refusal::new(ErrorCode::Internal, error.to_string())),
            None => Err(Refusal::new(ErrorCode::Internal, "nobody answers")),
        }
    }

    /// Lets a request for a model in, where the key may ask models.
    async fn admit_to_models(
        &self,
        asked: &Asked,
        takes_query_key: bool,
    ) -> Result<Admission, Refusal> {
        let admitted = self.admit(asked, takes_query_key).await?;
        if admitted.principal().may(KeyScope::Models) {
            return Ok(admitted);
        }
        let id = &admitted.principal().id;
        let message = format!(
            "the key {id} does not have the scope `{}`",
            KeyScope::Models
        );
        Err(Refusal::new(ErrorCode::PolicyDenied, message))
    }

    /// Finds out who asks, and lets the request in within the limits of the key.
    async fn admit(&self, asked: &Asked, takes_query_key: bool) -> Result<Admission, Refusal> {
        let key = asked.query_key.as_deref().filter(|_| takes_query_key);
        self.admit_with(asked, key).await
    }

    /// Lets in whoever shows a key in the headers, or else the one that was found elsewhere.
    async fn admit_with(&self, asked: &Asked, key: Option<&str>) -> Result<Admission, Refusal> {
        let (keys, headers) = (self.gateway.keys(), &asked.parts.headers);
        let principal = match Doorkeeper::known(keys, headers, key) {
            Some(principal) => principal,
            None => {
                // It may have been made a moment ago.
                self.gateway.refresh_keys().await;
                self.door.admit(keys, headers, key, asked.peer)?
            }
        };
        self.gateway.admit(&principal)
    }
}

/// A request whose head was checked.
struct Asked {
    parts: Parts,
    incoming: Incoming,
    peer: IpAddr,
    query_key: Option<String>,
    query: Option<String>,
}

impl Route {
    /// In whose words a refusal is given.
    fn dialect(&self, headers: &HeaderMap) -> Option<Dialect> {
        match self {
            Self::Vendor { dialect, .. } => Some(*dialect),
            Self::Stored { .. } => Some(Dialect::Codex),
            Self::Models { vendor, .. } => Some(pages::whose_models(*vendor, headers)),
            Self::Other { dialect, .. } => Some(of_client(*dialect, headers)),
            Self::Translate
            | Self::Receipt(_)
            | Self::Protocol
            | Self::Version
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Root
            | Self::WrongMethod
            | Self::Nothing => None,
        }
    }
}

/// Files and batches of Claude have the addresses of OpenAI's; what only its clients send tells them apart.
fn of_client(dialect: Dialect, headers: &HeaderMap) -> Dialect {
    match dialect {
        Dialect::OpenAi if headers.contains_key("anthropic-version") => Dialect::Claude,
        other => other,
    }
}

fn nothing() -> Refusal {
    Refusal::new(ErrorCode::NotFound, "there is nothing here")
}

fn wrong_method(method: &Method) -> Refusal {
    let message = format!("{method} is not for this address");
    Refusal::new(ErrorCode::MethodNotAllowed, message)
}

/// There are no WebSockets; clients that try one fall back to plain requests when they hear so.
fn refuse_upgrade(parts: &Parts) -> Result<(), Refusal> {
    if parts.headers.contains_key(UPGRADE) || parts.method == Method::GET {
        let message = "the answer comes as server-sent events, not over a WebSocket";
        return Err(Refusal::new(ErrorCode::UpgradeRequired, message));
    }
    Ok(())
}

fn refuse_other_upgrade(parts: &Parts) -> Result<(), Refusal> {
    match parts.headers.contains_key(UPGRADE) {
        true => Err(Refusal::new(
            ErrorCode::UpgradeRequired,
            "there are no WebSockets here",
        )),
        false => Ok(()),
    }
}

fn on_loss(headers: &HeaderMap, usual: OnLoss) -> Result<OnLoss, Refusal> {
    match headers.get("x-abp-on-loss").map(HeaderValue::as_bytes) {
        None => Ok(usual),
        Some(b"label") => Ok(OnLoss::Label),
        Some(b"reject") => Ok(OnLoss::Reject),
        Some(_) => Err(Refusal::new(
            ErrorCode::ValidationFailed,
            "x-abp-on-loss is \"label\" or \"reject\"",
        )),
    }
}
