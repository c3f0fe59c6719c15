//! A line at the bottom that shows that something happens; on a terminal only.

use std::sync::Arc;
use std::time::Duration;

use abp_core::{AgentEvent, AgentEventKind, PresentationType};
use abp_workspace::StageProgress;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::output::{DIM, Output};
use crate::render::Progress;
use crate::text::one_line;

const TICK: Duration = Duration::from_millis(120);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// The line. It is drawn only where the cursor is at the start of a line, and taken away before
/// anything else is written.
#[derive(Debug)]
pub(crate) struct LiveLine {
    /// Absent where nobody watches.
    ticks: Option<Interval>,
    started: Instant,
    drawn: bool,
    frame: usize,
    events: u64,
    last: String,
    /// How far something is, where the run says so.
    progress: Option<String>,
    staging: Arc<StageProgress>,
}

impl LiveLine {
    pub(crate) fn new(watched: bool, staging: Arc<StageProgress>) -> Self {
        let ticks = watched.then(|| {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        Self {
            ticks,
            started: Instant::now(),
            drawn: false,
            frame: 0,
            events: 0,
            last: String::new(),
            progress: None,
            staging,
        }
    }

    /// Waits until the line should be drawn again; for ever where nobody watches.
    pub(crate) async fn tick(&mut self) {
        match &mut self.ticks {
            Some(ticks) => drop(ticks.tick().await),
            None => std::future::pending().await,
        }
    }

    pub(crate) fn draw(&mut self, output: &mut Output) {
        self.clear(output);
        self.frame = (self.frame + 1) % FRAMES.len();
        let frame = FRAMES.get(self.frame).copied().unwrap_or_default();
        let seconds = self.started.elapsed().as_secs_f64();
        let line = format!("{frame} {seconds:.1} s, {}", self.what());
        // A line that breaks could not be taken away again.
        let room = output.width().saturating_sub(1);
        let line: String = line.chars().take(room).collect();
        output.status(&format!("{DIM}{line}{DIM:#}"));
        self.drawn = true;
    }

    /// The last event; until the backend has its first one, how far the workspace is.
    fn what(&self) -> String {
        if let Some(progress) = &self.progress {
            return progress.clone();
        }
        match self.events {
            0 | 1 => format!(
                "workspace: {} files, {:.1} MB",
                self.staging.files(),
                self.staging.bytes() as f64 / 1e6
            ),
            events => format!("event {events}: {}", self.last),
        }
    }

    pub(crate) fn clear(&mut self, output: &mut Output) {
        if std::mem::take(&mut self.drawn) {
            output.clear_status();
        }
    }

    pub(crate) fn seen(&mut self, event: &AgentEvent) {
        self.events += 1;
        self.last = one_line(event.kind.name());
        if let AgentEventKind::ContentBlock { block_type, data } = &event.kind
            && PresentationType::parse(block_type) == PresentationType::ProgressIndicator
        {
            self.progress = Progress::of(data).and_then(|progress| progress.bar());
        }
    }
}
