//! The examples as they are handed out, and how they are told where to ask.

#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/openai_chat.rs"]
pub(crate) mod chat;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/openai_streaming.rs"]
pub(crate) mod streaming;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/openai_tools.rs"]
pub(crate) mod tools;

pub(crate) const PREFIX: &str = "openai";
pub(crate) const BASE_URL: &str = "OPENAI_BASE_URL";
pub(crate) const KEY: &str = "OPENAI_API_KEY";
