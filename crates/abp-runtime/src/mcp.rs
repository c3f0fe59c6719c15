//! The MCP servers of a run: an endpoint of its own in front of the operator's servers.
//!
//! An order names servers that are configured. Its run gets a gateway in front of those and of no
//! others, at a port and with a key that nobody else knows. Every call of a tool is judged by the run's
//! gate; when the run ends, however it ends, endpoint, connections and programs end with it.

mod report;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::McpAccess;
use abp_core::{McpAsk, McpReport};
use abp_error::{AbpError, ErrorCode};
use abp_mcp::{
    HttpOptions, LocalEndpoint, McpGateway, McpHttp, McpScope, Offer, ServerTool, StateKey,
    ToolQuestion, ToolRules,
};
use abp_policy::{Decision, PolicyEngine, Verdict};
use tokio::sync::mpsc;

use crate::RuntimeError;

/// Calls that may wait to be judged.
const QUESTIONS: usize = 16;
/// How long an agent may take to answer what a server asks it.
const AGENT_TIMEOUT: Duration = Duration::from_secs(300);
/// How long programs may take to end; they are killed before that.
const GRACE: Duration = Duration::from_secs(6);

/// The operator's MCP servers, for runs that ask for some.
#[derive(Clone)]
pub struct McpServers {
    names: BTreeSet<String>,
    unconfined: BTreeSet<String>,
    offer: Offer,
    open: Arc<Open>,
}

/// Makes a gateway in front of servers, without opening any. Without a place, it only shows that they are
/// configured well.
type Open = dyn Fn(&[String], Option<&McpPlace<'_>>) -> Result<McpGateway, AbpError> + Send + Sync;

/// The part of a run that its servers' programs may see.
#[derive(Debug)]
pub struct McpPlace<'a> {
    /// The run's workspace.
    pub workspace: &'a Path,
    /// The directory that the workspace was staged from; `None` where it is the user's own.
    pub source: Option<PathBuf>,
    /// Directories of the host, of which nothing is lent.
    pub hidden: Vec<PathBuf>,
    /// The run's policy.
    pub policy: &'a PolicyEngine,
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServers")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl McpServers {
    /// Servers of these names. `open` makes the gateway of one run, in front of those it is given.
    pub fn new(
        names: impl IntoIterator<Item = String>,
        offer: Offer,
        open: impl Fn(&[String], Option<&McpPlace<'_>>) -> Result<McpGateway, AbpError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            names: names.into_iter().collect(),
            unconfined: BTreeSet::new(),
            offer,
            open: Arc::new(open),
        }
    }

    /// Those of these names are programs without a sandbox.
    #[must_use]
    pub fn with_unconfined(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.unconfined = names.into_iter().collect();
        self
    }

    /// The servers that an order asks for. None is opened yet.
    pub(crate) fn grant(&self, ask: McpAsk) -> Result<McpGrant, RuntimeError> {
        let names = self.choose(ask)?;
        (self.open)(&names, None).map_err(RuntimeError::McpUnavailable)?;
        Ok(McpGrant {
            is_confined: !names.iter().any(|name| self.unconfined.contains(name)),
            names,
            open: Arc::clone(&self.open),
            offer: self.offer.clone(),
        })
    }

    fn choose(&self, ask: McpAsk) -> Result<Vec<String>, RuntimeError> {
        let asked = match ask {
            McpAsk::All => self.names.clone(),
            McpAsk::Named(asked) => asked.into_iter().collect(),
        };
        if self.names.is_empty() {
            return Err(RuntimeError::NoMcpServers);
        }
        match asked.difference(&self.names).next() {
            Some(name) => Err(RuntimeError::UnknownMcpServer {
                name: name.clone(),
                known: self.names.iter().cloned().collect(),
            }),
            None => Ok(asked.into_iter().collect()),
        }
    }
}

/// The servers that a run was granted.
pub(crate) struct McpGrant {
    names: Vec<String>,
    /// Whether every program among the servers is in a sandbox.
    pub(crate) is_confined: bool,
    open: Arc<Open>,
    offer: Offer,
}

impl fmt::Debug for McpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpGrant")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// The servers of a run under way.
#[derive(Debug)]
pub(crate) struct RunMcp {
    gateway: McpGateway,
    scope: Arc<McpScope>,
    endpoint: LocalEndpoint,
    questions: mpsc::Receiver<ToolQuestion>,
}

impl McpGrant {
    /// Opens the endpoint of a run that works in this place.
    pub(crate) async fn open(self, place: &McpPlace<'_>) -> Result<RunMcp, AbpError> {
        let failed = |error: String| {
            AbpError::new(
                ErrorCode::Internal,
                "the run's MCP servers cannot be offered",
            )
            .with_source(error)
        };
        let made = (self.open)(&self.names, Some(place))?;
        let (asked, questions) = mpsc::channel(QUESTIONS);
        let policy = place.policy.clone();
        let rules = ToolRules {
            shows: Box::new(move |tool| judge(&policy, tool).verdict != Verdict::Deny),
            questions: asked,
        };
        let scope = McpScope::with_rules(vec![place.workspace.to_owned()], rules);
        let key = StateKey::random().map_err(|error| failed(error.to_string()))?;
        let options = HttpOptions {
            request_timeout: AGENT_TIMEOUT,
            ..HttpOptions::new(key)
        };
        let (gateway, sessions) = (made.clone(), Arc::clone(&scope));
        let http = McpHttp::new(self.offer, options, move |principal| {
            gateway.session_in(&sessions, principal)
        });
        let endpoint = LocalEndpoint::open(http).await;
        Ok(RunMcp {
            gateway: made,
            scope,
            endpoint: endpoint.map_err(|error| failed(error.to_string()))?,
            questions,
        })
    }
}

impl RunMcp {
    /// How the backend gets there.
    pub(crate) fn access(&self) -> McpAccess {
        McpAccess {
            url: self.endpoint.url(),
            key: self.endpoint.key().clone(),
        }
    }

    /// The next call of a tool that is to be judged.
    pub(crate) async fn question(&mut self) -> Option<ToolQuestion> {
        self.questions.recv().await
    }

    /// Ends all of it, programs too, and says what it was used for.
    pub(crate) async fn close(self) -> McpReport {
        self.endpoint.close().await;
        self.scope.close();
        self.gateway.close();
        self.gateway.programs_ended(GRACE).await;
        report::report(&self.gateway.sandboxes(), &self.scope)
    }
}

/// Between the name of a server and that of its tool.
const SEPARATOR: &str = "__";

/// A tool goes by the name its server gives it; by that with the server's name in front, which is how
/// the gateway tells apart what two servers have; and by the name that agents make of it.
///
/// A name allows a tool only where it can mean no other pair of server and tool. `files__read` is the tool
/// `read` of `files`: the tool of another server that is called `files__read` is not allowed by it. Where the
/// name of a server holds the separator, the joined names could be cut elsewhere, too.
pub(crate) fn judge(policy: &PolicyEngine, tool: &ServerTool) -> Decision {
    let joined = qualified(tool);
    let of_agents = format!("mcp__{joined}");
    let (mut own, mut shared): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let is_cut_once = !tool.server.contains(SEPARATOR) && !tool.server.ends_with('_');
    for (name, is_certain) in [
        (joined.as_str(), is_cut_once),
        (of_agents.as_str(), is_cut_once),
        (tool.tool.as_str(), !tool.tool.contains(SEPARATOR)),
    ] {
        match is_certain {
            true => own.push(name),
            false => shared.push(name),
        }
    }
    let pair = format!("{} {}", tool.server, tool.tool);
    match own.split_first() {
        Some((first, others)) => policy.judge_names(first, others, &shared),
        None => policy.judge_names(&pair, &[], &shared),
    }
}

pub(crate) fn qualified(tool: &ServerTool) -> String {
    format!("{}{SEPARATOR}{}", tool.server, tool.tool)
}

#[cfg(test)]
mod tests {
    use abp_core::PolicyProfile;

    use super::*;

    /// A tool cannot take the permissions of another server's tool by its name.
    #[test]
    fn a_policy_is_about_pairs_of_server_and_tool() {
        let allowed = |pattern: &str, server: &str, tool: &str| {
            let policy = PolicyEngine::new(&PolicyProfile {
                allowed_tools: vec![pattern.to_owned()],
                ..PolicyProfile::default()
            });
            let tool = ServerTool {
                server: server.to_owned(),
                tool: tool.to_owned(),
            };
            judge(&policy.unwrap(), &tool).verdict == Verdict::Allow
        };
        let cases = [
            ("files__read", "files", "read", true),
            ("mcp__files__read", "files", "read", true),
            ("read", "files", "read", true),
            ("files__repo__list", "files", "repo__list", true),
            ("*", "evil", "files__read", true),
            // Imitations: the whole name, as agents say it, and cut elsewhere.
            ("files__read", "evil", "files__read", false),
            ("mcp__files__read", "evil", "mcp__files__read", false),
            ("files__repo__list", "files__repo", "list", false),
            ("files___read", "files_", "read", false),
        ];
        for (pattern, server, tool, expected) in cases {
            assert_eq!(
                allowed(pattern, server, tool),
                expected,
                "{pattern}: {server} {tool}"
            );
        }
        // A denial counts under every name.
        let policy = PolicyEngine::new(&PolicyProfile {
            disallowed_tools: vec!["files__read".to_owned()],
            ..PolicyProfile::default()
        })
        .unwrap();
        for (server, tool) in [("files", "read"), ("evil", "files__read")] {
            let tool = ServerTool {
                server: server.to_owned(),
                tool: tool.to_owned(),
            };
            assert_eq!(judge(&policy, &tool).verdict, Verdict::Deny);
        }
    }
}
