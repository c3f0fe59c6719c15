//! The vendor's methods.

use std::sync::Arc;

use abp_openai_sdk::wire::{
    ChatCompletion, ChatCompletionRequest, DeletedResponse, ErrorResponse, Extra, InputItemList,
    InputTokenCount, Model, ModelList, Response, ResponseRequest,
};
use abp_shim_core::{
    ApiCall, ApiReply, ApiStream, Dialect, Gateway, HttpForm, KeyHeader, ModelOperation, OnLoss,
    Principal, ServedModel, StoredAction, Transport, segment,
};
use http::{HeaderName, HeaderValue, Method};

use crate::stream::{ChatReader, ResponseReader};

const FORM: HttpForm = HttpForm {
    version: "/v1",
    key_header: KeyHeader::Bearer,
    base_url_variable: "OPENAI_BASE_URL",
    key_variable: "OPENAI_API_KEY",
};

const CHAT: &str = "/chat/completions";
const RESPONSES: &str = "/responses";

/// Why there is no answer, or no more of it.
pub type Error = abp_shim_core::Error<ErrorResponse>;

/// OpenAI's API, served by a gateway. Clones share connections.
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
        let transport = Transport::http(&FORM, base_url, key)?;
        Ok(Self { transport })
    }

    /// A client of the daemon that `OPENAI_BASE_URL` names, with the key in `OPENAI_API_KEY`.
    ///
    /// # Errors
    /// Fails where a variable is missing, or its value cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        let transport = Transport::from_env(&FORM)?;
        Ok(Self { transport })
    }

    /// A client of a gateway in this process, as somebody.
    pub fn in_process(gateway: Gateway, principal: impl Into<Arc<Principal>>) -> Self {
        let transport = Transport::in_process(gateway, principal);
        Self { transport }
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

    /// Chat.
    #[must_use]
    pub fn chat(&self) -> Chat<'_> {
        Chat(&self.transport)
    }

    /// Responses.
    #[must_use]
    pub fn responses(&self) -> Responses<'_> {
        Responses(&self.transport)
    }

    /// Models.
    #[must_use]
    pub fn models(&self) -> Models<'_> {
        Models(&self.transport)
    }
}

/// Chat.
#[derive(Debug, Clone, Copy)]
pub struct Chat<'c>(&'c Transport);

impl<'c> Chat<'c> {
    /// Chat Completions.
    #[must_use]
    pub fn completions(self) -> Completions<'c> {
        Completions(self.0)
    }
}

/// Chat Completions.
#[derive(Debug, Clone, Copy)]
pub struct Completions<'c>(&'c Transport);

impl Completions<'_> {
    /// An answer in one piece.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn create(
        self,
        mut request: ChatCompletionRequest,
    ) -> Result<ApiReply<ChatCompletion>, Error> {
        request.stream = None;
        // The vendor refuses these where nothing is streamed.
        request.stream_options = None;
        let operation = ModelOperation::Generate { stream: false };
        let call = ApiCall::post(Dialect::OpenAi, operation, CHAT, &request)?;
        self.0.call(call).await
    }

    /// An answer in pieces.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn stream(
        self,
        mut request: ChatCompletionRequest,
    ) -> Result<ApiStream<ChatReader>, Error> {
        request.stream = Some(true);
        let operation = ModelOperation::Generate { stream: true };
        let call = ApiCall::post(Dialect::OpenAi, operation, CHAT, &request)?;
        self.0.stream(call, ChatReader::default()).await
    }
}

/// Responses.
#[derive(Debug, Clone, Copy)]
pub struct Responses<'c>(&'c Transport);

impl Responses<'_> {
    /// An answer in one piece.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn create(self, mut request: ResponseRequest) -> Result<ApiReply<Response>, Error> {
        request.stream = None;
        let operation = ModelOperation::Generate { stream: false };
        let call = ApiCall::post(Dialect::Codex, operation, RESPONSES, &request)?;
        self.0.call(call).await
    }

    /// An answer in pieces.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn stream(
        self,
        mut request: ResponseRequest,
    ) -> Result<ApiStream<ResponseReader>, Error> {
        request.stream = Some(true);
        let operation = ModelOperation::Generate { stream: true };
        let call = ApiCall::post(Dialect::Codex, operation, RESPONSES, &request)?;
        self.0.stream(call, ResponseReader).await
    }

    /// An answer that is kept.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn retrieve(self, id: &str) -> Result<ApiReply<Response>, Error> {
        self.0
            .call(stored(Method::GET, id, StoredAction::Get))
            .await
    }

    /// Forgets an answer that is kept.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn delete(self, id: &str) -> Result<ApiReply<DeletedResponse>, Error> {
        let call = stored(Method::DELETE, id, StoredAction::Delete);
        self.0.call(call).await
    }

    /// Ends an answer that is made in the background.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn cancel(self, id: &str) -> Result<ApiReply<Response>, Error> {
        let call = stored(Method::POST, id, StoredAction::Cancel);
        self.0.call(call).await
    }

    /// What an answer that is kept was an answer to; the last come first.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn input_items(self, id: &str) -> Result<ApiReply<InputItemList>, Error> {
        let call = stored(Method::GET, id, StoredAction::InputItems);
        self.0.call(call).await
    }

    /// Counts the tokens of a request.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn count_input_tokens(
        self,
        request: ResponseRequest,
    ) -> Result<ApiReply<InputTokenCount>, Error> {
        let path = format!("{RESPONSES}/input_tokens");
        let operation = ModelOperation::CountTokens;
        let call = ApiCall::post(Dialect::Codex, operation, path, &request)?;
        self.0.call(call).await
    }
}

fn stored(method: Method, id: &str, action: StoredAction) -> ApiCall {
    let end = match action {
        StoredAction::Get | StoredAction::Delete => "",
        StoredAction::Cancel => "/cancel",
        StoredAction::InputItems => "/input_items",
    };
    let path = format!("{RESPONSES}/{}{end}", segment(id));
    let id = id.to_owned();
    let operation = ModelOperation::Stored { id, action };
    ApiCall::without_document(method, Dialect::Codex, operation, path)
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
    pub async fn retrieve(self, name: &str) -> Result<ApiReply<Model>, Error> {
        self.0.model(Dialect::OpenAi, name, model).await
    }
}

fn model(served: &ServedModel) -> Model {
    Model {
        id: served.name.clone(),
        created: 0,
        owned_by: served.upstream.clone(),
        extra: Extra::new(),
    }
}

fn model_list(served: &[ServedModel]) -> ModelList {
    ModelList {
        data: served.iter().map(model).collect(),
        extra: Extra::new(),
    }
}
