//! Gemini's client, through the gateway: `generateContent`, counts of tokens and models in Rust.
//!
//! [`Client`] has the vendor's methods and [`wire`] its documents. Whatever upstream answers, the answer
//! is Gemini's; what the gateway did for that is said by [`ApiReply::abp`].
//!
//! ```no_run
//! use abp_shim_gemini::wire::GenerateContentRequest;
//! use abp_shim_gemini::{Client, Error};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::new("http://127.0.0.1:8088", "abp_…")?;
//! let request = GenerateContentRequest::text("Why is the sky blue?");
//!
//! let answer = client.models().generate_content("gemini-2.5-flash", &request).await?;
//! assert!(answer.abp().run_id.is_some());
//!
//! let mut pieces = client
//!     .models()
//!     .generate_content_stream("gemini-2.5-flash", &request)
//!     .await?;
//! while let Some(piece) = pieces.next().await {
//!     let _text = piece?.text();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program that holds a [`Gateway`] itself needs neither daemon nor socket:
//! [`Client::in_process`]. Both need a Tokio runtime.

mod client;
mod stream;

pub use abp_gemini_sdk::wire;
pub use abp_shim_core::{
    AbpInfo, ApiError, ApiReply, ApiStream, FidelityLevel, Gateway, OnLoss, Principal,
    TransportError, Unexpected,
};
pub use client::{Client, Error, Models};
pub use stream::ContentReader;
