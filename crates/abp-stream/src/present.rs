//! What a run says, as one client can take it.
//!
//! A [`Presenter`] stands between a run and one client. What the client takes passes as it is; the
//! rest becomes text: a block that the client cannot render is described, markdown that it does not
//! want becomes plain text, an image that is too large is made smaller. Nothing is changed silently:
//! each kind of change is counted and told as an `adapted` event, which belongs into the receipt too.

mod blocks;
mod client;
mod images;
mod plain;
mod records;
mod terminal;

use std::borrow::Cow;

use abp_core::{Adaptation, AgentEvent, ClientCapabilities};

use client::{Client, Passes};
pub use terminal::TerminalText;

/// What plain text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// To be read.
    Screen,
    /// To be spoken.
    Speech,
}

impl TextForm {
    /// What plain text is for where nobody says: a client that takes neither markdown nor any block
    /// has no screen to show them on.
    #[must_use]
    pub fn of(client: &ClientCapabilities) -> Self {
        if client.prefers_markdown || !client.supported_events.is_empty() {
            Self::Screen
        } else {
            Self::Speech
        }
    }
}

/// The events a client gets for one event of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Presented<'e> {
    /// The event itself.
    Unchanged(&'e AgentEvent),
    /// Others, or none.
    Changed(Vec<AgentEvent>),
}

impl<'e> Presented<'e> {
    /// The events, in order.
    pub fn events(self) -> impl Iterator<Item = Cow<'e, AgentEvent>> {
        let (unchanged, changed) = match self {
            Self::Unchanged(event) => (Some(event), Vec::new()),
            Self::Changed(events) => (None, events),
        };
        let unchanged = unchanged.into_iter().map(Cow::Borrowed);
        unchanged.chain(changed.into_iter().map(Cow::Owned))
    }
}

/// Adapts the events of one run to one client.
///
/// ```
/// use abp_core::{AgentEvent, AgentEventKind, ClientCapabilities, Timestamp};
/// use abp_stream::{Presenter, TextForm};
///
/// let voice = ClientCapabilities { prefers_markdown: false, ..ClientCapabilities::default() };
/// let mut presenter = Presenter::new(Some(voice), TextForm::Speech);
/// let text = "See **the [report](https://example.org)**.".to_owned();
/// let event = AgentEvent::new(
///     Timestamp::from_unix_millis(0),
///     AgentEventKind::AssistantMessage { text },
/// );
/// let spoken: Vec<_> = presenter.push(&event).events().collect();
/// let text = "See the report (https://example.org).".to_owned();
/// assert_eq!(spoken[0].kind, AgentEventKind::AssistantMessage { text });
///
/// presenter.finish();
/// let changes = presenter.adaptations().iter().map(|change| change.from.as_str());
/// assert_eq!(changes.collect::<Vec<_>>(), ["markdown emphasis", "markdown link"]);
/// ```
#[derive(Debug)]
pub struct Presenter {
    /// Absent for a standard client, which takes everything.
    client: Option<Client>,
}

impl Presenter {
    /// A presenter for a client; one without capabilities takes everything.
    #[must_use]
    pub fn new(capabilities: Option<ClientCapabilities>, form: TextForm) -> Self {
        Self {
            client: capabilities.map(|capabilities| Client::new(capabilities, form)),
        }
    }

    /// A presenter for a client, as its capabilities describe it.
    #[must_use]
    pub fn for_client(capabilities: Option<ClientCapabilities>) -> Self {
        let form = capabilities.as_ref().map_or(TextForm::Screen, TextForm::of);
        Self::new(capabilities, form)
    }

    /// Takes the next event of the run.
    pub fn push<'e>(&mut self, event: &'e AgentEvent) -> Presented<'e> {
        let Some(client) = &mut self.client else {
            return Presented::Unchanged(event);
        };
        let passes = client.take(event);
        let mut out = client.take_out();
        match passes {
            Passes::AsItIs if out.is_empty() => return Presented::Unchanged(event),
            Passes::AsItIs => out.push(event.clone()),
            Passes::Changed(kind) => out.push(AgentEvent {
                kind,
                ts: event.ts,
                origin: event.origin,
                ext: event.ext.clone(),
            }),
            Passes::Not => {}
        }
        Presented::Changed(out)
    }

    /// The run is over: what was held back, and what was changed since that was told last.
    pub fn finish(&mut self) -> Vec<AgentEvent> {
        let Some(client) = &mut self.client else {
            return Vec::new();
        };
        client.finish();
        client.take_out()
    }

    /// Everything that was changed and told. Told is it before the end of the run, and at the end.
    #[must_use]
    pub fn adaptations(&self) -> &[Adaptation] {
        self.client.as_ref().map_or(&[], Client::adaptations)
    }
}
