//! Blocks as a terminal shows them.

use abp_core::PresentationType;
use serde_json::Value;

use crate::output::{BAD, DIM, GOOD, PLACE};
use crate::text::one_line;

/// How wide a bar is, in characters.
const BAR: usize = 20;

/// Writes blocks; of something that goes on, only what is new.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The label and status of the last progress.
    progress: Option<(String, String)>,
}

impl Blocks {
    pub(super) fn lines(&mut self, block_type: &str, data: &Value) -> Vec<String> {
        match PresentationType::parse(block_type) {
            PresentationType::ProgressIndicator => self.progress(data).into_iter().collect(),
            PresentationType::CitationBlock => citations(data),
            PresentationType::ThoughtTrace => {
                let thought = text(data, "thought").unwrap_or(block_type);
                vec![dim(thought)]
            }
            PresentationType::MediaCarousel
            | PresentationType::MarkdownBlock
            | PresentationType::Other(_) => vec![dim(block_type)],
        }
    }

    fn progress(&mut self, data: &Value) -> Option<String> {
        let progress = Progress::of(data)?;
        let now = Some((progress.label.clone(), progress.status.clone()));
        let is_news = self.progress != now;
        self.progress = now;
        is_news.then(|| progress.line())
    }
}

/// How far something is.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    status: String,
    /// Between 0 and 1.
    share: Option<f64>,
}

impl Progress {
    pub(crate) fn of(data: &Value) -> Option<Self> {
        let share = data.get("progress_percent").and_then(Value::as_f64);
        Some(Self {
            label: one_line(text(data, "label")?),
            status: text(data, "status").unwrap_or("running").to_owned(),
            share: share.map(|share| share.clamp(0.0, 1.0)),
        })
    }

    fn line(&self) -> String {
        let label = &self.label;
        match self.status.as_str() {
            "complete" => format!("  {GOOD}✓{GOOD:#} {label}"),
            "failed" => format!("  {BAD}✗{BAD:#} {label}"),
            _ => format!("  {DIM}… {label}{DIM:#}"),
        }
    }

    /// A bar for the line at the bottom; none where it is over.
    pub(crate) fn bar(&self) -> Option<String> {
        if matches!(self.status.as_str(), "complete" | "failed") {
            return None;
        }
        let Some(share) = self.share else {
            return Some(self.label.clone());
        };
        let full = (0..BAR)
            .filter(|at| (*at as f64 + 0.5) / BAR as f64 <= share)
            .count();
        let (done, left) = ("━".repeat(full), "─".repeat(BAR - full));
        Some(format!(
            "{} {done}{left} {:.0} %",
            self.label,
            share * 100.0
        ))
    }
}

/// Sources, numbered, each with its address and what it says.
fn citations(data: &Value) -> Vec<String> {
    let items = ["citations", "items"]
        .iter()
        .find_map(|name| data.get(name)?.as_array());
    let items = items.into_iter().flatten().enumerate();
    let lines = items.map(|(index, item)| {
        let address = text(item, "uri").or(text(item, "url")).unwrap_or_default();
        let title = text(item, "title")
            .or(text(item, "source_id"))
            .unwrap_or(address);
        let snippet = text(item, "snippet").map(|snippet| format!(" “{}”", one_line(snippet)));
        format!(
            "  {DIM}[{}]{DIM:#} {} {PLACE}{}{PLACE:#}{DIM}{}{DIM:#}",
            index + 1,
            one_line(title),
            one_line(address),
            snippet.unwrap_or_default()
        )
    });
    lines.collect()
}

fn text<'d>(data: &'d Value, name: &str) -> Option<&'d str> {
    let text = data.get(name)?.as_str()?;
    (!text.trim().is_empty()).then_some(text)
}

fn dim(text: &str) -> String {
    format!("  {DIM}{}{DIM:#}", one_line(text))
}
