//! One client that does not take everything.

use abp_core::{
    Adaptation, AgentEvent, AgentEventKind, ClientCapabilities, PresentationType, Timestamp,
};
use serde_json::Value;

use super::blocks::{self, ProgressLines};
use super::plain::{self, PlainText};
use super::records::Records;
use super::{TextForm, images};

/// What becomes of an event.
#[derive(Debug)]
pub(super) enum Passes {
    AsItIs,
    Changed(AgentEventKind),
    Not,
}

#[derive(Debug)]
pub(super) struct Client {
    capabilities: ClientCapabilities,
    form: TextForm,
    /// The text that is being streamed, where the client wants it plain.
    plain: Option<PlainText>,
    streamed: Streamed,
    progress: ProgressLines,
    records: Records,
    /// When the last event was.
    now: Timestamp,
    /// What goes before the event that is being looked at.
    out: Vec<AgentEvent>,
}

impl Client {
    pub(super) fn new(capabilities: ClientCapabilities, form: TextForm) -> Self {
        Self {
            plain: (!capabilities.prefers_markdown).then(|| PlainText::new(form)),
            capabilities,
            form,
            streamed: Streamed::default(),
            progress: ProgressLines::default(),
            records: Records::default(),
            now: Timestamp::from_unix_millis(0),
            out: Vec::new(),
        }
    }

    pub(super) fn take_out(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn adaptations(&self) -> &[Adaptation] {
        self.records.told()
    }

    pub(super) fn take(&mut self, event: &AgentEvent) -> Passes {
        self.now = event.ts;
        match &event.kind {
            AgentEventKind::AssistantDelta { text } => self.delta(text),
            AgentEventKind::AssistantMessage { text } => self.message(text),
            AgentEventKind::ThinkingDelta { .. } => self.thought("thinking_delta"),
            AgentEventKind::ContentBlock { block_type, data } => {
                self.block(&PresentationType::parse(block_type), data)
            }
            AgentEventKind::RunCompleted { .. } => {
                self.finish();
                self.words(&event.kind)
            }
            AgentEventKind::Error { .. } => {
                self.end_passage();
                self.words(&event.kind)
            }
            AgentEventKind::RunStarted { .. } | AgentEventKind::Warning { .. } => {
                self.words(&event.kind)
            }
            // The agent turned to something else, or begins anew: what it said before is whole.
            AgentEventKind::ToolCall { .. }
            | AgentEventKind::PermissionRequested { .. }
            | AgentEventKind::RunResumed { .. } => {
                self.end_passage();
                Passes::AsItIs
            }
            // What was changed for somebody else: it is not what this client gets.
            AgentEventKind::Adapted { .. } => Passes::Not,
            _ => Passes::AsItIs,
        }
    }

    /// Tells what was held back, and what was changed.
    pub(super) fn finish(&mut self) {
        self.end_passage();
        if let Some(plain) = &mut self.plain {
            let counts = plain.take_counts();
            self.records.add_text("assistant_delta", &counts);
        }
        let now = self.now;
        let told = self.records.tell().into_iter();
        self.out.extend(
            told.map(|adaptation| AgentEvent::new(now, AgentEventKind::Adapted { adaptation })),
        );
    }

    fn delta(&mut self, text: &str) -> Passes {
        self.streamed.add(text);
        let Some(plain) = &mut self.plain else {
            return Passes::AsItIs;
        };
        plain.push(text);
        match plain.take() {
            text if text.is_empty() => Passes::Not,
            text => Passes::Changed(AgentEventKind::AssistantDelta { text }),
        }
    }

    fn message(&mut self, text: &str) -> Passes {
        self.end_passage();
        let streamed = std::mem::take(&mut self.streamed);
        let Some(plain) = &mut self.plain else {
            return Passes::AsItIs;
        };
        plain.restart();
        // What was streamed is repeated, not said again.
        let event = (!streamed.is(text)).then_some("assistant_message");
        let text = self.plain_text(text, event);
        Passes::Changed(AgentEventKind::AssistantMessage { text })
    }

    /// A whole text as plain text; what is changed in it is recorded for the event.
    fn plain_text(&mut self, markdown: &str, event: Option<&str>) -> String {
        let mut plain = PlainText::new(self.form);
        plain.push(markdown);
        plain.end_passage();
        if let Some(event) = event {
            self.records.add_text(event, &plain.take_counts());
        }
        plain.take()
    }

    /// Lets what is held back of the streamed text go.
    fn end_passage(&mut self) {
        let Some(plain) = &mut self.plain else {
            return;
        };
        plain.end_passage();
        let text = plain.take();
        if !text.is_empty() {
            self.say(AgentEventKind::AssistantDelta { text });
        }
    }

    fn say(&mut self, kind: AgentEventKind) {
        self.out.push(AgentEvent::new(self.now, kind));
    }

    /// Says something that the agent did not say in words: within the text that is being streamed, or
    /// else as a message of its own. The markdown is ours and not recorded.
    fn tell(&mut self, markdown: &str) {
        self.end_passage();
        let is_streaming = self.streamed.has_text();
        let kind = match &mut self.plain {
            Some(plain) if is_streaming => {
                plain.insert(markdown);
                AgentEventKind::AssistantDelta { text: plain.take() }
            }
            Some(_) => AgentEventKind::AssistantMessage {
                text: self.plain_text(markdown, None),
            },
            None if is_streaming => AgentEventKind::AssistantDelta {
                text: format!("\n\n{markdown}\n\n"),
            },
            None => AgentEventKind::AssistantMessage {
                text: markdown.to_owned(),
            },
        };
        self.say(kind);
    }

    /// An event in words, without characters that disguise them where plain text is wanted.
    fn words(&mut self, kind: &AgentEventKind) -> Passes {
        if self.plain.is_none() {
            return Passes::AsItIs;
        }
        let mut kind = kind.clone();
        let (AgentEventKind::RunStarted { message }
        | AgentEventKind::RunCompleted { message }
        | AgentEventKind::Warning { message }
        | AgentEventKind::Error { message, .. }) = &mut kind
        else {
            return Passes::AsItIs;
        };
        let counts = plain::remove_disguise(message);
        if counts.made().next().is_none() {
            return Passes::AsItIs;
        }
        self.records.add_text(kind.name(), &counts);
        Passes::Changed(kind)
    }

    fn thought(&mut self, event: &str) -> Passes {
        let kind = PresentationType::ThoughtTrace;
        if self.capabilities.supports(&kind) {
            return Passes::AsItIs;
        }
        let reason = unsupported(&kind);
        self.records
            .add(Adaptation::new(event, "thought", "nothing", reason));
        Passes::Not
    }

    fn block(&mut self, kind: &PresentationType, data: &Value) -> Passes {
        let supports = self.capabilities.supports(kind);
        match kind {
            PresentationType::ThoughtTrace => self.thought(kind.as_str()),
            PresentationType::MarkdownBlock if !supports || self.plain.is_some() => {
                self.markdown_block(data)
            }
            PresentationType::ProgressIndicator if !supports => self.progress(data),
            _ if supports => self.fit_images(kind, data),
            _ => {
                let description = blocks::describe(kind, data);
                let change =
                    Adaptation::new(kind.as_str(), "block", description.form, unsupported(kind));
                self.records.add(change);
                self.tell(&description.markdown);
                Passes::Not
            }
        }
    }

    fn markdown_block(&mut self, data: &Value) -> Passes {
        let kind = PresentationType::MarkdownBlock;
        let Some(content) = data.get("content").and_then(Value::as_str) else {
            let description = blocks::describe(&kind, data);
            let reason = "its content is not known";
            self.records.add(Adaptation::new(
                kind.as_str(),
                "block",
                description.form,
                reason,
            ));
            self.tell(&description.markdown);
            return Passes::Not;
        };
        let (form, reason) = match self.plain {
            Some(_) => ("plain text", "the client does not take markdown".to_owned()),
            None => ("markdown text", unsupported(&kind)),
        };
        self.records
            .add(Adaptation::new(kind.as_str(), "block", form, reason));
        self.tell(content);
        Passes::Not
    }

    fn progress(&mut self, data: &Value) -> Passes {
        let kind = PresentationType::ProgressIndicator;
        let line = match self.form {
            TextForm::Screen => self.progress.next(data),
            TextForm::Speech => None,
        };
        let form = if line.is_some() { "a line" } else { "nothing" };
        self.records.add(Adaptation::new(
            kind.as_str(),
            "block",
            form,
            unsupported(&kind),
        ));
        if let Some(line) = line {
            self.tell(&line);
        }
        Passes::Not
    }

    /// A block the client renders, with images of the size it prefers.
    fn fit_images(&mut self, kind: &PresentationType, data: &Value) -> Passes {
        let resolution = self.capabilities.resolution();
        let Some(fitted) = resolution.and_then(|one| images::fit(kind, data, one)) else {
            return Passes::AsItIs;
        };
        for change in fitted.changes {
            self.records.add(change);
        }
        if let Some(description) = fitted.left_out {
            self.tell(&description);
        }
        match fitted.data {
            Some(data) => Passes::Changed(AgentEventKind::ContentBlock {
                block_type: kind.as_str().to_owned(),
                data,
            }),
            None => Passes::Not,
        }
    }
}

fn unsupported(kind: &PresentationType) -> String {
    format!("the client does not list {kind}")
}

/// What was streamed since the last message, as far as it takes to recognise it.
#[derive(Debug, Default)]
struct Streamed {
    length: usize,
    sum: u64,
}

impl Streamed {
    fn add(&mut self, text: &str) {
        self.length += text.len();
        // FNV-1a: what came in pieces has the sum of the whole.
        for byte in text.bytes() {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn has_text(&self) -> bool {
        self.length > 0
    }

    fn is(&self, text: &str) -> bool {
        let mut whole = Self::default();
        whole.add(text);
        self.length == whole.length && self.sum == whole.sum
    }
}
