//! The examples as they are handed out, and how they are told where to ask.

#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/gemini_chat.rs"]
pub(crate) mod chat;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/gemini_streaming.rs"]
pub(crate) mod streaming;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/gemini_tools.rs"]
pub(crate) mod tools;

pub(crate) const PREFIX: &str = "gemini";
pub(crate) const BASE_URL: &str = "GOOGLE_GEMINI_BASE_URL";
pub(crate) const KEY: &str = "GEMINI_API_KEY";
