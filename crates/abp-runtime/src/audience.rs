//! The client that follows a run: what it gets, and what was changed for it.

use abp_core::{Adaptation, AgentEvent, AgentEventKind, ClientCapabilities};
use abp_stream::{Presented, Presenter};

/// Presents the events of one run to one client, off the async workers where that takes long.
///
/// The runtime has one to know what the receipt has to say; whoever writes to the client has another.
/// Both see the same events and so make the same changes.
#[derive(Debug)]
pub struct Audience {
    client: Option<ClientCapabilities>,
    presenter: Presenter,
}

impl Audience {
    /// The audience of a client; one without capabilities takes everything.
    #[must_use]
    pub fn new(client: Option<ClientCapabilities>) -> Self {
        Self {
            presenter: Presenter::for_client(client.clone()),
            client,
        }
    }

    /// What the client gets for the next event of the run.
    pub async fn present<'e>(&mut self, event: &'e AgentEvent) -> Presented<'e> {
        let may_hold_images = matches!(event.kind, AgentEventKind::ContentBlock { .. });
        if self.client.is_none() || !may_hold_images {
            return self.presenter.push(event);
        }
        let mut presenter = std::mem::replace(&mut self.presenter, Presenter::for_client(None));
        let block = event.clone();
        let work = move || {
            let changed = match presenter.push(&block) {
                Presented::Unchanged(_) => None,
                Presented::Changed(events) => Some(events),
            };
            (presenter, changed)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((presenter, changed)) => {
                self.presenter = presenter;
                changed.map_or(Presented::Unchanged(event), Presented::Changed)
            }
            Err(problem) => {
                self.presenter = Presenter::for_client(self.client.clone());
                let message = format!("a block could not be presented: {problem}");
                let warning = AgentEventKind::Warning { message };
                Presented::Changed(vec![AgentEvent::new(event.ts, warning)])
            }
        }
    }

    /// The run is over: what was held back, and what was changed since that was told last.
    pub fn finish(&mut self) -> Vec<AgentEvent> {
        self.presenter.finish()
    }

    /// What was changed for the client, once that was told.
    #[must_use]
    pub fn adaptations(&self) -> &[Adaptation] {
        self.presenter.adaptations()
    }

    /// What is to be told before an event: changes that were made.
    pub(crate) async fn told_before(&mut self, event: &AgentEvent) -> Vec<AgentEvent> {
        match self.present(event).await {
            Presented::Unchanged(_) => Vec::new(),
            Presented::Changed(mut events) => {
                events.retain(|event| matches!(event.kind, AgentEventKind::Adapted { .. }));
                events
            }
        }
    }
}
