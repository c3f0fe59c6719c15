//! Whole documents: requests, answers, errors.

use std::borrow::Cow;
use std::sync::Arc;

use abp_core::ir::{IrConversation, IrError, IrErrorKind, IrResponse, Leaf, Origin, RawJson};
use abp_dialect::{
    Codec, Dialect, DialectError, Exchange, Expected, Fate, How, Item, Lowering, Note, Reader,
    TargetProfile, WireFamily,
};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape};

use crate::mint::complete;
use crate::prepare::refuse_essential;
use crate::read::{LeftOut, read_document};
use crate::stop::take_stops;
use crate::{FidelityLevel, KnownLedgers, Ledger, codec, prepare, restore_response};

/// What a translation should do besides translating.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What is known of the target.
    pub profile: TargetProfile,
    /// Bounds on the source.
    pub limits: Limits,
    /// Also translate back, and name in the ledger what that does not restore. Costs as much again.
    pub check_way_back: bool,
    /// Take stop sequences out where the target has none. Whoever gives the answer on cuts it, as
    /// [`Exchange::stop_at`] says.
    pub cut_stops: bool,
    /// Ledgers that were made before, where many documents are translated.
    pub known: Option<Arc<KnownLedgers>>,
}

/// A translated document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The target's document.
    pub output: String,
    /// What became of every part of the source.
    pub ledger: Ledger,
    /// What an answer to this request has to undo.
    pub exchange: Exchange,
    /// The HTTP status of an error.
    pub status: Option<u16>,
}

impl Translation {
    /// How true the translation is as a whole.
    #[must_use]
    pub fn fidelity(&self) -> FidelityLevel {
        self.ledger.fidelity()
    }
}

/// Why a document could not be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] DialectError),
    /// The hub does not know the dialect.
    #[error("{0} is not translated yet")]
    NoCodec(Dialect),
}

impl From<TranslateError> for AbpError {
    fn from(error: TranslateError) -> Self {
        match error {
            TranslateError::Source(error) => error.into(),
            TranslateError::NoCodec(_) => Self::new(ErrorCode::DialectUnknown, error.to_string()),
        }
    }
}

/// Translates a request.
///
/// # Errors
/// Fails where the source is no request of its dialect. Losses are no errors: see
/// [`Ledger::require_lossless`].
pub fn translate_request(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    options: &Options,
) -> Result<Translation, TranslateError> {
    translate_request_with(source, from, to, options, |_| {})
}

/// Translates a request that is changed on the way: `change` sees what was read before it is made to
/// fit the target.
///
/// # Errors
/// As [`translate_request`].
pub fn translate_request_with(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    options: &Options,
    change: impl FnOnce(&mut IrConversation),
) -> Result<Translation, TranslateError> {
    let write = |job: Job<'_>, mut conversation| {
        change(&mut conversation);
        job.request(conversation)
    };
    let route = Route {
        from,
        to,
        options,
        loss: LeftOut::IsUnsupported,
        unchanged: from == to && options.profile == TargetProfile::default(),
    };
    let done = document(source, &route, Codec::read_request, write)?;
    checked(source, done, options, |output, options| {
        translate_request(output, to, from, options)
    })
}

/// Reads a request.
///
/// # Errors
/// Fails where the source is no request of its dialect.
pub fn read_request(
    source: &[u8],
    from: Dialect,
    limits: &Limits,
) -> Result<IrConversation, TranslateError> {
    let codec = codec(from).ok_or(TranslateError::NoCodec(from))?;
    let tape = Tape::parse(source, limits).map_err(DialectError::Json)?;
    let read = |root: Item<'_>| codec.read_request(root);
    let (_, conversation) = read_document(&tape, LeftOut::IsUnsupported, read)?;
    Ok(conversation)
}

/// Writes a request that ABP made itself; whatever it holds is synthesised.
///
/// # Errors
/// Fails where the hub does not know the dialect.
pub fn write_request(
    mut conversation: IrConversation,
    to: Dialect,
    profile: &TargetProfile,
) -> Result<Translation, TranslateError> {
    let writing = codec(to).ok_or(TranslateError::NoCodec(to))?;
    let (exchange, notes) = prepare(&mut conversation, &writing.rules(profile), None);
    let mut out = Lowering::new(None, to, profile);
    out.extend_notes(notes);
    writing.write_request(&conversation, &mut out);
    let (output, _, _) = out.finish();
    Ok(Translation {
        output,
        ledger: Ledger::default(),
        exchange,
        status: None,
    })
}

/// Translates an answer, or the error that stands in its place; `exchange` is what its request's
/// translation left to undo.
///
/// # Errors
/// Fails where the source is neither.
pub fn translate_response(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    exchange: &Exchange,
    options: &Options,
) -> Result<Translation, TranslateError> {
    match translate_response_with(source, from, to, exchange, options, |_| {}) {
        // Some servers answer with an error and a status of success.
        Err(TranslateError::Source(problem)) if !matches!(problem, DialectError::Json(_)) => {
            translate_error(source, from, to, None, options).map_err(|_| problem.into())
        }
        done => done,
    }
}

/// Translates an answer that somebody looks at on the way: `look` sees what was read, with an id for
/// every call.
///
/// # Errors
/// As [`translate_response`].
pub fn translate_response_with(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    exchange: &Exchange,
    options: &Options,
    look: impl FnOnce(&IrResponse),
) -> Result<Translation, TranslateError> {
    let write = |job: Job<'_>, mut answer| {
        let rules = job.writing.rules(job.profile);
        complete(&mut answer, &rules, &expected(exchange, from, to));
        look(&answer);
        job.response(answer, exchange)
    };
    let route = Route {
        from,
        to,
        options,
        loss: LeftOut::IsDropped,
        unchanged: from == to && *exchange == Exchange::default(),
    };
    let done = document(source, &route, Codec::read_response, write)?;
    checked(source, done, options, |output, options| {
        translate_response(output, to, from, &Exchange::default(), options)
    })
}

/// What is to be told of an answer; its own dialect tells it as it is.
pub(crate) fn expected(exchange: &Exchange, from: Dialect, to: Dialect) -> Cow<'_, Expected> {
    if from == to {
        Cow::Owned(Expected::default())
    } else {
        Cow::Borrowed(&exchange.expected)
    }
}

/// Translates the body of an error; `status` where it is known.
///
/// # Errors
/// Fails where the source is no error of its dialect.
pub fn translate_error(
    source: &[u8],
    from: Dialect,
    to: Dialect,
    status: Option<u16>,
    options: &Options,
) -> Result<Translation, TranslateError> {
    let read = |codec: &'static dyn Codec, root: Item<'_>| {
        let error = codec.read_error(root, status);
        error.or_else(|problem| unknown_error(root, status).ok_or(problem))
    };
    let write = |job: Job<'_>, error| job.error(&error);
    let route = Route {
        from,
        to,
        options,
        loss: LeftOut::IsDropped,
        unchanged: from == to,
    };
    let mut done = document(source, &route, read, write)?;
    let status = done.status.or(status);
    done.status = status;
    checked(source, done, options, |output, options| {
        translate_error(output, to, from, status, options)
    })
}

/// An error whose body is not in its vendor's form, as gateways and proxies make them: its status says
/// what it is, and the body is told as it is.
fn unknown_error(root: Item<'_>, status: Option<u16>) -> Option<IrError> {
    let status = status.filter(|status| *status >= 400)?;
    let body = root.raw();
    root.note(How::Converted("error_body"));
    Some(IrError {
        kind: IrErrorKind::of_status(status),
        status: Some(status),
        message: body.with(body.text().to_owned()),
        native: None,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    })
}

/// Translates back where that is asked for, and names what it does not restore.
fn checked(
    source: &[u8],
    mut done: Translation,
    options: &Options,
    back: impl FnOnce(&[u8], &Options) -> Result<Translation, TranslateError>,
) -> Result<Translation, TranslateError> {
    if !options.check_way_back {
        return Ok(done);
    }
    let plain = Options {
        limits: options.limits,
        ..Options::default()
    };
    let again = back(done.output.as_bytes(), &plain)?;
    let parse = |text| Tape::parse(text, &options.limits).map_err(DialectError::Json);
    let (source, again) = (parse(source)?, parse(again.output.as_bytes())?);
    done.ledger = done.ledger.with_unrestored(&source, &again);
    Ok(done)
}

/// Where a document goes, and what may become of it on the way.
struct Route<'o> {
    from: Dialect,
    to: Dialect,
    options: &'o Options,
    loss: LeftOut,
    /// The document stays in its dialect and nothing is to be changed in it, so it need not be
    /// understood.
    unchanged: bool,
}

/// What all documents have in common: parse, read, write, account.
fn document<T>(
    source: &[u8],
    route: &Route<'_>,
    read: impl Fn(&'static dyn Codec, Item<'_>) -> Result<T, DialectError>,
    write: impl FnOnce(Job<'_>, T) -> Translation,
) -> Result<Translation, TranslateError> {
    let options = route.options;
    let reading = codec(route.from).ok_or(TranslateError::NoCodec(route.from))?;
    let writing = codec(route.to).ok_or(TranslateError::NoCodec(route.to))?;
    let tape = Tape::parse(source, &options.limits).map_err(DialectError::Json)?;
    let job = |reader| Job {
        from: route.from,
        to: route.to,
        reading,
        writing,
        reader,
        profile: &options.profile,
        cut_stops: options.cut_stops,
        known: options.known.as_deref(),
        unchanged: route.unchanged,
    };
    let read = |root: Item<'_>| read(reading, root);
    if !route.unchanged {
        let (reader, document) = read_document(&tape, route.loss, read)?;
        return Ok(write(job(&reader), document));
    }
    let reader = Reader::new(&tape);
    Ok(match read(reader.root()) {
        Ok(document) => write(job(&reader), document),
        // Its own dialect takes it or refuses it, as it would without us.
        Err(_) => job(&Reader::new(&tape)).carry(),
    })
}

/// One document on its way.
struct Job<'r> {
    from: Dialect,
    to: Dialect,
    reading: &'static dyn Codec,
    writing: &'static dyn Codec,
    reader: &'r Reader<'r>,
    profile: &'r TargetProfile,
    cut_stops: bool,
    known: Option<&'r KnownLedgers>,
    unchanged: bool,
}

impl Job<'_> {
    fn request(self, mut conversation: IrConversation) -> Translation {
        let mut exchange = Exchange::default();
        let mut notes = Vec::new();
        if let (None, Some(most)) = (&conversation.settings.max_tokens, self.profile.max_output) {
            let most = RawJson::trusted(most.to_string());
            let limit = Leaf::new(most, Origin::Made("output_limit"));
            conversation.settings.max_tokens = Some(limit);
        }
        let asked = conversation.settings.include_usage.as_ref();
        let wants_usage = asked.is_some_and(|asked| asked.value);
        let unwanted = asked.filter(|_| self.profile.stream_usage && !wants_usage);
        let unwanted = unwanted.map(|asked| asked.origin);
        // A request to its own dialect obeys its rules already, or fails there as it would without us.
        if self.from != self.to {
            let model = conversation.settings.model.as_ref();
            let asked = TargetProfile {
                model: self
                    .profile
                    .model
                    .clone()
                    .or_else(|| model.map(|model| model.value.clone())),
                ..self.profile.clone()
            };
            let rules = self.writing.rules(&asked);
            (exchange, notes) = prepare(&mut conversation, &rules, Some(self.reader));
            exchange.expected.echo = self.reading.echo(self.reader.tape().root());
            if self.cut_stops && !rules.stop_sequences {
                take_stops(&mut conversation, &mut exchange, &mut notes);
            }
        }
        if let Some(origin) = unwanted {
            // The caller's word against it is kept by hiding the counts, not by leaving them unknown.
            let counted = Leaf::new(true, Origin::Made("stream_usage"));
            conversation.settings.include_usage = Some(counted);
            let reason = "what the stream uses is counted against a budget";
            let fate = Fate::Carried(How::degraded("stream_usage", reason));
            notes.push(Note { origin, fate });
        }
        if self.from.family() == WireFamily::Chat {
            exchange.include_usage = Some(wants_usage);
        }
        if self.from.family() != self.to.family() {
            notes.extend(refuse_essential(&conversation, self.from));
        }
        let model = conversation.settings.model.as_ref();
        exchange.model = model
            .filter(|_| self.profile.model.is_some())
            .map(|model| model.value.clone());
        self.write(exchange, notes, |codec, out| {
            codec.write_request(&conversation, out);
            None
        })
    }

    fn response(self, mut response: IrResponse, exchange: &Exchange) -> Translation {
        let notes = restore_response(&mut response, exchange);
        self.write(Exchange::default(), notes, |codec, out| {
            codec.write_response(&response, exchange, out);
            None
        })
    }

    fn error(self, error: &IrError) -> Translation {
        let known = error.status.filter(|_| self.unchanged);
        let mut done = self.write(Exchange::default(), Vec::new(), |codec, out| {
            Some(codec.write_error(error, out))
        });
        done.status = done.status.or(known);
        done
    }

    /// Gives on what nobody has to understand.
    fn carry(self) -> Translation {
        self.write(Exchange::default(), Vec::new(), |_, _| None)
    }

    fn write(
        self,
        exchange: Exchange,
        notes: Vec<Note>,
        write: impl FnOnce(&dyn Codec, &mut Lowering<'_>) -> Option<u16>,
    ) -> Translation {
        let mut out = Lowering::new(Some((self.from, self.reader)), self.to, self.profile);
        if !self.profile.keeps_requests() {
            out.rewrite();
        }
        out.extend_notes(notes);
        let root = self.reader.root().origin();
        let status = if self.unchanged && out.copy_native(root) {
            None
        } else {
            write(self.writing, &mut out)
        };
        let (output, marks, notes) = out.finish();
        let ledger = Ledger::of(self.reader, self.to, &output, &marks, &notes, self.known);
        Translation {
            output,
            ledger,
            exchange,
            status,
        }
    }
}
