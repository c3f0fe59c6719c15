//! What is kept of one exchange for later ones: reasoning that only its vendor can read, and answers
//! that a caller goes on from.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Kind, Limits, Tape, View, Writer};
use abp_plan::reasoning_to_find;
use abp_store::{KeptAnswer, ReasoningEntry};
use abp_translate::{KeptReasoning, Recovered};
use bytes::Bytes;
use memchr::memmem::Finder;

use crate::Principal;
use crate::ask::Ask;
use crate::gateway::Shared;
use crate::lock::lock;
use crate::route::{Choice, Member};
use crate::scan::Scan;
use crate::tally::now;

/// What was told to the store and may not be in it yet: a caller's next request can be quicker than the
/// disk.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    answers: Mutex<HashMap<(String, String), KeptAnswer>>,
    reasoning: Mutex<HashMap<ReasoningKey, ReasoningEntry>>,
}

/// Whose it is, the vendor's and the model's that wants it back, and the call it led to.
type ReasoningKey = [String; 4];

impl Pending {
    fn answers(&self) -> MutexGuard<'_, HashMap<(String, String), KeptAnswer>> {
        lock(&self.answers)
    }

    fn reasoning(&self) -> MutexGuard<'_, HashMap<ReasoningKey, ReasoningEntry>> {
        lock(&self.reasoning)
    }
}

fn reasoning_key(entry: &ReasoningEntry) -> ReasoningKey {
    let ReasoningEntry {
        principal,
        vendor,
        model,
        call_id,
        json: _,
    } = entry;
    [principal, vendor, model, call_id].map(String::clone)
}

/// How a request goes on from a kept answer.
pub(crate) enum Continued {
    /// With all that was said before, which we keep.
    Expanded(Bytes),
    /// As it is, at the upstream whose vendor keeps the answer.
    AtVendor(String),
}

/// Keeps things of one exchange.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    principal: Arc<Principal>,
    member: Arc<Member>,
    vendor: Dialect,
    /// The model as the caller named it, and as the vendor knows it.
    model: String,
    vendors_model: String,
    /// The vendor keeps answers of the caller's dialect itself, whatever name its model has here.
    at_vendor: bool,
    /// What the caller asked, where its answer is to be kept.
    request: Option<Bytes>,
    previous: Option<String>,
}

impl Keeper {
    pub(crate) fn new(shared: &Arc<Shared>, ask: &Ask, scan: &Scan, choice: &Choice) -> Self {
        let keeps_answers = scan.keep && ask.dialect.family() == WireFamily::Responses;
        Self {
            shared: Arc::clone(shared),
            principal: Arc::clone(ask.principal()),
            member: Arc::clone(&choice.member),
            vendor: choice.dialect,
            model: scan.model.clone(),
            vendors_model: choice.model.clone(),
            at_vendor: choice.dialect == ask.dialect,
            request: keeps_answers.then(|| ask.body.clone()),
            previous: scan.previous.clone(),
        }
    }

    pub(crate) fn wants_answer(&self) -> bool {
        self.request.is_some()
    }

    /// Keeps reasoning by the calls it led to.
    pub(crate) fn reasoning(&self, kept: Vec<(String, KeptReasoning)>) {
        let entries: Vec<ReasoningEntry> = kept
            .into_iter()
            .filter_map(|(call_id, kept)| {
                Some(ReasoningEntry {
                    principal: self.principal.id.clone(),
                    vendor: self.vendor.as_str().to_owned(),
                    model: self.vendors_model.clone(),
                    call_id,
                    json: serde_json::to_string(&kept).ok()?,
                })
            })
            .collect();
        if entries.is_empty() || !wants_reasoning(self.vendor) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let keys: Vec<_> = entries.iter().map(reasoning_key).collect();
        let named = keys.iter().cloned().zip(entries.iter().cloned());
        shared.pending.reasoning().extend(named);
        let tasks = shared.tasks.clone();
        tasks.spawn(async move {
            if let Err(error) = shared.store.keep_reasoning(entries).await {
                tracing::warn!(target: "abp.gateway", %error, "reasoning was not kept");
            }
            let mut pending = shared.pending.reasoning();
            for key in &keys {
                pending.remove(key);
            }
        });
    }

    /// Keeps an answer that came in one piece.
    pub(crate) fn whole(self, answer: &[u8]) {
        if self.wants_answer()
            && let Ok(answer) = std::str::from_utf8(answer)
        {
            self.answer(answer);
        }
    }

    /// Remembers where an answer is that its vendor keeps.
    pub(crate) fn native(self, id: &str) {
        if self.wants_answer() {
            let vendors = self.kept(id);
            self.store(vendors);
        }
    }

    /// Keeps an answer, or where it is.
    pub(crate) fn answer(self, answer: &str) {
        let Some(request) = &self.request else {
            return;
        };
        let Some(id) = member_text(answer, "id") else {
            return;
        };
        if self.at_vendor {
            return self.native(&id);
        }
        let ours = KeptAnswer {
            native: false,
            input_items: input_items(request),
            answer: answer.to_owned(),
            ..self.kept(&id)
        };
        self.store(ours);
    }

    /// What is kept of an answer that its vendor has.
    fn kept(&self, id: &str) -> KeptAnswer {
        KeptAnswer {
            id: id.to_owned(),
            principal: self.principal.id.clone(),
            upstream: self.member.name().to_owned(),
            native: true,
            model: self.model.clone(),
            created_at: now(),
            input_items: String::new(),
            answer: String::new(),
            previous: self.previous.clone(),
        }
    }

    fn store(self, kept: KeptAnswer) {
        self.shared.keep(kept);
    }
}

impl Shared {
    /// Keeps an answer, or where something is, for later requests of the same key.
    pub(crate) fn keep(self: &Arc<Self>, kept: KeptAnswer) {
        let shared = Arc::clone(self);
        let key = (kept.principal.clone(), kept.id.clone());
        shared.pending.answers().insert(key.clone(), kept.clone());
        let tasks = shared.tasks.clone();
        tasks.spawn(async move {
            if let Err(error) = shared.store.keep_answer(kept).await {
                tracing::warn!(target: "abp.gateway", %error, "an answer was not kept");
            }
            shared.pending.answers().remove(&key);
        });
    }

    /// The reasoning that a request lacks and its upstream wants.
    pub(crate) async fn recovered(
        &self,
        ask: &Ask,
        choice: &Choice,
    ) -> Result<Recovered, AbpError> {
        let mut recovered = Recovered::default();
        let (from, to) = (ask.dialect, choice.dialect);
        if from == to || !wants_reasoning(to) || !holds_calls(&ask.body) {
            return Ok(recovered);
        }
        let calls = reasoning_to_find(ask.asked(), to)?;
        if calls.is_empty() {
            return Ok(recovered);
        }
        let principal = &ask.principal().id;
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        let mut found = self.store.reasoning(principal, to.as_str(), &calls).await?;
        {
            let pending = self.pending.reasoning();
            let key =
                |call: &&str| [principal, to.as_str(), &choice.model, call].map(str::to_owned);
            found.extend(
                calls
                    .iter()
                    .filter_map(|call| pending.get(&key(call)).cloned()),
            );
        }
        // Another model's proof is none.
        for entry in found
            .into_iter()
            .filter(|entry| entry.model == choice.model)
        {
            if let Ok(kept) = serde_json::from_str::<KeptReasoning>(&entry.json) {
                recovered.insert(entry.call_id, kept);
            }
        }
        Ok(recovered)
    }

    /// An answer that was just written down may still be among those that wait for that.
    pub(crate) fn forget_pending(&self, principal: &str, id: &str) {
        let key = (principal.to_owned(), id.to_owned());
        self.pending.answers().remove(&key);
    }

    /// An answer that is kept for a caller.
    pub(crate) async fn kept_answer(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<KeptAnswer>, AbpError> {
        let key = (principal.to_owned(), id.to_owned());
        let pending = self.pending.answers().get(&key).cloned();
        match pending {
            Some(answer) => Ok(Some(answer)),
            None => Ok(self.store.answer(principal, id).await?),
        }
    }

    /// A request that goes on from a kept answer.
    pub(crate) async fn continued(
        &self,
        principal: &str,
        previous: &str,
        request: &[u8],
    ) -> Result<Continued, AbpError> {
        let kept = self.kept_answer(principal, previous).await?;
        let Some(kept) = kept else {
            let message = format!("Previous response with id '{previous}' not found.");
            return Err(AbpError::new(ErrorCode::NotFound, message)
                .with_context("param", "previous_response_id"));
        };
        if kept.native {
            return Ok(Continued::AtVendor(kept.upstream));
        }
        let text = std::str::from_utf8(request)
            .map_err(|_| AbpError::new(ErrorCode::ValidationFailed, "the body is not UTF-8"))?;
        let request = expanded(text, &kept).ok_or_else(|| {
            let message = "the conversation has become too long to go on from what is kept";
            AbpError::new(ErrorCode::RequestTooLarge, message)
        })?;
        Ok(Continued::Expanded(Bytes::from(request)))
    }
}

/// Whether a vendor's models want their own reasoning back with the calls it led to.
pub(crate) fn wants_reasoning(vendor: Dialect) -> bool {
    matches!(
        vendor,
        Dialect::Claude | Dialect::Codex | Dialect::Gemini | Dialect::Kimi
    )
}

/// Whether a request may hold calls.
fn holds_calls(body: &[u8]) -> bool {
    SIGNS_OF_CALLS.iter().any(|sign| sign.find(body).is_some())
}

/// What a request holds that holds calls.
static SIGNS_OF_CALLS: LazyLock<[Finder<'static>; 4]> = LazyLock::new(|| {
    [
        "\"tool_calls\"",
        "\"tool_use\"",
        "\"function_call\"",
        "\"functionCall\"",
    ]
    .map(Finder::new)
});

/// The request with what the kept answer was an answer to, and the answer itself, before its input.
fn expanded(request: &str, kept: &KeptAnswer) -> Option<String> {
    let limits = Limits::default();
    let tape = Tape::parse_str(request, &limits).ok()?;
    let mut out = Writer::with_capacity(request.len() + kept.input_items.len() + kept.answer.len());
    out.begin_object();
    for (key, value) in tape.root().entries() {
        match key.as_str()?.as_ref() {
            "previous_response_id" | "input" => {}
            name => {
                out.key(name);
                out.raw(value.raw());
            }
        }
    }
    out.key("input");
    out.begin_array();
    copy_items(&kept.input_items, None, &mut out)?;
    copy_items(&kept.answer, Some("output"), &mut out)?;
    if let Some(input) = tape.root().get("input") {
        put_input(input, &mut out);
    }
    out.end_array();
    out.end_object();
    Some(out.into_text())
}

fn copy_items(document: &str, member: Option<&str>, out: &mut Writer) -> Option<()> {
    let tape = Tape::parse_str(document, &Limits::default()).ok()?;
    let items = match member {
        Some(name) => tape.root().get(name)?,
        None => tape.root(),
    };
    for item in items.items() {
        out.raw(item.raw());
    }
    Some(())
}

/// Input as items: a text alone is a message of the user.
fn put_input(input: View<'_>, out: &mut Writer) {
    if input.kind() == Kind::Array {
        for item in input.items() {
            out.raw(item.raw());
        }
        return;
    }
    out.begin_object();
    out.key("role");
    out.string("user");
    out.key("content");
    out.raw(input.raw());
    out.end_object();
}

/// The input of a request, as a list of items.
fn input_items(request: &[u8]) -> String {
    let mut out = Writer::with_capacity(request.len());
    out.begin_array();
    let tape = Tape::parse(request, &Limits::default());
    if let Ok(tape) = &tape
        && let Some(input) = tape.root().get("input")
    {
        put_input(input, &mut out);
    }
    out.end_array();
    out.into_text()
}

fn member_text(document: &str, name: &str) -> Option<String> {
    let tape = Tape::parse_str(document, &Limits::default()).ok()?;
    let text = tape.root().get(name)?.as_str()?;
    Some(text.into_owned())
}
