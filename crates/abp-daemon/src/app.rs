//! One request, from its head to its response.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_gateway::{Answer, Ask, Gateway, Principal, Refusal};
use abp_plan::OnLoss;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

use crate::auth::{Doorkeeper, split_query};
use crate::body::{self, Outgoing};
use crate::guard::{Allowed, check_body_kind};
use crate::pages;
use crate::route::Route;
use crate::runs::RunPlane;
use crate::wire::Phase;

/// Everything that requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) gateway: Gateway,
    pub(crate) runs: Option<Arc<RunPlane>>,
    pub(crate) allowed: Allowed,
    pub(crate) door: Doorkeeper,
    pub(crate) max_body: usize,
    pub(crate) body_deadline: Duration,
    /// Whether only this machine can reach the server.
    pub(crate) is_local: bool,
}

impl App {
    /// Answers a request. There is always an answer.
    pub(crate) async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: IpAddr,
        phase: Arc<Phase>,
    ) -> Response<Outgoing> {
        let (parts, incoming) = request.into_parts();
        let (query_key, query) = split_query(parts.uri.query());
        let route = Route::of(&parts.method, parts.uri.path());
        let dialect = route.dialect();
        let close = !phase.was_read();
        let checked = if close {
            let message = "requests have to wait for the answer to the one before";
            Err(Refusal::new(ErrorCode::ValidationFailed, message))
        } else {
            self.allowed.check(&parts)
        };
        let answer = match checked {
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
        let answer = answer.unwrap_or_else(|problem| match dialect {
            Some(dialect) => problem.answer(dialect),
            None => problem.plain_answer(),
        });
        let mut response = Outgoing::response(answer, &phase);
        if close {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer(&self, route: Route, asked: Asked) -> Result<Answer, Refusal> {
        match route {
            Route::Health => Ok(pages::health()),
            Route::Ready => Ok(pages::ready(&self.gateway)),
            Route::Root => Ok(pages::root()),
            Route::Version => Ok(pages::version()),
            Route::Metrics => {
                if !self.is_local {
                    self.admit(&asked, false)?;
                }
                Ok(pages::metrics(&self.gateway))
            }
            Route::Nothing => Err(Refusal::new(ErrorCode::NotFound, "there is nothing here")),
            Route::WrongMethod => Err(Refusal::new(
                ErrorCode::MethodNotAllowed,
                format!("{} is not for this address", asked.parts.method),
            )),
            Route::Protocol => {
                self.admit(&asked, false)?;
                Ok(pages::protocol())
            }
            Route::NotServed(what) => {
                self.admit(&asked, false)?;
                Err(Refusal::new(
                    ErrorCode::CapabilityUnsupported,
                    format!("{what} cannot be translated and are not passed on"),
                ))
            }
            Route::Models { gemini, name } => {
                let principal = self.admit(&asked, gemini)?;
                pages::models(
                    &self.gateway,
                    &principal,
                    &asked.parts.headers,
                    gemini,
                    name,
                )
            }
            Route::Receipt(id) => {
                let principal = self.admit(&asked, false)?;
                pages::receipt(&self.gateway, &principal, &id).await
            }
            Route::Stored { id, action } => {
                let principal = self.admit(&asked, false)?;
                Ok(self
                    .gateway
                    .stored(&principal, &id, action, asked.query)
                    .await)
            }
            Route::Translate => {
                self.admit(&asked, false)?;
                check_body_kind(&asked.parts)?;
                let body = body::read(asked.incoming, self.max_body, self.body_deadline).await?;
                pages::translate(body).await
            }
            Route::Vendor {
                dialect,
                operation,
                model,
            } => {
                let principal = self.admit(&asked, dialect == Dialect::Gemini)?;
                refuse_upgrade(&asked.parts)?;
                check_body_kind(&asked.parts)?;
                let on_loss = on_loss(&asked.parts.headers)?;
                let body = body::read(asked.incoming, self.max_body, self.body_deadline).await?;
                let ask = Ask {
                    principal,
                    dialect,
                    operation,
                    model,
                    query: asked.query,
                    headers: asked.parts.headers,
                    body,
                    on_loss,
                };
                Ok(self.gateway.exchange(ask).await)
            }
        }
    }

    fn admit(&self, asked: &Asked, takes_query_key: bool) -> Result<Arc<Principal>, Refusal> {
        let key = asked.query_key.as_deref().filter(|_| takes_query_key);
        self.door
            .admit(self.gateway.keys(), &asked.parts.headers, key, asked.peer)
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
    fn dialect(&self) -> Option<Dialect> {
        match self {
            Self::Vendor { dialect, .. } => Some(*dialect),
            Self::Stored { .. } => Some(Dialect::Codex),
            Self::Models { gemini: true, .. } => Some(Dialect::Gemini),
            Self::Models { gemini: false, .. } | Self::NotServed(_) => Some(Dialect::OpenAi),
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

/// There are no WebSockets; clients that try one fall back to plain requests when they hear so.
fn refuse_upgrade(parts: &Parts) -> Result<(), Refusal> {
    if parts.headers.contains_key(UPGRADE) || parts.method == Method::GET {
        let message = "the answer comes as server-sent events, not over a WebSocket";
        return Err(Refusal::new(ErrorCode::UpgradeRequired, message));
    }
    Ok(())
}

fn on_loss(headers: &HeaderMap) -> Result<OnLoss, Refusal> {
    match headers.get("x-abp-on-loss").map(HeaderValue::as_bytes) {
        None => Ok(OnLoss::Default),
        Some(b"label") => Ok(OnLoss::Label),
        Some(b"reject") => Ok(OnLoss::Reject),
        Some(_) => Err(Refusal::new(
            ErrorCode::ValidationFailed,
            "x-abp-on-loss is \"label\" or \"reject\"",
        )),
    }
}
