//! Runs for the tests to present.

use abp_core::{AgentEvent, AgentEventKind, ClientCapabilities, Timestamp};
use abp_stream::{Presenter, TextForm};
use serde_json::Value;

pub(crate) fn event(kind: AgentEventKind) -> AgentEvent {
    AgentEvent::new(Timestamp::from_unix_millis(1), kind)
}

pub(crate) fn delta(text: &str) -> AgentEvent {
    let text = text.to_owned();
    event(AgentEventKind::AssistantDelta { text })
}

pub(crate) fn message(text: &str) -> AgentEvent {
    let text = text.to_owned();
    event(AgentEventKind::AssistantMessage { text })
}

pub(crate) fn block(block_type: &str, data: Value) -> AgentEvent {
    let block_type = block_type.to_owned();
    event(AgentEventKind::ContentBlock { block_type, data })
}

pub(crate) fn client(events: &[&str], markdown: bool, images: Option<&str>) -> ClientCapabilities {
    ClientCapabilities {
        supported_events: events.iter().map(|name| (*name).to_owned()).collect(),
        prefers_markdown: markdown,
        image_resolution: images.map(str::to_owned),
    }
}

/// A client that is spoken to.
pub(crate) fn voice() -> Presenter {
    Presenter::new(Some(client(&[], false, None)), TextForm::Speech)
}

/// What a client gets for these events, and at the end; without the `adapted` events.
pub(crate) fn presented(presenter: &mut Presenter, events: &[AgentEvent]) -> Vec<AgentEventKind> {
    let mut out = Vec::new();
    for event in events {
        let events = presenter.push(event).events();
        out.extend(events.map(|event| event.into_owned().kind));
    }
    out.extend(presenter.finish().into_iter().map(|event| event.kind));
    out.retain(|kind| !matches!(kind, AgentEventKind::Adapted { .. }));
    out
}

/// What is recorded: form before, form after, how often.
pub(crate) fn changes(presenter: &Presenter) -> Vec<(&str, &str, u64)> {
    presenter
        .adaptations()
        .iter()
        .map(|change| (change.from.as_str(), change.to.as_str(), change.count))
        .collect()
}
