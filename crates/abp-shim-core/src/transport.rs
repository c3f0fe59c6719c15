//! The two ways to a gateway.

use std::env;
use std::sync::Arc;

use abp_backend_core::ModelOperation;
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_gateway::{Ask, Gateway, Principal, Refusal, ServedModel};
use abp_plan::OnLoss;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::DeserializeOwned;

use crate::call::{ApiCall, segment};
use crate::error::{Error, TransportError};
use crate::http::{Http, HttpForm};
use crate::reply::{ApiReply, RawReply};
use crate::stream::{ApiStream, StreamReader};

/// A way to a gateway. Its clones share connections.
#[derive(Debug, Clone)]
pub struct Transport {
    way: Way,
    headers: HeaderMap,
    on_loss: OnLoss,
}

#[derive(Debug, Clone)]
enum Way {
    InProcess {
        gateway: Gateway,
        principal: Arc<Principal>,
    },
    Http(Arc<Http>),
}

impl Transport {
    /// To a gateway in this process, as somebody.
    pub fn in_process(gateway: Gateway, principal: impl Into<Arc<Principal>>) -> Self {
        let principal = principal.into();
        Self::new(Way::InProcess { gateway, principal })
    }

    /// To a daemon, with a key of it.
    ///
    /// # Errors
    /// Fails where the address or the key cannot be used.
    pub fn http(form: &HttpForm, base_url: &str, key: &str) -> Result<Self, TransportError> {
        let http = Http::new(form, base_url, key)?;
        Ok(Self::new(Way::Http(Arc::new(http))))
    }

    /// To the daemon that the vendor's environment variables name. Without them there is none: never
    /// does this lead to the vendor itself unasked.
    ///
    /// # Errors
    /// Fails where a variable is missing, or its value cannot be used.
    pub fn from_env(form: &HttpForm) -> Result<Self, TransportError> {
        let read = |name: &str| {
            let missing = |_| TransportError::NotUsable(format!("the environment has no {name}"));
            env::var(name).map_err(missing)
        };
        let base_url = read(form.base_url_variable)?;
        Self::http(form, &base_url, &read(form.key_variable)?)
    }

    fn new(way: Way) -> Self {
        Self {
            way,
            headers: HeaderMap::new(),
            on_loss: OnLoss::Default,
        }
    }

    /// With a header for every request.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With a word on what to do where something would be lost.
    #[must_use]
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = on_loss;
        self
    }

    /// Asks for an answer in one piece.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn call<T, B>(&self, call: ApiCall) -> Result<ApiReply<T>, Error<B>>
    where
        T: DeserializeOwned,
        B: DeserializeOwned,
    {
        self.send(call).await?.read().await
    }

    /// Asks for an answer in pieces.
    ///
    /// # Errors
    /// Fails where there is none. What happens in its course is told by the stream.
    pub async fn stream<R>(
        &self,
        call: ApiCall,
        reader: R,
    ) -> Result<ApiStream<R>, Error<R::ErrorBody>>
    where
        R: StreamReader<ErrorBody: DeserializeOwned>,
    {
        let reply = self.send(call).await?;
        if reply.head.status.is_success() {
            Ok(ApiStream::new(reply, reader))
        } else {
            Err(reply.refusal().await)
        }
    }

    /// Asks which models are served. A daemon answers in the vendor's words; of a gateway in this process
    /// the words are `served`'s.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn models<T, B>(
        &self,
        path: &str,
        served: impl FnOnce(&[ServedModel]) -> T,
    ) -> Result<ApiReply<T>, Error<B>>
    where
        T: DeserializeOwned,
        B: DeserializeOwned,
    {
        match &self.way {
            Way::InProcess { gateway, principal } => Ok(ApiReply::without_exchange(served(
                &gateway.models(principal),
            ))),
            Way::Http(http) => {
                let body = Bytes::new();
                let answer = http.send(Method::GET, path, &self.headers, body).await?;
                RawReply::from(answer).read().await
            }
        }
    }

    /// Asks for a model that is served, by its name or by a pattern, as [`Transport::models`] does.
    ///
    /// # Errors
    /// Fails where it is not served.
    pub async fn model<T, B>(
        &self,
        dialect: Dialect,
        name: &str,
        served: impl FnOnce(&ServedModel) -> T,
    ) -> Result<ApiReply<T>, Error<B>>
    where
        T: DeserializeOwned,
        B: DeserializeOwned,
    {
        match &self.way {
            Way::InProcess { gateway, principal } => match gateway.model(principal, name) {
                Some(model) => Ok(ApiReply::without_exchange(served(&model))),
                None => {
                    let message = format!("no upstream serves the model {name}");
                    let refusal = Refusal::new(ErrorCode::BackendModelNotFound, message);
                    RawReply::from(refusal.answer(dialect)).read().await
                }
            },
            Way::Http(http) => {
                let path = format!("/models/{}", segment(name));
                let body = Bytes::new();
                let answer = http.send(Method::GET, &path, &self.headers, body).await?;
                RawReply::from(answer).read().await
            }
        }
    }

    async fn send(&self, call: ApiCall) -> Result<RawReply, TransportError> {
        match &self.way {
            Way::InProcess { gateway, principal } => Ok(self.ask(gateway, principal, call).await),
            Way::Http(http) => {
                let mut headers = self.headers.clone();
                let word = match self.on_loss {
                    OnLoss::Default => None,
                    OnLoss::Label => Some("label"),
                    OnLoss::Reject => Some("reject"),
                };
                headers.extend(word.map(|word| {
                    let name = HeaderName::from_static("x-abp-on-loss");
                    (name, HeaderValue::from_static(word))
                }));
                let mut path = call.path;
                if let Some(query) = call.query {
                    path.extend(["?", query]);
                }
                let answer = http.send(call.method, &path, &headers, call.body).await?;
                Ok(answer.into())
            }
        }
    }

    async fn ask(&self, gateway: &Gateway, principal: &Arc<Principal>, call: ApiCall) -> RawReply {
        let query = call.query.map(str::to_owned);
        let admitted = match gateway.admit(principal) {
            Ok(admitted) => admitted,
            Err(refusal) => return refusal.answer(call.dialect).into(),
        };
        let answer = match call.operation {
            ModelOperation::Stored { id, action } => {
                gateway.stored(&admitted, &id, action, query).await
            }
            operation => {
                let ask = Ask {
                    admitted: Arc::new(admitted),
                    dialect: call.dialect,
                    operation,
                    model: call.model,
                    query,
                    headers: self.headers.clone(),
                    body: call.body,
                    on_loss: self.on_loss,
                };
                gateway.exchange(ask).await
            }
        };
        answer.into()
    }
}
