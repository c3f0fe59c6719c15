//! Anthropic's client, through the gateway: Messages, counts of tokens and models in Rust.
//!
//! [`Client`] has the vendor's methods and [`wire`] its documents. Whatever upstream answers, the answer
//! is Anthropic's; what the gateway did for that is said by [`ApiReply::abp`].
//!
//! ```no_run
//! use abp_shim_claude::wire::{MessageParam, MessageRequest};
//! use abp_shim_claude::{Client, Error};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::new("http://127.0.0.1:8088", "abp_…")?;
//! let question = [MessageParam::user("Why is the sky blue?")];
//! let request = MessageRequest::new("claude-sonnet-4-5", 1024, question);
//!
//! let answer = client.messages().create(request.clone()).await?;
//! assert!(answer.abp().run_id.is_some());
//!
//! let mut pieces = client.messages().stream(request).await?;
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

pub use abp_claude_sdk::wire;
pub use abp_shim_core::{
    AbpInfo, ApiError, ApiReply, ApiStream, FidelityLevel, Gateway, OnLoss, Principal,
    TransportError, Unexpected,
};
pub use client::{Client, Error, Messages, Models};
pub use stream::MessageReader;
