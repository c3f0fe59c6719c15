//! Claude Code without a runtime: drives `hosts/claude` and converts between ABP's types and Claude's.
//!
//! [`ClaudeBridge`] starts the host, gives it one work order, and hands on what it says in the form of Claude
//! Code's own `stream-json` messages. Nothing here stages a workspace, judges a policy or writes a receipt:
//! that is the runtime's, which uses the same host as the backend `sidecar:claude`.
//!
//! ```text
//! ClaudeOptions + prompt ──> WorkOrder ──> hosts/claude ──> AgentEvent ──> ClaudeMessage
//! ```

mod bridge;
mod message;
mod options;
mod writer;

pub use bridge::{BridgeRun, BridgeSettings, ClaudeBridge};
pub use message::{
    AssistantBody, ClaudeMessage, ClaudeUsage, ContentBlock, ControlRequest, ToolPermission,
    UserBody,
};
pub use options::ClaudeOptions;
pub use writer::{MessageWriter, events_of};
