//! What a client asks to be told about, since 2026-07-28.

use std::collections::BTreeSet;

use abp_json::{Kind, View, Writer};

use crate::capabilities::{ServerFlag, TASKS_EXTENSION};
use crate::gate::Gate;
use crate::method::Method;

/// The notifications of one `subscriptions/listen`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of these resources, and of what is below them.
    pub uris: BTreeSet<String>,
    /// Changes of these tasks.
    pub tasks: BTreeSet<String>,
}

impl SubscriptionFilter {
    /// Reads the parameters of `subscriptions/listen`; `None` if they have no filter.
    #[must_use]
    pub fn read(params: Option<View<'_>>) -> Option<Self> {
        let filter = params?.get("notifications")?;
        let is_on = |key| filter.get(key).and_then(View::as_bool).unwrap_or_default();
        let texts = |key| {
            let items = filter.get(key).into_iter().flat_map(View::items);
            items.filter_map(View::as_str).map(Into::into).collect()
        };
        (filter.kind() == Kind::Object).then(|| Self {
            tools: is_on("toolsListChanged"),
            prompts: is_on("promptsListChanged"),
            resources: is_on("resourcesListChanged"),
            uris: texts("resourceSubscriptions"),
            tasks: texts("taskIds"),
        })
    }

    /// The part of it that a server can tell.
    #[must_use]
    pub fn honoured(&self, gate: &Gate) -> Self {
        let keep = |texts: &BTreeSet<String>, can_tell: bool| match can_tell {
            true => texts.clone(),
            false => BTreeSet::new(),
        };
        Self {
            tools: self.tools && gate.server_has(ServerFlag::ToolsListChanged),
            prompts: self.prompts && gate.server_has(ServerFlag::PromptsListChanged),
            resources: self.resources && gate.server_has(ServerFlag::ResourcesListChanged),
            uris: keep(&self.uris, gate.server_has(ServerFlag::ResourcesSubscribe)),
            tasks: keep(&self.tasks, gate.has_extension(TASKS_EXTENSION)),
        }
    }

    /// Whether a notification is one it asks for.
    #[must_use]
    pub fn tells(&self, method: Method, params: Option<View<'_>>) -> bool {
        let text = |key| params?.get(key)?.as_str();
        match method {
            Method::ToolsListChanged => self.tools,
            Method::PromptsListChanged => self.prompts,
            Method::ResourcesListChanged => self.resources,
            Method::ResourceUpdated => text("uri").is_some_and(|uri| self.covers(&uri)),
            Method::TaskChanged => text("taskId").is_some_and(|task| self.tasks.contains(&*task)),
            Method::SubscriptionsAcknowledged | Method::Cancelled => true,
            _ => false,
        }
    }

    /// The filter as JSON, without what it does not ask for.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Writer::default();
        out.begin_object();
        let lists = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        for (key, _) in lists.iter().filter(|(_, is_on)| *is_on) {
            out.key(key);
            out.raw("true");
        }
        for (key, texts) in [
            ("resourceSubscriptions", &self.uris),
            ("taskIds", &self.tasks),
        ] {
            if texts.is_empty() {
                continue;
            }
            out.key(key);
            out.begin_array();
            for text in texts {
                out.string(text);
            }
            out.end_array();
        }
        out.end_object();
        out.into_text()
    }

    /// A change may be told for what is below a resource.
    pub(crate) fn covers(&self, uri: &str) -> bool {
        self.uris.iter().any(|asked| {
            let below = uri.strip_prefix(asked.as_str());
            below.is_some_and(|below| {
                below.is_empty() || asked.ends_with('/') || below.starts_with(['/', '#', '?'])
            })
        })
    }
}
