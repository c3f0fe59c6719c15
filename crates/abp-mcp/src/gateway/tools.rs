//! Who decides about the tools of a scope, and how often they were called.

use std::collections::BTreeMap;
use std::sync::Mutex;

use abp_json::{View, Writer};
use tokio::sync::{mpsc, oneshot};

use super::json;
use crate::serve::{McpAnswer, lock};

/// A tool, by what its server calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTool {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
}

/// Decides about the tools of a scope, besides what is configured for their servers.
pub struct ToolRules {
    /// Whether a tool is listed.
    pub shows: Box<dyn Fn(&ServerTool) -> bool + Send + Sync>,
    /// Asked before every call.
    pub questions: mpsc::Sender<ToolQuestion>,
}

/// A tool is about to be called. It is refused where this is not answered.
#[derive(Debug)]
pub struct ToolQuestion {
    /// The tool.
    pub tool: ServerTool,
    /// Whether it may be, or why not.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// How often a tool was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolTally {
    /// Calls that were let through.
    pub calls: u64,
    /// Those of them that ended in an error.
    pub failed: u64,
    /// Calls that were refused.
    pub refused: u64,
}

/// The rules of a scope, and what came of them.
pub(super) struct ToolDesk {
    rules: ToolRules,
    tallies: Mutex<BTreeMap<ServerTool, ToolTally>>,
}

impl std::fmt::Debug for ToolRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolRules").finish_non_exhaustive()
    }
}

impl ToolDesk {
    pub(super) fn new(rules: ToolRules) -> Self {
        Self {
            rules,
            tallies: Mutex::default(),
        }
    }

    pub(super) fn shows(&self, tool: &ServerTool) -> bool {
        (self.rules.shows)(tool)
    }

    /// Whether a tool may be called, which then counts as one call, however it ends; the answer to its
    /// caller where it may not.
    pub(super) async fn admit(&self, tool: &ServerTool) -> Result<(), McpAnswer> {
        let (answer, answered) = oneshot::channel();
        let question = ToolQuestion {
            tool: tool.clone(),
            answer,
        };
        let nobody = || Err("nobody decides about it any more".to_owned());
        let decided = match self.rules.questions.send(question).await {
            Ok(()) => answered.await.unwrap_or_else(|_| nobody()),
            Err(_) => nobody(),
        };
        match decided {
            Ok(()) => {
                self.count(tool, |tally| tally.calls += 1);
                Ok(())
            }
            Err(why) => {
                self.count(tool, |tally| tally.refused += 1);
                Err(refused(&why))
            }
        }
    }

    /// A tool that was called answered.
    pub(super) fn answered(&self, tool: &ServerTool, answer: &McpAnswer) {
        let has_failed = match answer {
            McpAnswer::Result(result) => json::read(Some(result), |result| {
                result.get("isError").and_then(View::as_bool)
            }),
            McpAnswer::Refused(_) | McpAnswer::Error(_) => Some(Some(true)),
        };
        if has_failed.flatten() == Some(true) {
            self.count(tool, |tally| tally.failed += 1);
        }
    }

    pub(super) fn tallies(&self) -> BTreeMap<ServerTool, ToolTally> {
        lock(&self.tallies).clone()
    }

    fn count(&self, tool: &ServerTool, change: impl FnOnce(&mut ToolTally)) {
        change(lock(&self.tallies).entry(tool.clone()).or_default());
    }
}

/// A refusal is a result: a model reads it and can go on.
fn refused(why: &str) -> McpAnswer {
    let mut out = Writer::default();
    out.begin_object();
    out.key("content");
    out.begin_array();
    out.raw(&json::object(&[("type", "text"), ("text", why)]));
    out.end_array();
    out.key("isError");
    out.raw("true");
    out.end_object();
    McpAnswer::Result(out.into_text())
}
