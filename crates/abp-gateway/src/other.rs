//! The rest of a vendor's API: passed on as it is, to an upstream of the dialect that the operator opened.
//!
//! Embeddings are written anew where only an upstream of the other form has them (OpenAI's and Gemini's).
//! Nothing else is translated, and nothing is understood but what limits need: which model is asked for, what a
//! key made at the vendor (only that key may use it), and what an answer says it used. Such a request is
//! sent once, since nobody knows whether it may be sent twice.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use abp_backend_core::{ModelBody, ModelCall, ModelOperation, ModelReply, OtherCall};
use abp_core::Outcome;
use abp_core::ir::IrUsage;
use abp_dialect::Dialect;
use abp_error::{AbpError, ErrorCode};
use abp_json::{Kind, Limits, Tape, View};
use abp_plan::OnLoss;
use abp_store::{KeptAnswer, Reservation, Reserved};
use abp_translate::{EmbeddingRequest, Options, translate_error};
use bytes::Bytes;
use futures_core::Stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use crate::admission::{Admission, full};
use crate::ask::{Answer, AnswerBody};
use crate::gateway::{Gateway, Shared, no_room, overloaded, received};
use crate::health::{Asking, Ended};
use crate::ledgers::REQUEST;
use crate::pool::Share;
use crate::route::Member;
use crate::scan::Scan;
use crate::spend::Most;
use crate::stream::BrokenOff;
use crate::tally::{Room, Tally, now};
use crate::whole::{collect, failure, is_json, tell, vendor_error};
use crate::{Principal, Refusal, headers};

/// Parts of an API of which nothing stays at the vendor.
const STATELESS: [&str; 7] = [
    "audio",
    "compaction",
    "completions",
    "embeddings",
    "images",
    "moderations",
    "predictions",
];

/// Members of a request that name something which was made before.
const MADE_BEFORE: [&str; 4] = [
    "input_file_id",
    "file_id",
    "training_file",
    "validation_file",
];

/// As much of an answer is looked into.
const LOOKED_INTO: usize = 1 << 20;

/// A request for a part of a vendor's API that is not translated.
#[derive(Debug)]
pub struct OtherAsk {
    /// The caller, and what its request took to be let in.
    pub admitted: Admission,
    /// The vendor.
    pub dialect: Dialect,
    /// The part of its API, by name.
    pub part: &'static str,
    /// The request.
    pub call: OtherCall,
    /// The query, without credentials.
    pub query: Option<String>,
    /// The headers. Only what is on a list goes further.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// What to do where something would be lost.
    pub on_loss: OnLoss,
}

/// Where a request goes.
struct Target {
    member: Arc<Member>,
    dialect: Dialect,
    /// The vendor's name for the model; empty where there is none.
    model: String,
}

/// An upstream that began to answer.
struct Passed {
    target: Target,
    /// The request, where it was written in another form.
    translated: Option<EmbeddingRequest>,
    slot: Share,
    reply: ModelReply,
}

/// What a body says that matters.
#[derive(Debug, Default)]
struct Said {
    model: Option<String>,
    /// What it names that was made before.
    uses: Vec<String>,
}

impl Gateway {
    /// Passes a request on as it is. Whatever happens, a refusal is one of the vendor's form.
    pub async fn pass_on(&self, ask: OtherAsk) -> Answer {
        let dialect = ask.dialect;
        match self.shared.pass_on(ask).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(dialect),
        }
    }
}

impl Shared {
    async fn pass_on(self: &Arc<Self>, ask: OtherAsk) -> Result<Answer, Refusal> {
        let room = Room {
            place: ask.admitted.place(),
            record: self.log.admit().ok_or_else(overloaded)?,
        };
        let received = received(&ask.body).await?;
        let principal = ask.admitted.principal();
        let mut tally = Tally::new(self, principal, room, ask.dialect, received);
        ask.part.clone_into(&mut tally.record.operation);
        tally.join_trace(&ask.headers);
        let run_id = tally.run_id();
        match self.passed(&ask, &mut tally).await {
            Ok(passed) => self.given_on(&ask, passed, tally).await,
            Err(problem) => {
                tally.close(Outcome::Failed, Some(problem.error.code()));
                Err(problem)
            }
        }
        .map_err(|problem| problem.of_run(run_id))
    }

    async fn passed(
        self: &Arc<Self>,
        ask: &OtherAsk,
        tally: &mut Tally,
    ) -> Result<Passed, Refusal> {
        let principal = ask.admitted.principal();
        let said = Said::of(ask)?;
        allow(principal, ask, &said)?;
        let asked = said.model.clone().unwrap_or_default();
        tally.record.model_asked.clone_from(&asked);
        let (target, translated) = match self.target_for(ask, &said).await {
            Ok(target) => (target, None),
            Err(problem) => match self.embedder(ask, &asked) {
                Some(target) => {
                    let read = EmbeddingRequest::read(&ask.body, ask.dialect)?;
                    if ask.on_loss == OnLoss::Reject {
                        read.ledger().require_lossless()?;
                    }
                    (target, Some(read))
                }
                None => return Err(problem),
            },
        };
        let member = &target.member;
        let slot = member.slots.take(principal, 1, None);
        let slot = slot.map_err(|problem| full(problem, "requests to the upstream"))?;
        self.reserve_other(ask, &target, tally).await?;
        let call = match &translated {
            Some(read) => embedding_call(ask, &target, read),
            None => ModelCall {
                dialect: ask.dialect,
                operation: ModelOperation::Other(ask.call.clone()),
                model: target.model.clone(),
                query: ask.query.clone(),
                headers: headers::forwarded(&ask.headers, true),
                body: ask.body.clone(),
            },
        };
        let reply = self.send_other(ask, &target, call, tally).await?;
        Ok(Passed {
            target,
            translated,
            slot,
            reply,
        })
    }

    async fn send_other(
        &self,
        ask: &OtherAsk,
        target: &Target,
        call: ModelCall,
        tally: &mut Tally,
    ) -> Result<ModelReply, Refusal> {
        let (member, name) = (&target.member, target.member.name());
        let asking = Asking {
            key: ask.admitted.principal().number,
            model: &target.model,
        };
        let allowed = member.health.allow(asking, Instant::now());
        allowed.map_err(|closed| {
            let message = format!("upstream {name} is left alone for a while");
            Refusal::new(closed.code, message).retry_after(closed.rest)
        })?;
        tally.passed_to(member, &target.model, target.dialect);
        if target.dialect != ask.dialect {
            tally.maps(&call.body);
        }
        tally.sent();
        let mut call = call;
        tally.mark_trace(&mut call.headers);
        let sent = member.upstream.send(call).await;
        let how = match &sent {
            Err(error) => Ended::NoAnswer(error),
            Ok(reply) if reply.status.as_u16() == 429 => Ended::Limited(None),
            Ok(reply) if reply.status.is_server_error() => Ended::Unwell(None),
            Ok(_) => Ended::Well,
        };
        member.health.ended(asking, how, Instant::now());
        let reply = sent.map_err(|error| {
            if error.may_have_been_heard() {
                tally.unheard();
            }
            AbpError::new(error.code(), format!("upstream {name}: {error}"))
        })?;
        tally.answered(reply.status.as_u16());
        Ok(reply)
    }

    /// An upstream of the other form of embeddings, where none has the caller's.
    fn embedder(&self, ask: &OtherAsk, model: &str) -> Option<Target> {
        let dialect = match (ask.part, ask.dialect) {
            ("embeddings", Dialect::OpenAi) => Dialect::Gemini,
            ("embeddings", Dialect::Gemini) => Dialect::OpenAi,
            _ => return None,
        };
        let routes = self.routes();
        let mut members = routes.members.iter();
        members.find_map(|member| {
            let model = member.serves(model)?;
            member.passes(dialect, ask.part).then(|| Target {
                member: Arc::clone(member),
                dialect,
                model: model.to_owned(),
            })
        })
    }

    /// The upstream for a request: the one that has what it is about, or else the first that is open for
    /// it, and serves its model where it names one.
    async fn target_for(&self, ask: &OtherAsk, said: &Said) -> Result<Target, Refusal> {
        let mut home = None;
        let principal = ask.admitted.principal();
        let addressed = addressed(ask);
        for id in addressed
            .into_iter()
            .chain(said.uses.iter().map(String::as_str))
        {
            let kept = self.kept_answer(&principal.id, &kept_id(id)).await?;
            match kept {
                Some(kept) => home = Some(kept.upstream),
                None if principal.is_operator => {}
                None => {
                    let message = format!("there is no {id} that was made with this key");
                    return Err(Refusal::new(ErrorCode::NotFound, message));
                }
            }
        }
        let routes = self.routes();
        let mut open = routes.members.iter();
        let found = open.find(|member| {
            // Bytes that stay as they are keep the caller's name for the model.
            let model = said.model.as_deref();
            let serves = model.is_none_or(|model| member.serves(model) == Some(model));
            let is_home = home.as_deref().is_none_or(|home| member.name() == home);
            member.passes(ask.dialect, ask.part) && serves && is_home
        });
        let found = found.map(|member| Target {
            member: Arc::clone(member),
            dialect: ask.dialect,
            model: said.model.clone().unwrap_or_default(),
        });
        found.ok_or_else(|| {
            let (part, dialect) = (ask.part, ask.dialect);
            let message = match &said.model {
                Some(model) => format!("no upstream passes {part} of {dialect} on for {model}"),
                None => format!("no upstream passes {part} of {dialect} on"),
            };
            let hint =
                format!("{message}; the operator allows it with pass_through = [\"{part}\"]");
            Refusal::new(ErrorCode::CapabilityUnsupported, hint)
        })
    }

    /// Takes room in a budget. Only what is counted in tokens of input can be paid from one.
    async fn reserve_other(
        &self,
        ask: &OtherAsk,
        target: &Target,
        tally: &mut Tally,
    ) -> Result<(), Refusal> {
        let principal = ask.admitted.principal();
        if !principal.has_budget() {
            return Ok(());
        }
        let price = target.member.price(&target.model);
        if ask.part != "embeddings" || (principal.budget.is_some() && price.is_none()) {
            let message = format!("{} have no price, and the key a budget", ask.part);
            return Err(Refusal::new(ErrorCode::BudgetExceeded, message));
        }
        let scan = Scan::of_input();
        let most = Most::of(&ask.body, ask.dialect, &scan, price.into_iter());
        tally.reserved(most);
        let asked = Reservation {
            exchange: tally.run_id(),
            key: principal.id.clone(),
            cost: most.cost,
            tokens: most.tokens,
        };
        match self.store.reserve(asked).await? {
            Reserved::Granted => Ok(()),
            Reserved::Refused(state) => Err(no_room(most, &state)),
        }
    }

    async fn given_on(
        self: &Arc<Self>,
        ask: &OtherAsk,
        passed: Passed,
        mut tally: Box<Tally>,
    ) -> Result<Answer, Refusal> {
        let Passed {
            target,
            translated,
            slot,
            reply,
        } = passed;
        let status = reply.status;
        if let Some(read) = translated {
            let answer = embedded(ask, &target, &read, reply, &mut tally).await;
            return match answer {
                Ok(answer) if status.is_success() => {
                    tally.close(Outcome::Complete, None);
                    Ok(answer)
                }
                Ok(answer) => {
                    tally.close(Outcome::Failed, Some(failure(status)));
                    Ok(answer)
                }
                Err(error) => {
                    tally.close(Outcome::Failed, Some(error.code()));
                    Err(error.into())
                }
            };
        }
        let mut headers = headers::returned(&reply.headers, false);
        if let Some(value) = reply.headers.get(CONTENT_DISPOSITION) {
            headers.insert(CONTENT_DISPOSITION, value.clone());
        }
        tell(&tally, target.member.name(), &mut headers);
        let stream = OtherStream {
            source: reply.body,
            shared: Arc::clone(self),
            member: target.member,
            looked_into: (is_json(&reply.headers) && status.is_success()).then(Vec::new),
            makes: ask.call.method == Method::POST || addressed(ask).is_some(),
            is_embedding: ask.part == "embeddings",
            outcome: match status.is_success() {
                true => Ok(()),
                false => Err(failure(status)),
            },
            tally: Some(tally),
            _slot: slot,
        };
        Ok(Answer {
            status,
            headers,
            body: AnswerBody::Stream(Box::new(stream)),
        })
    }

    /// Notes that a key made something at a vendor.
    fn made(self: &Arc<Self>, principal: &str, id: &str, upstream: &str) {
        let kept = KeptAnswer {
            id: kept_id(id),
            principal: principal.to_owned(),
            upstream: upstream.to_owned(),
            native: true,
            model: String::new(),
            created_at: now(),
            input_items: String::new(),
            answer: String::new(),
            previous: None,
        };
        self.keep(kept);
    }
}

/// A request for embeddings in the form of its target.
fn embedding_call(ask: &OtherAsk, target: &Target, read: &EmbeddingRequest) -> ModelCall {
    let model = &target.model;
    let path = match target.dialect {
        Dialect::Gemini => format!("/v1beta/models/{model}:batchEmbedContents"),
        _ => "/embeddings".to_owned(),
    };
    ModelCall {
        dialect: target.dialect,
        operation: ModelOperation::Other(OtherCall {
            method: Method::POST,
            path,
            content_type: Some(HeaderValue::from_static("application/json")),
        }),
        model: model.clone(),
        query: None,
        headers: headers::forwarded(&ask.headers, false),
        body: Bytes::from(read.write(target.dialect, model)),
    }
}

/// A translated answer with embeddings, or the vendor's error in the caller's form.
async fn embedded(
    ask: &OtherAsk,
    target: &Target,
    read: &EmbeddingRequest,
    reply: ModelReply,
    tally: &mut Tally,
) -> Result<Answer, AbpError> {
    let (status, name) = (reply.status, target.member.name());
    let mut headers = headers::returned(&reply.headers, true);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    tally.account(read.ledger().clone(), REQUEST);
    let came = collect(name, reply.body).await?;
    tally.translates();
    tally.received(&came);
    let body = if status.is_success() {
        if let Ok(tape) = Tape::parse(&came, &Limits::default())
            && let Some(usage) = input_usage(tape.root())
        {
            tally.used(&usage);
        }
        read.answer(&came, target.dialect, &tally.record.model_asked)?
    } else {
        let came = target.member.upstream.without_key(came);
        let (from, to, code) = (target.dialect, ask.dialect, Some(status.as_u16()));
        let done = translate_error(&came, from, to, code, &Options::default());
        done.map_err(|_| vendor_error(name, status))?.output
    };
    let body = Bytes::from(body);
    tell(tally, name, &mut headers);
    tally.delivered(&body);
    Ok(Answer {
        status,
        headers,
        body: AnswerBody::Whole(body),
    })
}

/// What a key may ask for at all.
fn allow(principal: &Principal, ask: &OtherAsk, said: &Said) -> Result<(), Refusal> {
    if principal.is_operator {
        return Ok(());
    }
    let denied = |message: String| Refusal::new(ErrorCode::PolicyDenied, message);
    if !STATELESS.contains(&ask.part) && ask.call.method != Method::POST && addressed(ask).is_none()
    {
        let message = format!(
            "a list of {} holds those of every key: it takes the operator's",
            ask.part
        );
        return Err(denied(message));
    }
    match &said.model {
        Some(model) if !principal.may_use(model) => {
            let message = format!("the key may not use the model {model}");
            Err(Refusal::new(ErrorCode::ModelNotAllowed, message))
        }
        // What is asked for cannot be held against the limits of the key.
        None if principal.is_limited() => Err(denied(format!(
            "the key has limits, and {} name no model",
            ask.part
        ))),
        _ => Ok(()),
    }
}

/// The thing in the address of a request, where it has one: `file-1` of `/files/file-1/content`.
fn addressed(ask: &OtherAsk) -> Option<&str> {
    if STATELESS.contains(&ask.part) {
        return None;
    }
    let mut segments = ask
        .call
        .path
        .split('/')
        .filter(|segment| !segment.is_empty());
    let is_name = |segment: &&str| matches!(*segment, "upload" | "v1" | "v1beta" | "messages");
    let named = segments.find(|segment| !is_name(segment))?;
    let id = segments.next()?;
    // Google names a thing by its whole path.
    let id = id.split(':').next().unwrap_or(id);
    (named != "models").then_some(id)
}

/// Under which name a thing at a vendor is kept, apart from answers.
fn kept_id(id: &str) -> String {
    let id = id.rsplit('/').next().unwrap_or(id);
    format!("other/{id}")
}

impl Said {
    fn of(ask: &OtherAsk) -> Result<Self, Refusal> {
        let is_json = ask.call.content_type.as_ref().is_some_and(|kind| {
            let kind = kind.to_str().unwrap_or_default();
            kind.trim_start()
                .to_ascii_lowercase()
                .starts_with("application/json")
        });
        let mut said = Self {
            model: model_of_address(&ask.call.path),
            uses: Vec::new(),
        };
        if !is_json || ask.body.is_empty() {
            return Ok(said);
        }
        let limits = Limits {
            max_bytes: ask.body.len().max(1),
            ..Limits::default()
        };
        let invalid = |problem: String| Refusal::new(ErrorCode::ValidationFailed, problem);
        let tape = Tape::parse(&ask.body, &limits)
            .map_err(|error| invalid(format!("the body is not JSON: {error}")))?;
        let root = tape.root();
        if root.kind() == Kind::Object
            && tape.duplicates().iter().any(|one| one.object == root.id())
        {
            return Err(invalid("a member of the body is given twice".to_owned()));
        }
        let text = |name: &str| Some(root.get(name)?.as_str()?.into_owned());
        if said.model.is_none() {
            said.model = text("model");
        }
        said.uses = MADE_BEFORE.into_iter().filter_map(text).collect();
        Ok(said)
    }
}

/// `x` of `/v1beta/models/x:embedContent`.
fn model_of_address(path: &str) -> Option<String> {
    let (_, named) = path.split_once("/models/")?;
    let (model, _) = named.split_once(':')?;
    Some(model.to_owned())
}

/// An answer that is passed on as it comes.
#[derive(Debug)]
struct OtherStream {
    source: ModelBody,
    shared: Arc<Shared>,
    member: Arc<Member>,
    /// The beginning of a document, while it is short enough to be read.
    looked_into: Option<Vec<u8>>,
    /// Whether what it names belongs to the caller.
    makes: bool,
    is_embedding: bool,
    outcome: Result<(), ErrorCode>,
    tally: Option<Box<Tally>>,
    _slot: Share,
}

impl OtherStream {
    fn pass(&mut self, bytes: &Bytes) {
        if let Some(tally) = &mut self.tally {
            tally.passed_on(bytes);
        }
        if let Some(document) = &mut self.looked_into {
            match document.len() + bytes.len() <= LOOKED_INTO {
                true => document.extend_from_slice(bytes),
                false => self.looked_into = None,
            }
        }
    }

    fn end(&mut self) {
        let Some(mut tally) = self.tally.take() else {
            return;
        };
        if let Some(document) = self.looked_into.take()
            && let Ok(tape) = Tape::parse(&document, &Limits::default())
        {
            if let Some(usage) = input_usage(tape.root()).filter(|_| self.is_embedding) {
                tally.used(&usage);
            }
            if self.makes {
                self.note(tape.root(), &tally.principal.id);
            }
        }
        match self.outcome {
            Ok(()) => tally.close(Outcome::Complete, None),
            Err(code) => tally.close(Outcome::Failed, Some(code)),
        }
    }

    /// Whatever an answer to the maker of a thing names is the maker's: the thing, and files that it made.
    fn note(&self, root: View<'_>, principal: &str) {
        for (key, value) in root.entries() {
            let key = key.as_str().unwrap_or_default();
            let names = matches!(key.as_ref(), "id" | "name") || key.ends_with("_file_id");
            if let Some(id) = value.as_str().filter(|_| names) {
                self.shared.made(principal, &id, self.member.name());
            }
        }
        // Google wraps a file that was uploaded.
        if let Some(name) = root.get("file").and_then(|file| file.get("name")?.as_str()) {
            self.shared.made(principal, &name, self.member.name());
        }
    }
}

/// The count of tokens that were embedded, in OpenAI's and in Google's words.
fn input_usage(root: View<'_>) -> Option<IrUsage> {
    let counted = |object: &str, name: &str| root.get(object)?.get(name)?.as_u64();
    let input = counted("usage", "prompt_tokens");
    let input = input.or_else(|| counted("usageMetadata", "promptTokenCount"))?;
    Some(IrUsage {
        input_tokens: Some(input.into()),
        output_tokens: Some(0.into()),
        ..IrUsage::default()
    })
}

impl Stream for OtherStream {
    type Item = Result<Bytes, BrokenOff>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let part = ready!(Pin::new(&mut this.source).poll_next(context));
        Poll::Ready(match part {
            Some(Ok(bytes)) => {
                this.pass(&bytes);
                Some(Ok(bytes))
            }
            Some(Err(error)) => {
                if let Some(tally) = this.tally.take() {
                    tally.close(Outcome::Failed, Some(error.code()));
                }
                Some(Err(BrokenOff))
            }
            None => {
                this.end();
                None
            }
        })
    }
}
