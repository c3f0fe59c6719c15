//! The vendor's methods.

use std::sync::Arc;

use abp_claude_sdk::wire::{
    CountTokensRequest, ErrorResponse, Extra, Message, MessageRequest, MessageTokensCount,
    ModelInfo, ModelList,
};
use abp_shim_core::{
    ApiCall, ApiReply, ApiStream, Dialect, Gateway, HttpForm, KeyHeader, ModelOperation, OnLoss,
    Principal, ServedModel, Transport,
};
use http::{HeaderName, HeaderValue};

use crate::stream::MessageReader;

const FORM: HttpForm = HttpForm {
    version: "/v1",
    key_header: KeyHeader::Plain("x-api-key"),
    base_url_variable: "ANTHROPIC_BASE_URL",
    key_variable: "ANTHROPIC_API_KEY",
};

/// The version of the API that the documents are of.
const WIRE_VERSION: &str = "2023-06-01";

const MESSAGES: &str = "/messages";

/// Why there is no answer, or no more of it.
pub type Error = abp_shim_core::Error<ErrorResponse>;

/// Anthropic's API, served by a gateway. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of a daemon, with a key of it. The address may end in `/v1` or not.
    ///
    /// # Errors
    /// Fails where the address or the key cannot be used.
    pub fn new(base_url: &str, key: &str) -> Result<Self, Error> {
        Ok(Self::over(Transport::http(&FORM, base_url, key)?))
    }

    /// A client of the daemon that `ANTHROPIC_BASE_URL` names, with the key in `ANTHROPIC_API_KEY`.
    ///
    /// # Errors
    /// Fails where a variable is missing, or its value cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::over(Transport::from_env(&FORM)?))
    }

    /// A client of a gateway in this process, as somebody.
    pub fn in_process(gateway: Gateway, principal: impl Into<Arc<Principal>>) -> Self {
        Self::over(Transport::in_process(gateway, principal))
    }

    /// With a header for every request.
    #[must_use]
    pub fn header(self, name: HeaderName, value: HeaderValue) -> Self {
        let transport = self.transport.header(name, value);
        Self { transport }
    }

    /// With a word on what to do where an upstream cannot carry something.
    #[must_use]
    pub fn on_loss(self, on_loss: OnLoss) -> Self {
        let transport = self.transport.on_loss(on_loss);
        Self { transport }
    }

    /// Messages.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages(&self.transport)
    }

    /// Models.
    #[must_use]
    pub fn models(&self) -> Models<'_> {
        Models(&self.transport)
    }

    /// Every request says of which version of the API it is.
    fn over(transport: Transport) -> Self {
        let name = HeaderName::from_static("anthropic-version");
        let transport = transport.header(name, HeaderValue::from_static(WIRE_VERSION));
        Self { transport }
    }
}

/// Messages.
#[derive(Debug, Clone, Copy)]
pub struct Messages<'c>(&'c Transport);

impl Messages<'_> {
    /// An answer in one piece.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn create(self, mut request: MessageRequest) -> Result<ApiReply<Message>, Error> {
        request.stream = None;
        let operation = ModelOperation::Generate { stream: false };
        let call = ApiCall::post(Dialect::Claude, operation, MESSAGES, &request)?;
        self.0.call(call).await
    }

    /// An answer in pieces.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn stream(
        self,
        mut request: MessageRequest,
    ) -> Result<ApiStream<MessageReader>, Error> {
        request.stream = Some(true);
        let operation = ModelOperation::Generate { stream: true };
        let call = ApiCall::post(Dialect::Claude, operation, MESSAGES, &request)?;
        self.0.stream(call, MessageReader).await
    }

    /// How many tokens a request has.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn count_tokens(
        self,
        request: impl Into<CountTokensRequest>,
    ) -> Result<ApiReply<MessageTokensCount>, Error> {
        let path = format!("{MESSAGES}/count_tokens");
        let operation = ModelOperation::CountTokens;
        let call = ApiCall::post(Dialect::Claude, operation, path, &request.into())?;
        self.0.call(call).await
    }
}

/// Models.
#[derive(Debug, Clone, Copy)]
pub struct Models<'c>(&'c Transport);

impl Models<'_> {
    /// The models that are served by name.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn list(self) -> Result<ApiReply<ModelList>, Error> {
        self.0.models("/models", model_list).await
    }

    /// A model that is served, by its name or by a pattern.
    ///
    /// # Errors
    /// Fails where it is not.
    pub async fn retrieve(self, name: &str) -> Result<ApiReply<ModelInfo>, Error> {
        self.0.model(Dialect::Claude, name, model).await
    }
}

fn model(served: &ServedModel) -> ModelInfo {
    ModelInfo {
        id: served.name.clone(),
        display_name: served.name.clone(),
        // A gateway does not know it.
        created_at: "1970-01-01T00:00:00Z".to_owned(),
        extra: Extra::new(),
    }
}

fn model_list(served: &[ServedModel]) -> ModelList {
    let name = |model: Option<&ServedModel>| model.map(|model| model.name.clone());
    ModelList {
        data: served.iter().map(model).collect(),
        has_more: false,
        first_id: name(served.first()),
        last_id: name(served.last()),
        extra: Extra::new(),
    }
}
