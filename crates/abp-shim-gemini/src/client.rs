//! The vendor's methods.

use std::sync::Arc;

use abp_gemini_sdk::wire::{
    CountTokensRequest, CountTokensResponse, ErrorResponse, Extra, GenerateContentRequest,
    GenerateContentResponse, ListModelsResponse, Model,
};
use abp_shim_core::{
    ApiCall, ApiReply, ApiStream, Dialect, Gateway, HttpForm, KeyHeader, ModelOperation, OnLoss,
    Principal, ServedModel, Transport, segment,
};
use http::{HeaderName, HeaderValue};
use serde::Serialize;

use crate::stream::ContentReader;

const FORM: HttpForm = HttpForm {
    version: "/v1beta",
    key_header: KeyHeader::Plain("x-goog-api-key"),
    base_url_variable: "GOOGLE_GEMINI_BASE_URL",
    key_variable: "GEMINI_API_KEY",
};

/// What the name of a model may start with.
const PREFIX: &str = "models/";

/// What each model that is served can be asked for.
const METHODS: [&str; 3] = ["generateContent", "streamGenerateContent", "countTokens"];

/// Why there is no answer, or no more of it.
pub type Error = abp_shim_core::Error<ErrorResponse>;

/// Gemini's API, served by a gateway. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of a daemon, with a key of it. The address may end in `/v1beta` or not.
    ///
    /// # Errors
    /// Fails where the address or the key cannot be used.
    pub fn new(base_url: &str, key: &str) -> Result<Self, Error> {
        let transport = Transport::http(&FORM, base_url, key)?;
        Ok(Self { transport })
    }

    /// A client of the daemon that `GOOGLE_GEMINI_BASE_URL` names, with the key in `GEMINI_API_KEY`.
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

    /// Models, and what they can be asked for.
    #[must_use]
    pub fn models(&self) -> Models<'_> {
        Models(&self.transport)
    }
}

/// Models, and what they can be asked for. A model may be named with `models/` before it.
#[derive(Debug, Clone, Copy)]
pub struct Models<'c>(&'c Transport);

impl Models<'_> {
    /// An answer in one piece.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn generate_content(
        self,
        model: &str,
        request: &GenerateContentRequest,
    ) -> Result<ApiReply<GenerateContentResponse>, Error> {
        let operation = ModelOperation::Generate { stream: false };
        self.0
            .call(call(model, operation, "generateContent", request)?)
            .await
    }

    /// An answer in pieces.
    ///
    /// # Errors
    /// Fails where there is none.
    pub async fn generate_content_stream(
        self,
        model: &str,
        request: &GenerateContentRequest,
    ) -> Result<ApiStream<ContentReader>, Error> {
        let operation = ModelOperation::Generate { stream: true };
        let mut call = call(model, operation, "streamGenerateContent", request)?;
        call.query = Some("alt=sse");
        self.0.stream(call, ContentReader::default()).await
    }

    /// How many tokens a request has.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn count_tokens(
        self,
        model: &str,
        request: impl Into<CountTokensRequest>,
    ) -> Result<ApiReply<CountTokensResponse>, Error> {
        let mut request = request.into();
        if let Some(whole) = &mut request.generate_content_request {
            // The vendor wants the name here, too.
            let name = format!("{PREFIX}{}", bare(model));
            whole.extra.insert("model".to_owned(), name.into());
        }
        let operation = ModelOperation::CountTokens;
        self.0
            .call(call(model, operation, "countTokens", &request)?)
            .await
    }

    /// The models that are served by name.
    ///
    /// # Errors
    /// Fails where there is no answer.
    pub async fn list(self) -> Result<ApiReply<ListModelsResponse>, Error> {
        self.0.models("/models", model_list).await
    }

    /// A model that is served, by its name or by a pattern.
    ///
    /// # Errors
    /// Fails where it is not.
    pub async fn get(self, name: &str) -> Result<ApiReply<Model>, Error> {
        self.0.model(Dialect::Gemini, bare(name), model).await
    }
}

fn model(served: &ServedModel) -> Model {
    Model {
        name: format!("{PREFIX}{}", served.name),
        display_name: served.name.clone(),
        supported_generation_methods: METHODS.map(str::to_owned).to_vec(),
        extra: Extra::new(),
    }
}

fn bare(model: &str) -> &str {
    model.strip_prefix(PREFIX).unwrap_or(model)
}

fn call(
    model: &str,
    operation: ModelOperation,
    method: &str,
    document: &impl Serialize,
) -> Result<ApiCall, serde_json::Error> {
    let model = bare(model);
    let path = format!("/{PREFIX}{}:{method}", segment(model));
    let mut call = ApiCall::post(Dialect::Gemini, operation, path, document)?;
    call.model = Some(model.to_owned());
    Ok(call)
}

fn model_list(served: &[ServedModel]) -> ListModelsResponse {
    ListModelsResponse {
        models: served.iter().map(model).collect(),
        next_page_token: None,
        extra: Extra::new(),
    }
}
