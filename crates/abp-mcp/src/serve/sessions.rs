//! The sessions of clients with a handshake, between two requests.
//!
//! A session costs a connection with every server behind it, so no key may have too many: at its own limit
//! a key's next session takes the place of one that it has left alone, and is refused where it has left
//! none alone. Where everything is full, the key that has the most gives one up for a key that has fewer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::McpConnection;
use super::connection::lock;

/// A session that was not used for so long may be ended for another one.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLimits {
    /// Of all clients.
    pub(super) all: usize,
    /// A session that was not used for so long is ended.
    pub(super) idle: Duration,
}

/// Why there is no room for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSession {
    /// The principal uses as many as it may have.
    OfPrincipal,
    /// Everybody together has as many as there may be.
    OfAll,
}

/// The sessions that are held, and those that are being opened.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    held: BTreeMap<String, Held>,
    /// By principal; none that opens nothing.
    opening: BTreeMap<String, usize>,
}

struct Held {
    connection: McpConnection,
    principal: String,
    used: Instant,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Room for a session that is being opened; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Opening {
    sessions: Arc<Sessions>,
    principal: String,
}

impl Sessions {
    /// Takes room for a session, before anything is opened for it.
    pub(super) fn open(
        self: &Arc<Self>,
        principal: &str,
        most: usize,
        limits: SessionLimits,
    ) -> Result<Opening, NoSession> {
        let mut table = lock(&self.0);
        table.end_idle(limits.idle);
        if table.count(principal) >= most.max(1) {
            let mine = |held: &Held| held.principal == principal;
            if !table.end_one(LEFT_ALONE, mine) {
                return Err(NoSession::OfPrincipal);
            }
        }
        if table.total() >= limits.all {
            let (richest, count) = table.richest();
            let theirs = |held: &Held| held.principal == richest;
            if count <= table.count(principal) + 1 || !table.end_one(Duration::ZERO, theirs) {
                return Err(NoSession::OfAll);
            }
        }
        *table.opening.entry(principal.to_owned()).or_default() += 1;
        drop(table);
        Ok(Opening {
            sessions: Arc::clone(self),
            principal: principal.to_owned(),
        })
    }

    /// The connection of a session. A session of another principal does not exist.
    pub(super) fn get(&self, id: &str, principal: &str) -> Option<McpConnection> {
        let mut table = lock(&self.0);
        let held = table.held.get_mut(id);
        let held = held.filter(|held| held.principal == principal)?;
        held.used = Instant::now();
        Some(held.connection.clone())
    }

    pub(super) fn end(&self, id: &str) {
        if let Some(held) = lock(&self.0).held.remove(id) {
            held.connection.close();
        }
    }

    pub(super) fn end_all(&self) {
        for held in std::mem::take(&mut lock(&self.0).held).into_values() {
            held.connection.close();
        }
    }
}

impl Opening {
    /// Holds the session that was opened.
    pub(super) fn hold(self, id: &str, connection: McpConnection) {
        let held = Held {
            connection,
            principal: self.principal.clone(),
            used: Instant::now(),
        };
        lock(&self.sessions.0).held.insert(id.to_owned(), held);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut table = lock(&self.sessions.0);
        if let Some(count) = table.opening.get_mut(&self.principal) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                table.opening.remove(&self.principal);
            }
        }
    }
}

impl Table {
    fn total(&self) -> usize {
        self.held.len() + self.opening.values().sum::<usize>()
    }

    fn count(&self, principal: &str) -> usize {
        let held = self.held.values();
        let held = held.filter(|held| held.principal == principal).count();
        held + self.opening.get(principal).copied().unwrap_or_default()
    }

    /// The principal that holds the most, and how many those are.
    fn richest(&self) -> (String, usize) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for held in self.held.values() {
            *counts.entry(&held.principal).or_default() += 1;
        }
        let richest = counts.into_iter().max_by_key(|(_, count)| *count);
        richest.map_or_else(Default::default, |(name, count)| (name.to_owned(), count))
    }

    fn end_idle(&mut self, idle: Duration) {
        self.held.retain(|_, held| {
            let is_used = held.used.elapsed() < idle;
            if !is_used {
                held.connection.close();
            }
            is_used
        });
    }

    /// Ends the one of these sessions that was left alone for longest; `false` where none was for so long.
    fn end_one(&mut self, at_least: Duration, among: impl Fn(&Held) -> bool) -> bool {
        let these = self.held.iter().filter(|(_, held)| among(held));
        let oldest = these.min_by_key(|(_, held)| held.used);
        let oldest = oldest.filter(|(_, held)| held.used.elapsed() >= at_least);
        let Some(id) = oldest.map(|(id, _)| id.clone()) else {
            return false;
        };
        if let Some(held) = self.held.remove(&id) {
            held.connection.close();
        }
        true
    }
}
