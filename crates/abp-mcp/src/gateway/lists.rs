//! What servers list, merged and kept for routing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abp_json::{View, Writer};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use super::fleet::{Fleet, Slot};
use super::tools::ServerTool;
use super::{McpScope, json};
use crate::capabilities::ServerFlag;
use crate::digest;
use crate::method::Method;
use crate::negotiate::{ToolPrints, route_names};
use crate::param_headers::ParamHeaders;
use crate::serve::{McpAnswer, ServedCall, lock};
use crate::upstream::McpUpstreamError;

/// How long a server may take to list, whatever it may take otherwise.
pub(super) const LIST_DEADLINE: Duration = Duration::from_secs(10);
/// How long a server that could not list is taken to have nothing.
const FAILED: Duration = Duration::from_secs(30);
/// The most that is taken of one server's list.
const MAX_PAGES: usize = 64;
const MAX_ITEMS: usize = 4_096;
/// The longest name or address of something that is listed, in bytes.
const MAX_NAME: usize = 2_048;
/// The longest name of a tool or a prompt, in bytes; the protocol recommends 128 characters.
const MAX_TOOL_NAME: usize = 512;

/// What a server lists.
#[derive(Default)]
pub(super) struct Lists {
    kept: Mutex<BTreeMap<Method, Kept>>,
    prints: Mutex<Option<ToolPrints>>,
}

struct Kept {
    items: Items,
    /// A failure is forgotten then.
    until: Option<Instant>,
}

type Items = Arc<Vec<Arc<Item>>>;

/// Something listed: what it is called, and all that is said of it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) key: String,
    json: String,
    /// The parameters of a tool that headers repeat.
    pub(super) params: ParamHeaders,
}

/// Something listed, with the server that has it and what clients call it.
pub(super) struct Routed {
    pub(super) slot: Arc<Slot>,
    pub(super) item: Arc<Item>,
    pub(super) shown: String,
}

impl Routed {
    /// The tool that it is.
    pub(super) fn tool(&self) -> ServerTool {
        ServerTool {
            server: self.slot.server.name.clone(),
            tool: self.item.key.clone(),
        }
    }
}

impl McpScope {
    fn shows(&self, tool: &Routed) -> bool {
        let desk = self.tools.as_ref();
        desk.is_none_or(|desk| desk.shows(&tool.tool()))
    }
}

impl Lists {
    pub(super) fn forget_all(&self) {
        lock(&self.kept).clear();
    }

    fn get(&self, method: Method) -> Option<Items> {
        let kept = lock(&self.kept);
        let kept = kept.get(&method)?;
        let is_fresh = kept.until.is_none_or(|until| Instant::now() < until);
        is_fresh.then(|| Arc::clone(&kept.items))
    }

    fn keep(&self, method: Method, items: Vec<Arc<Item>>, until: Option<Instant>) -> Items {
        let items = Arc::new(items);
        let kept = Kept {
            items: Arc::clone(&items),
            until,
        };
        lock(&self.kept).insert(method, kept);
        items
    }

    /// Says what became different since the tools were last looked at.
    fn compare(&self, server: &str, prints: ToolPrints) {
        let mut before = lock(&self.prints);
        if let Some(drift) = before.as_ref().map(|before| before.drift(&prints))
            && !drift.changed.is_empty()
        {
            tracing::warn!(target: "abp.mcp", server, changed = ?drift.changed, "tools are described otherwise than before");
        }
        *before = Some(prints);
    }
}

/// What a family of lists is about.
struct Family {
    /// The member with the items.
    member: &'static str,
    /// The member of an item that says what it is called.
    key: &'static str,
    flag: ServerFlag,
    changes: ServerFlag,
}

fn family(method: Method) -> Option<Family> {
    let resources = (ServerFlag::Resources, ServerFlag::ResourcesListChanged);
    let (key, (flag, changes)) = match method {
        Method::ToolsList => ("name", (ServerFlag::Tools, ServerFlag::ToolsListChanged)),
        Method::PromptsList => (
            "name",
            (ServerFlag::Prompts, ServerFlag::PromptsListChanged),
        ),
        Method::ResourcesList => ("uri", resources),
        Method::ResourceTemplatesList => ("uriTemplate", resources),
        _ => return None,
    };
    Some(Family {
        member: method.listed_member()?,
        key,
        flag,
        changes,
    })
}

/// Whether what is kept of a list will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// It will.
    Kept,
    /// Only where the server tells of changes.
    Current,
}

impl Fleet {
    /// Answers a request for a list: everything on one page.
    pub(super) async fn list(self: &Arc<Self>, call: &ServedCall, scope: &McpScope) -> McpAnswer {
        if json::member(call.params.as_deref(), "cursor").is_some() {
            return McpAnswer::invalid("no list has a second page");
        }
        let Some(family) = family(call.method) else {
            return McpAnswer::internal("this is no list");
        };
        let mut out = Writer::default();
        out.begin_object();
        out.key(family.member);
        out.begin_array();
        for item in self.routed(call.method, Freshness::Current).await {
            if call.method == Method::ToolsList && !scope.shows(&item) {
                continue;
            }
            let Routed { item, shown, .. } = item;
            if shown == item.key {
                out.raw(&item.json);
                continue;
            }
            let shown = json::text(&shown);
            let renamed = json::read(Some(&item.json), |object| {
                json::replaced(object, &[(family.key, Some(&shown))])
            });
            out.raw(renamed.as_ref().unwrap_or(&item.json));
        }
        out.end_array();
        out.end_object();
        McpAnswer::Result(out.into_text())
    }

    /// The server that has what a client calls this.
    pub(super) async fn find(self: &Arc<Self>, method: Method, shown: &str) -> Option<Routed> {
        for freshness in [Freshness::Kept, Freshness::Current] {
            let routed = self.routed(method, freshness).await;
            if let Some(found) = routed.into_iter().find(|one| one.shown == shown) {
                return Some(found);
            }
        }
        None
    }

    /// The servers that may have a resource, the likeliest first.
    pub(super) async fn owners(self: &Arc<Self>, uri: &str) -> Vec<Arc<Slot>> {
        let mut owners: Vec<Arc<Slot>> = Vec::new();
        let mut add = |slot: &Arc<Slot>| {
            if !owners.iter().any(|one| Arc::ptr_eq(one, slot)) {
                owners.push(Arc::clone(slot));
            }
        };
        let listed = self.routed(Method::ResourcesList, Freshness::Kept).await;
        for one in listed.iter().filter(|one| one.item.key == uri) {
            add(&one.slot);
        }
        let templates = self
            .routed(Method::ResourceTemplatesList, Freshness::Kept)
            .await;
        for one in templates.iter().filter(|one| fits(&one.item.key, uri)) {
            add(&one.slot);
        }
        for slot in self
            .slots
            .iter()
            .filter(|slot| slot.has(ServerFlag::Resources))
        {
            add(slot);
        }
        owners
    }

    async fn routed(self: &Arc<Self>, method: Method, freshness: Freshness) -> Vec<Routed> {
        let mut listed = Vec::new();
        let mut listing = JoinSet::new();
        for slot in &self.slots {
            if let Some(kept) = slot.kept(method, freshness) {
                listed.push((Arc::clone(slot), kept));
                continue;
            }
            let (fleet, slot) = (Arc::clone(self), Arc::clone(slot));
            listing.spawn(async move {
                let items = fleet.items(&slot, method, freshness).await;
                (slot, items)
            });
        }
        listed.extend(listing.join_all().await);
        listed.sort_by(|one, other| one.0.server.name.cmp(&other.0.server.name));
        match method {
            Method::ToolsList | Method::PromptsList => named(&listed),
            _ => addressed(&listed),
        }
    }

    async fn items(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        method: Method,
        freshness: Freshness,
    ) -> Items {
        let Some(family) = family(method) else {
            return Arc::default();
        };
        // A server that is down for the moment has nothing.
        if self.upstream(slot).await.is_err() || !slot.has(family.flag) {
            return Arc::default();
        }
        if let Some(kept) = slot.kept(method, freshness) {
            return kept;
        }
        match tokio::time::timeout(LIST_DEADLINE, slot.fetch(method, &family)).await {
            Ok(Ok(items)) => slot.lists.keep(method, items, None),
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                let server = &slot.server.name;
                tracing::warn!(target: "abp.mcp", server, %method, %why, "an MCP server does not list");
                let until = Instant::now() + FAILED;
                slot.lists.keep(method, Vec::new(), Some(until))
            }
        }
    }
}

impl Slot {
    /// What is kept of a list of a server that is there, where it will do.
    fn kept(&self, method: Method, freshness: Freshness) -> Option<Items> {
        let changes = family(method)?.changes;
        self.current()?;
        let may_be_kept = freshness == Freshness::Kept || self.has(changes);
        self.lists.get(method).filter(|_| may_be_kept)
    }

    /// The digest of a list as it was given to clients.
    pub(super) fn kept_digest(&self, method: Method) -> Option<[u8; 32]> {
        self.lists.get(method).map(|items| digest_of(&items))
    }

    /// Looks at a list that the server has and does not tell changes of; `None` where it does not say.
    pub(super) async fn look_at_list(&self, method: Method) -> Option<[u8; 32]> {
        let family = family(method)?;
        if !self.has(family.flag) || self.has(family.changes) {
            return None;
        }
        let fetched = tokio::time::timeout(LIST_DEADLINE, self.fetch(method, &family)).await;
        let items = self.lists.keep(method, fetched.ok()?.ok()?, None);
        Some(digest_of(&items))
    }

    /// All pages of a list, as far as they are taken.
    async fn fetch(
        &self,
        method: Method,
        family: &Family,
    ) -> Result<Vec<Arc<Item>>, McpUpstreamError> {
        let ended = || McpUpstreamError::Ended("it is gone".to_owned());
        let upstream = self.current().ok_or_else(ended)?;
        let mut items = Vec::new();
        let mut prints = ToolPrints::default();
        let mut seen = BTreeSet::new();
        let mut params = None;
        for _ in 0..MAX_PAGES {
            let page = upstream.call(method, params.as_deref()).await?;
            let cursor = json::read(Some(&page), |page| {
                prints.add(page);
                let listed = page.get(family.member).into_iter().flat_map(View::items);
                let room = MAX_ITEMS.saturating_sub(items.len());
                items.extend(
                    listed
                        .filter_map(|one| self.admit(method, family, one))
                        .take(room),
                );
                let cursor = page.get("nextCursor").and_then(View::as_str);
                cursor.map(String::from)
            });
            // A page that was there before would be there again.
            match cursor
                .flatten()
                .filter(|cursor| seen.insert(cursor.clone()))
            {
                Some(cursor) => params = Some(json::object(&[("cursor", &cursor)])),
                None => break,
            }
        }
        if method == Method::ToolsList {
            self.lists.compare(&self.server.name, prints);
        }
        Ok(items)
    }

    fn admit(&self, method: Method, family: &Family, one: View<'_>) -> Option<Arc<Item>> {
        let key = one.get(family.key).and_then(View::as_str)?.into_owned();
        let most = match family.key {
            "name" => MAX_TOOL_NAME,
            _ => MAX_NAME,
        };
        if let Some(problem) = unusable(&key, most) {
            let (server, family) = (&self.server.name, family.member);
            tracing::warn!(target: "abp.mcp", server, family, problem, "a server's name for something is refused");
            return None;
        }
        let is_tool = method == Method::ToolsList;
        let is_admitted = !is_tool || self.server.admits(&key);
        let params = || match is_tool {
            // Over pipes headers mean nothing, so neither does a wrong one.
            true => ParamHeaders::of(one).unwrap_or_default(),
            false => ParamHeaders::default(),
        };
        is_admitted.then(|| {
            Arc::new(Item {
                key,
                json: one.raw().to_owned(),
                params: params(),
            })
        })
    }
}

/// Why something cannot be listed under its name. A name is shown to people, written to logs and made into
/// names of other protocols.
fn unusable(name: &str, most: usize) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > most {
        Some("it is too long")
    } else if name.chars().any(|c| c.is_control() || is_direction(c)) {
        Some("it holds control characters")
    } else {
        None
    }
}

/// Characters that change the direction in which text is shown, and with it what people read.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The digest of a list, in which neither order nor spelling counts.
fn digest_of(items: &[Arc<Item>]) -> [u8; 32] {
    let parts = items.iter();
    let parts: BTreeSet<_> = parts
        .filter_map(|item| json::read(Some(&item.json), digest::of))
        .collect();
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

type Listed = [(Arc<Slot>, Items)];

/// Names are told apart by their servers, where two have the same.
fn named(listed: &Listed) -> Vec<Routed> {
    let names: Vec<_> = listed
        .iter()
        .map(|(slot, items)| {
            let names = items.iter().map(|item| item.key.clone());
            (slot.server.name.as_str(), names.collect())
        })
        .collect();
    let mut shown: BTreeMap<_, _> = route_names(&names)
        .into_iter()
        .map(|one| ((one.upstream, one.name), one.shown))
        .collect();
    let mut routed = Vec::new();
    for (slot, items) in listed {
        for item in items.iter() {
            // A server that lists a name twice has it once.
            let key = (slot.server.name.clone(), item.key.clone());
            if let Some(shown) = shown.remove(&key) {
                routed.push(Routed {
                    slot: Arc::clone(slot),
                    item: Arc::clone(item),
                    shown,
                });
            }
        }
    }
    routed
}

/// An address is the same whoever has it: the first server by name has it.
fn addressed(listed: &Listed) -> Vec<Routed> {
    let mut seen = BTreeSet::new();
    let mut routed = Vec::new();
    for (slot, items) in listed {
        for item in items.iter().filter(|item| seen.insert(item.key.clone())) {
            routed.push(Routed {
                slot: Arc::clone(slot),
                item: Arc::clone(item),
                shown: item.key.clone(),
            });
        }
    }
    routed
}

/// Whether an address may come from a template: the texts between its expressions are there, in
/// order.
fn fits(template: &str, uri: &str) -> bool {
    let mut rest = uri;
    let mut parts = template.split('{');
    let Some(after) = parts.next().and_then(|first| rest.strip_prefix(first)) else {
        return false;
    };
    rest = after;
    for part in parts {
        let literal = part.split_once('}').map_or("", |(_, literal)| literal);
        match rest.find(literal) {
            Some(at) => rest = rest.get(at + literal.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    template.ends_with('}') || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOOL_NAME, fits, unusable};

    #[test]
    fn names_that_deceive_people_or_logs_are_refused() {
        for good in ["read", "files__read", "Grüße", "a/b.c-d e"] {
            assert_eq!(unusable(good, MAX_TOOL_NAME), None, "{good:?}");
        }
        let long = "x".repeat(MAX_TOOL_NAME + 1);
        for bad in [
            "",
            "a\nb",
            "a\u{1b}[2Jb",
            "a\u{0}",
            "a\u{7f}",
            "read\u{202e}txt",
            &long,
        ] {
            assert!(unusable(bad, MAX_TOOL_NAME).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn templates_fit_addresses() {
        let cases = [
            ("test://static", "test://static", true),
            ("test://static", "test://static/more", false),
            ("test://{id}/data", "test://7/data", true),
            ("test://{id}/data", "test://7/other", false),
            ("test://{id}/data", "else://7/data", false),
            ("file:///{+path}", "file:///a/b.txt", true),
        ];
        for (template, uri, expected) in cases {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        }
    }
}
