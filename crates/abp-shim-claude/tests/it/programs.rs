//! The examples as they are handed out, and how they are told where to ask.

#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/claude_chat.rs"]
pub(crate) mod chat;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/claude_streaming.rs"]
pub(crate) mod streaming;
#[expect(dead_code, reason = "as a program it has a main")]
#[path = "../../examples/claude_tools.rs"]
pub(crate) mod tools;

pub(crate) const PREFIX: &str = "claude";
pub(crate) const BASE_URL: &str = "ANTHROPIC_BASE_URL";
pub(crate) const KEY: &str = "ANTHROPIC_API_KEY";
