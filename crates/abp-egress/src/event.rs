//! Events: one for every connection or request, delivered without ever making the proxy wait.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use abp_policy::Rule;
use serde::Serialize;
use tokio::sync::mpsc;

/// The longest part of a host that an event repeats; hosts come from agents.
const SHOWN_CHARS: usize = 260;

/// One connection or request, told when it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressEvent {
    /// The form it had.
    pub kind: EgressKind,
    /// The host as it was asked for, on one line and shortened to 260 characters; the name of a route's
    /// target for routes; empty where no request was read.
    pub host: String,
    /// The port, where one was named.
    pub port: Option<u16>,
    /// The address that was dialed. Routes do not tell theirs.
    pub address: Option<IpAddr>,
    /// Whether it was allowed.
    pub verdict: EgressVerdict,
    /// The rule behind the verdict.
    pub rule: EgressRule,
    /// How it ended.
    pub outcome: EgressOutcome,
    /// Bytes towards the target: all bytes of a tunnel, the body of a request.
    pub bytes_up: u64,
    /// Bytes from the target: all bytes of a tunnel, the body of a response.
    pub bytes_down: u64,
    /// Microseconds from the request's head, or from the accepted connection where no head came, to
    /// the end.
    pub duration_us: u64,
}

impl EgressEvent {
    /// Whether it was allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdict == EgressVerdict::Allowed
    }
}

/// The form of a connection or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressKind {
    /// No request was understood.
    Unread,
    /// A CONNECT request whose content is not known, because it was refused or nothing was sent.
    Tunnel,
    /// A CONNECT tunnel with TLS inside.
    TlsTunnel,
    /// A CONNECT tunnel with something else than TLS inside.
    PlainTunnel,
    /// A plain HTTP request in absolute form.
    Http,
    /// A request to a route.
    Route,
}

/// Whether something was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressVerdict {
    /// It was let out.
    Allowed,
    /// It was not.
    Denied,
}

/// The end of a connection or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressOutcome {
    /// It was denied.
    Refused,
    /// It came to its regular end.
    Complete,
    /// The name could not be resolved, or no address of it could be connected to.
    Unreachable,
    /// A time-out cut it off.
    TimedOut,
    /// One side broke it off, or sent what is not HTTP.
    Broken,
    /// The response held the credential that was put in, and was cut off before it.
    Withheld,
    /// The sandbox's side went away, or the proxy was closed, before its end.
    Aborted,
}

/// The rule behind a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum EgressRule {
    /// A pattern of the policy allows or denies the target.
    Policy {
        /// The pattern and its place.
        policy: Rule,
    },
    /// A configured route allows the request.
    Route {
        /// Its name.
        name: String,
    },
    /// The target is spelled in a way that readers could understand differently.
    TargetSpelling {
        /// The objection.
        why: &'static str,
    },
    /// The host is an address that no pattern was written for.
    AddressNotListed,
    /// The port is neither 80 nor 443, and no pattern names it.
    PortNotListed {
        /// The port.
        port: u16,
    },
    /// An address is in a special range, and no pattern was written for it.
    SpecialAddress {
        /// The address.
        address: IpAddr,
        /// The range.
        range: &'static str,
    },
    /// The Host header is not the target's.
    HostHeader {
        /// The objection.
        why: &'static str,
    },
    /// The server name of the ClientHello is not the host of the CONNECT request.
    ServerName {
        /// The objection.
        why: &'static str,
        /// The server name, if there is one.
        found: Option<String>,
    },
    /// The tunnel does not carry TLS, and no pattern names its port, or it is 443.
    NotTls,
    /// The tunnel begins like TLS but not with a ClientHello that can be read.
    ClientHello,
    /// The request is none that the proxy serves.
    Request {
        /// The objection.
        why: &'static str,
    },
    /// The length of the request is ambiguous.
    Framing {
        /// The objection.
        why: &'static str,
    },
    /// The path could leave the route's base path.
    RoutePath {
        /// The objection.
        why: &'static str,
    },
    /// No route has this name.
    NoRoute,
    /// No complete request head came in time and within its bounds.
    Head {
        /// The objection.
        why: &'static str,
    },
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { policy } => policy.fmt(f),
            Self::Route { name } => write!(f, "route {name:?}"),
            Self::TargetSpelling { why }
            | Self::HostHeader { why }
            | Self::ServerName { why, .. }
            | Self::Request { why }
            | Self::Framing { why }
            | Self::RoutePath { why }
            | Self::Head { why } => f.write_str(why),
            Self::AddressNotListed => {
                f.write_str("addresses are refused unless allow_network lists them")
            }
            Self::PortNotListed { port } => {
                write!(f, "port {port} is refused unless allow_network names it")
            }
            Self::SpecialAddress { address, range } => write!(
                f,
                "address {address} ({range}) is refused unless allow_network lists it"
            ),
            Self::NotTls => f.write_str("only TLS may be tunneled to this port"),
            Self::ClientHello => f.write_str("the TLS ClientHello cannot be read"),
            Self::NoRoute => f.write_str("no route has this name"),
        }
    }
}

/// An item of [`EgressEvents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressReport {
    /// A connection or request has ended.
    Event(EgressEvent),
    /// So many events were lost since the last report, because too many waited to be read.
    Lost(u64),
}

/// The events of one proxy, in the order in which connections and requests ended.
#[derive(Debug)]
pub struct EgressEvents {
    queue: mpsc::Receiver<EgressEvent>,
    lost: Arc<AtomicU64>,
}

impl EgressEvents {
    /// The next report; none after the proxy was closed and everything was reported.
    pub async fn next(&mut self) -> Option<EgressReport> {
        if let Some(lost) = self.take_lost() {
            return Some(lost);
        }
        match self.queue.recv().await {
            Some(event) => Some(EgressReport::Event(event)),
            None => self.take_lost(),
        }
    }

    fn take_lost(&self) -> Option<EgressReport> {
        let lost = self.lost.swap(0, Ordering::AcqRel);
        (lost > 0).then_some(EgressReport::Lost(lost))
    }
}

/// The proxy's end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct EventSink {
    queue: mpsc::Sender<EgressEvent>,
    lost: Arc<AtomicU64>,
}

impl EventSink {
    pub(crate) fn new(capacity: usize) -> (Self, EgressEvents) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        let lost = Arc::new(AtomicU64::new(0));
        let events = EgressEvents {
            queue: receiver,
            lost: Arc::clone(&lost),
        };
        let sink = Self {
            queue: sender,
            lost,
        };
        (sink, events)
    }

    /// Begins an event.
    pub(crate) fn draft(&self) -> EventDraft {
        EventDraft {
            sink: self.clone(),
            bytes: Arc::default(),
            started: Instant::now(),
            event: Box::new(EgressEvent {
                kind: EgressKind::Unread,
                host: String::new(),
                port: None,
                address: None,
                verdict: EgressVerdict::Denied,
                rule: EgressRule::Head {
                    why: "no request was read",
                },
                outcome: EgressOutcome::Aborted,
                bytes_up: 0,
                bytes_down: 0,
                duration_us: 0,
            }),
        }
    }

    fn send(&self, event: EgressEvent) {
        if self.queue.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The bytes that went each way.
#[derive(Debug, Default)]
pub(crate) struct ByteCounts {
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

impl ByteCounts {
    pub(crate) fn total(&self) -> u64 {
        let (up, down) = (&self.up, &self.down);
        up.load(Ordering::Relaxed) + down.load(Ordering::Relaxed)
    }
}

/// An event that is not over. It is sent when it is dropped, so that aborted work is reported too.
#[derive(Debug)]
pub(crate) struct EventDraft {
    sink: EventSink,
    bytes: Arc<ByteCounts>,
    started: Instant,
    event: Box<EgressEvent>,
}

impl EventDraft {
    pub(crate) fn bytes(&self) -> Arc<ByteCounts> {
        Arc::clone(&self.bytes)
    }

    /// Counts the time from now.
    pub(crate) fn restart(&mut self) {
        self.started = Instant::now();
    }

    pub(crate) fn set_kind(&mut self, kind: EgressKind) {
        self.event.kind = kind;
    }

    pub(crate) fn set_target(&mut self, host: &str, port: Option<u16>) {
        let shown = host.chars().take(SHOWN_CHARS);
        self.event.host = shown.flat_map(char::escape_debug).collect();
        self.event.port = port;
    }

    pub(crate) fn set_address(&mut self, address: IpAddr) {
        self.event.address = Some(address);
    }

    pub(crate) fn allow(&mut self, rule: EgressRule) {
        self.event.verdict = EgressVerdict::Allowed;
        self.event.rule = rule;
    }

    pub(crate) fn deny(&mut self, rule: EgressRule) {
        self.event.verdict = EgressVerdict::Denied;
        self.event.rule = rule;
        self.event.outcome = EgressOutcome::Refused;
    }

    pub(crate) fn end(&mut self, outcome: EgressOutcome) {
        self.event.outcome = outcome;
    }
}

impl Drop for EventDraft {
    fn drop(&mut self) {
        let mut event = EgressEvent::clone(&self.event);
        event.bytes_up = self.bytes.up.load(Ordering::Relaxed);
        event.bytes_down = self.bytes.down.load(Ordering::Relaxed);
        event.duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sink.send(event);
    }
}
