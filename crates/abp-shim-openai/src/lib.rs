//! OpenAI's client, through the gateway: Chat Completions, Responses and models in Rust.
//!
//! [`Client`] has the vendor's methods and [`wire`] its documents. Whatever upstream answers, the answer
//! is OpenAI's; what the gateway did for that is said by [`ApiReply::abp`].
//!
//! ```no_run
//! use abp_shim_openai::wire::{ChatCompletionRequest, ChatMessage};
//! use abp_shim_openai::{Client, Error};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::new("http://127.0.0.1:8088/v1", "abp_…")?;
//! let question = [ChatMessage::user("Why is the sky blue?")];
//! let request = ChatCompletionRequest::new("gpt-4o", question);
//!
//! let answer = client.chat().completions().create(request.clone()).await?;
//! assert!(answer.abp().run_id.is_some());
//!
//! let mut pieces = client.chat().completions().stream(request).await?;
//! while let Some(piece) = pieces.next().await {
//!     let _text = piece?.text().to_owned();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program that holds a [`Gateway`] itself needs neither daemon nor socket:
//! [`Client::in_process`]. Both need a Tokio runtime.

mod client;
mod stream;

pub use abp_openai_sdk::wire;
pub use abp_shim_core::{
    AbpInfo, ApiError, ApiReply, ApiStream, FidelityLevel, Gateway, OnLoss, Principal,
    TransportError, Unexpected,
};
pub use client::{Chat, Client, Completions, Error, Models, Responses};
pub use stream::{ChatReader, ResponseReader};
