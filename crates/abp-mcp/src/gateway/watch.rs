//! Being told of changes: by servers that tell of them, and by looking at those that do not.
//!
//! Nothing is looked at unless somebody wants to be told. A server that does not answer delays only
//! what is said of itself: each is looked at by a task of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::emulate::labelled;
use super::fleet::{Fleet, Slot, is_legacy};
use super::json;
use super::lists::LIST_DEADLINE;
use crate::capabilities::ServerFlag;
use crate::digest;
use crate::method::Method;
use crate::negotiate::Emulation;
use crate::refusal::RpcRefusal;
use crate::serve::{Change, McpAnswer, lock};
use crate::subscription::SubscriptionFilter;
use crate::upstream::{McpUpstream, McpUpstreamError, Pending};

/// The lists that are looked at, with what is told of them.
const LOOKED_AT: [(Method, Change); 4] = [
    (Method::ToolsList, Change::Tools),
    (Method::PromptsList, Change::Prompts),
    (Method::ResourcesList, Change::Resources),
    (Method::ResourceTemplatesList, Change::Resources),
];

/// What somebody is told of.
#[derive(Default)]
pub(super) struct Watches {
    resources: Mutex<BTreeMap<String, Watched>>,
    lists: Mutex<ListsWatched>,
}

/// A resource that somebody is told about.
struct Watched {
    by: usize,
    server: Arc<Slot>,
    told: Told,
}

/// How it is known that something changed.
enum Told {
    /// The server tells.
    ByServer { _listening: Option<Pending> },
    /// This end looks.
    ByLooking {
        _looking: Looking,
        _room: OwnedSemaphorePermit,
    },
}

#[derive(Default)]
struct ListsWatched {
    by: usize,
    looking: Vec<Looking>,
}

/// Looks at something from time to time until it is dropped.
struct Looking(AbortHandle);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Watches resources until it is dropped.
pub(super) struct Watching {
    fleet: Arc<Fleet>,
    uris: BTreeSet<String>,
}

/// Lists are looked at until it is dropped.
pub(super) struct ListListener(Arc<Fleet>);

/// What a resource looked like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Contents([u8; 32]),
    Gone,
}

impl Watched {
    fn answer(&self) -> McpAnswer {
        let emulation = match self.told {
            Told::ByServer { .. } => None,
            Told::ByLooking { .. } => Some(Emulation::Subscribe),
        };
        McpAnswer::Result(labelled("{}".to_owned(), emulation))
    }
}

impl Fleet {
    pub(super) async fn subscribe(self: &Arc<Self>, params: Option<&str>) -> McpAnswer {
        let Some(uri) = json::member(params, "uri") else {
            return McpAnswer::invalid("a subscription needs a uri");
        };
        let _turn = self.turn.acquire().await;
        if let Some(one) = lock(&self.watches.resources).get_mut(&uri) {
            one.by += 1;
            return one.answer();
        }
        for slot in self.owners(&uri).await {
            let told = match self.be_told(&slot, &uri).await {
                Ok(Some(told)) => told,
                Ok(None) => continue,
                Err(refused) => return refused,
            };
            let one = Watched {
                by: 1,
                server: slot,
                told,
            };
            let answer = one.answer();
            lock(&self.watches.resources).insert(uri, one);
            return answer;
        }
        McpAnswer::Refused(RpcRefusal::UnknownResource { uri })
    }

    pub(super) async fn unsubscribe(self: &Arc<Self>, params: Option<&str>) -> McpAnswer {
        let Some(uri) = json::member(params, "uri") else {
            return McpAnswer::invalid("a subscription needs a uri");
        };
        let _turn = self.turn.acquire().await;
        let last = {
            let mut watched = lock(&self.watches.resources);
            let one = watched.get_mut(&uri);
            let left = one.map(|one| {
                one.by = one.by.saturating_sub(1);
                one.by
            });
            match left {
                Some(0) => watched.remove(&uri),
                _ => None,
            }
        };
        let told_by_server = last.filter(|last| matches!(last.told, Told::ByServer { .. }));
        let upstream = told_by_server.and_then(|last| last.server.current());
        if let Some(upstream) = upstream.filter(is_legacy) {
            let params = json::object(&[("uri", &uri)]);
            let asking = upstream.call(Method::ResourcesUnsubscribe, Some(&params));
            // A server that does not stop tells what nobody is told of.
            drop(timeout(LIST_DEADLINE, asking).await);
        }
        McpAnswer::Result("{}".to_owned())
    }

    /// Sees to it that changes of a resource of a server are known; `None` where they cannot be.
    async fn be_told(&self, slot: &Arc<Slot>, uri: &str) -> Result<Option<Told>, McpAnswer> {
        let Some(upstream) = slot.current() else {
            return Ok(None);
        };
        if slot.has(ServerFlag::ResourcesSubscribe) {
            // Others wait for their turn meanwhile.
            let asking = timeout(LIST_DEADLINE, ask_to_be_told(&upstream, uri)).await;
            let listening = asking.ok().and_then(Result::ok);
            return Ok(listening.map(|_listening| Told::ByServer { _listening }));
        }
        let Some((rules, room)) = self.filling.subscribe() else {
            return Ok(None);
        };
        let Ok(_room) = Arc::clone(room).try_acquire_owned() else {
            let most = rules.max_resources;
            let full = format!("no more than {most} resources are looked at");
            return Err(McpAnswer::internal(full));
        };
        let Some(first @ Seen::Contents(_)) = look_at(&upstream, uri).await else {
            return Ok(None);
        };
        let resource = Resource {
            slot: Arc::clone(slot),
            uri: uri.to_owned(),
            changes: self.changes_sender(),
        };
        let looking = tokio::spawn(resource.look(first, rules.interval));
        Ok(Some(Told::ByLooking {
            _looking: Looking(looking.abort_handle()),
            _room,
        }))
    }

    /// Looks at lists whose servers do not tell of changes, where that is filled in.
    pub(super) fn listen_to_lists(self: &Arc<Self>) -> Option<ListListener> {
        let interval = self.filling.list_changed()?;
        let mut lists = lock(&self.watches.lists);
        lists.by += 1;
        if lists.by == 1 {
            let looking = self.slots.iter().map(|slot| {
                let looking = look_at_lists(Arc::clone(slot), self.changes_sender(), interval);
                Looking(tokio::spawn(looking).abort_handle())
            });
            lists.looking = looking.collect();
        }
        Some(ListListener(Arc::clone(self)))
    }
}

impl Drop for ListListener {
    fn drop(&mut self) {
        let mut lists = lock(&self.0.watches.lists);
        lists.by = lists.by.saturating_sub(1);
        if lists.by == 0 {
            lists.looking.clear();
        }
    }
}

impl Watching {
    /// Begins to watch. What cannot be watched is not told of.
    pub(super) fn new(fleet: Arc<Fleet>, uris: BTreeSet<String>) -> Self {
        let (subscribing, wanted) = (Arc::clone(&fleet), uris.clone());
        tokio::spawn(async move {
            for uri in wanted {
                let params = json::object(&[("uri", &uri)]);
                let answer = subscribing.subscribe(Some(&params)).await;
                if let McpAnswer::Refused(why) = answer {
                    tracing::debug!(target: "abp.mcp", uri, %why, "a resource is not watched");
                }
            }
        });
        Self { fleet, uris }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (fleet, uris) = (Arc::clone(&self.fleet), std::mem::take(&mut self.uris));
        runtime.spawn(async move {
            for uri in uris {
                let params = json::object(&[("uri", &uri)]);
                fleet.unsubscribe(Some(&params)).await;
            }
        });
    }
}

async fn ask_to_be_told(
    upstream: &McpUpstream,
    uri: &str,
) -> Result<Option<Pending>, McpUpstreamError> {
    if is_legacy(upstream) {
        let params = json::object(&[("uri", uri)]);
        upstream
            .call(Method::ResourcesSubscribe, Some(&params))
            .await?;
        return Ok(None);
    }
    let filter = SubscriptionFilter {
        uris: [uri.to_owned()].into(),
        ..SubscriptionFilter::default()
    };
    let params = format!("{{\"notifications\":{}}}", filter.to_json());
    let listening = upstream
        .request(Method::SubscriptionsListen, Some(&params))
        .await?;
    Ok(Some(listening))
}

/// A resource that is looked at.
struct Resource {
    slot: Arc<Slot>,
    uri: String,
    changes: broadcast::Sender<Change>,
}

impl Resource {
    async fn look(self, mut before: Seen, every: Duration) {
        let mut ticks = ticks(every);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let Some(upstream) = self.slot.current() else {
                continue;
            };
            if let Some(now) = look_at(&upstream, &self.uri).await
                && now != before
            {
                before = now;
                let uri = self.uri.clone();
                // Where nobody listens there is nobody to tell.
                drop(self.changes.send(Change::Resource { uri }));
            }
        }
    }
}

/// Looks at a resource; `None` where the server does not say.
async fn look_at(upstream: &McpUpstream, uri: &str) -> Option<Seen> {
    let params = json::object(&[("uri", uri)]);
    let reading = upstream.call(Method::ResourcesRead, Some(&params));
    match timeout(LIST_DEADLINE, reading).await {
        Ok(Ok(result)) => {
            let contents = json::read(Some(&result), |result| {
                result.get("contents").map(digest::of)
            });
            contents.flatten().map(Seen::Contents)
        }
        Ok(Err(McpUpstreamError::Answered(_))) => Some(Seen::Gone),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Looks at the lists of a server that does not tell of changes. What clients were given before counts
/// as seen.
async fn look_at_lists(slot: Arc<Slot>, changes: broadcast::Sender<Change>, every: Duration) {
    let known = LOOKED_AT.iter().filter_map(|(method, _)| {
        let kept = slot.kept_digest(*method)?;
        Some((*method, kept))
    });
    let mut seen: BTreeMap<_, _> = known.collect();
    let mut ticks = ticks(every);
    loop {
        ticks.tick().await;
        let mut changed: Vec<Change> = Vec::new();
        for (method, change) in LOOKED_AT {
            let Some(now) = slot.look_at_list(method).await else {
                continue;
            };
            let before = seen.insert(method, now);
            if before.is_some_and(|before| before != now) && !changed.contains(&change) {
                changed.push(change);
            }
        }
        for change in changed {
            // Where nobody listens there is nobody to tell.
            drop(changes.send(change));
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
