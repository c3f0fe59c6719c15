//! Recognising a dialect.
//!
//! The route says it outright. Without one, host, headers and body are weighed: every sign supports
//! one dialect with a weight between 0 and 1, and signs are combined by Dempster's rule, so that
//! signs for the same dialect add up and signs for two dialects take confidence from each other.

mod body;
mod kind;

use std::fmt;

use abp_json::View;

pub use kind::DocumentKind;

use crate::{Dialect, WireFamily};

/// What is known of an exchange. Nothing has to be known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signals<'s> {
    /// The path of the request, with or without a query.
    pub route: Option<&'s str>,
    /// The host the request is for, with or without a port.
    pub host: Option<&'s str>,
    /// The request's headers.
    pub headers: &'s [(&'s str, &'s str)],
    /// The body of a request or an answer, or the data of a stream's event.
    pub body: Option<View<'s>>,
}

/// A dialect, and why it is thought to be that one.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// The dialect.
    pub dialect: Dialect,
    /// From 0, a guess, to 1, certain.
    pub confidence: f64,
    /// The signs of it, the strongest first.
    pub reasons: Vec<DetectionReason>,
    /// The next best dialect of another family, if anything speaks for one.
    pub runner_up: Option<Dialect>,
}

/// A sign of a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetectionReason {
    /// The route ends like this.
    Route(&'static str),
    /// The host ends like this.
    Host(&'static str),
    /// There is such a header.
    Header(&'static str),
    /// The model's name starts like this.
    Model(&'static str),
    /// The body has this.
    Body(&'static str),
}

impl fmt::Display for DetectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(end) => write!(f, "the route ends with {end}"),
            Self::Host(end) => write!(f, "the host is {end}"),
            Self::Header(name) => write!(f, "there is a header {name}"),
            Self::Model(start) => write!(f, "the model's name starts with {start}"),
            Self::Body(what) => write!(f, "the body has {what}"),
        }
    }
}

/// Ends of routes. A route tells the family; who speaks chat completions is left to host and headers.
const ROUTES: [(&str, Dialect); 9] = [
    ("/chat/completions", Dialect::OpenAi),
    ("/responses", Dialect::Codex),
    ("/responses/compact", Dialect::Codex),
    ("/responses/input_tokens", Dialect::Codex),
    ("/messages", Dialect::Claude),
    ("/messages/count_tokens", Dialect::Claude),
    (":generateContent", Dialect::Gemini),
    (":streamGenerateContent", Dialect::Gemini),
    (":countTokens", Dialect::Gemini),
];

const HOSTS: [(&str, Dialect, f64); 9] = [
    ("api.anthropic.com", Dialect::Claude, 0.9),
    ("generativelanguage.googleapis.com", Dialect::Gemini, 0.9),
    ("aiplatform.googleapis.com", Dialect::Gemini, 0.6),
    ("moonshot.ai", Dialect::Kimi, 0.9),
    ("moonshot.cn", Dialect::Kimi, 0.9),
    ("api.kimi.com", Dialect::Kimi, 0.9),
    ("githubcopilot.com", Dialect::Copilot, 0.9),
    ("chatgpt.com", Dialect::Codex, 0.6),
    ("api.openai.com", Dialect::OpenAi, 0.4),
];

const HEADERS: [(&str, Dialect, f64); 11] = [
    ("anthropic-version", Dialect::Claude, 0.9),
    ("anthropic-beta", Dialect::Claude, 0.8),
    ("x-api-key", Dialect::Claude, 0.4),
    ("x-goog-api-key", Dialect::Gemini, 0.8),
    ("x-goog-api-client", Dialect::Gemini, 0.6),
    ("copilot-integration-id", Dialect::Copilot, 0.9),
    ("copilot-vision-request", Dialect::Copilot, 0.9),
    ("x-github-token", Dialect::Copilot, 0.4),
    ("chatgpt-account-id", Dialect::Codex, 0.6),
    ("openai-organization", Dialect::OpenAi, 0.4),
    ("openai-project", Dialect::OpenAi, 0.4),
];

/// Recognises dialects.
#[derive(Debug, Clone, Copy, Default)]
pub struct DialectDetector;

impl DialectDetector {
    /// Tells the dialect of an exchange; `None` where nothing speaks for any.
    #[must_use]
    pub fn detect(signals: &Signals<'_>) -> Option<Detection> {
        let mut scales = Scales::default();
        if let Some(host) = signals.host {
            weigh_host(host, &mut scales);
        }
        for (name, _) in signals.headers {
            weigh_header(name, &mut scales);
        }
        if let Some((end, dialect)) = signals.route.and_then(route) {
            return Some(scales.routed(end, dialect));
        }
        if let Some(root) = signals.body {
            body::weigh(root, &mut scales);
        }
        scales.verdict()
    }

    /// Tells what a document of a dialect is.
    ///
    /// A document that shows no sign of another kind counts as a request. Gemini's stream events
    /// are whole answers, so they count as such.
    #[must_use]
    pub fn detect_kind(document: View<'_>, dialect: Dialect) -> DocumentKind {
        kind::of(document, dialect.family())
    }
}

/// Whether an object has a member that is not `null`.
fn has(object: View<'_>, key: &str) -> bool {
    object.get(key).is_some_and(|value| !value.is_null())
}

fn route(route: &str) -> Option<(&'static str, Dialect)> {
    let path = route.split('?').next()?.trim_end_matches('/');
    ROUTES.into_iter().find(|(end, _)| path.ends_with(end))
}

fn weigh_host(host: &str, scales: &mut Scales) {
    let name = host.split(':').next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    for (end, dialect, weight) in HOSTS {
        if name.ends_with(end) {
            scales.add(dialect, weight, DetectionReason::Host(end));
        }
    }
}

fn weigh_header(name: &str, scales: &mut Scales) {
    for (known, dialect, weight) in HEADERS {
        if name.eq_ignore_ascii_case(known) {
            scales.add(dialect, weight, DetectionReason::Header(known));
        }
    }
}

/// What speaks for which dialect.
#[derive(Debug, Default)]
struct Scales {
    signs: Vec<Sign>,
}

#[derive(Debug, Clone, Copy)]
struct Sign {
    dialect: Dialect,
    weight: f64,
    reason: DetectionReason,
}

impl Scales {
    /// Adds a sign. However often it is found, it counts once: a long conversation is not surer
    /// than a short one.
    fn add(&mut self, dialect: Dialect, weight: f64, reason: DetectionReason) {
        if self.signs.iter().all(|sign| sign.reason != reason) {
            self.signs.push(Sign {
                dialect,
                weight,
                reason,
            });
        }
    }

    fn routed(&self, end: &'static str, dialect: Dialect) -> Detection {
        let mut reasons = vec![DetectionReason::Route(end)];
        let dialect = self.speaker(dialect);
        reasons.extend(self.reasons(|sign| sign.dialect == dialect));
        Detection {
            dialect,
            confidence: 1.0,
            reasons,
            runner_up: None,
        }
    }

    fn verdict(&self) -> Option<Detection> {
        let mut families = [
            Dialect::OpenAi,
            Dialect::Claude,
            Dialect::Gemini,
            Dialect::Codex,
        ]
        .map(|dialect| {
            (
                dialect,
                self.support(|sign| sign.family() == dialect.family()),
            )
        });
        families.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let [(best, support), (next, opposing), ..] = families;
        if support == 0.0 {
            return None;
        }
        let dialect = self.speaker(best);
        Some(Detection {
            dialect,
            confidence: support * (1.0 - opposing) / (1.0 - support * opposing),
            reasons: self.reasons(|sign| sign.family() == best.family()),
            runner_up: (opposing > 0.0).then_some(next),
        })
    }

    /// Tells who speaks a dialect. Kimi and Copilot speak all of chat completions, so a sign of
    /// theirs settles it, whatever else speaks for OpenAI.
    fn speaker(&self, dialect: Dialect) -> Dialect {
        if dialect.family() != WireFamily::Chat {
            return dialect;
        }
        let kimi = self.support(|sign| sign.dialect == Dialect::Kimi);
        let copilot = self.support(|sign| sign.dialect == Dialect::Copilot);
        if kimi == 0.0 && copilot == 0.0 {
            Dialect::OpenAi
        } else if kimi >= copilot {
            Dialect::Kimi
        } else {
            Dialect::Copilot
        }
    }

    /// How much speaks for something; never all of it, so that two of them can be weighed.
    fn support(&self, counts: impl Fn(&Sign) -> bool) -> f64 {
        let signs = self.signs.iter().filter(|sign| counts(sign));
        let doubt: f64 = signs.map(|sign| 1.0 - sign.weight).product();
        (1.0 - doubt).min(0.999)
    }

    fn reasons(&self, counts: impl Fn(&Sign) -> bool) -> Vec<DetectionReason> {
        let mut signs: Vec<_> = self.signs.iter().filter(|sign| counts(sign)).collect();
        signs.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        signs.into_iter().map(|sign| sign.reason).collect()
    }
}

impl Sign {
    fn family(&self) -> WireFamily {
        self.dialect.family()
    }
}
