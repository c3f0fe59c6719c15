//! Events and plans as people read them.

mod block;

use abp_core::{Adaptation, AgentEventKind, CandidateReport, PermissionOutcome, PlanEntry};
use abp_stream::TerminalText;

pub(crate) use self::block::Progress;

use self::block::Blocks;
use crate::output::{BAD, DIM, GOOD, NOTE, Output, PLACE, STRONG};
use crate::text::{one_line, printable};

/// Writes events as they happen. Streamed text goes out as it comes.
#[derive(Debug)]
pub(crate) struct EventPrinter {
    /// Renders markdown, on a terminal that shows styles.
    markdown: Option<TerminalText>,
    blocks: Blocks,
    /// What was written last.
    last: Last,
    /// Whether the agent's text was streamed, so that the whole message need not be repeated.
    streamed: bool,
    /// Whether the last character written was not a newline.
    in_line: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Last {
    Line,
    Words,
    Thought,
}

impl EventPrinter {
    pub(crate) fn new(output: &Output) -> Self {
        Self {
            markdown: output.is_coloured().then(TerminalText::new),
            blocks: Blocks::default(),
            last: Last::Line,
            streamed: false,
            in_line: false,
        }
    }

    pub(crate) fn print(&mut self, kind: &AgentEventKind, output: &mut Output) {
        match kind {
            AgentEventKind::AssistantDelta { text } => {
                self.streamed = true;
                self.say(text, output);
            }
            AgentEventKind::ThinkingDelta { text } => {
                self.turn_to(Last::Thought, output);
                self.stream(&format!("{DIM}{}{DIM:#}", printable(text)), output);
            }
            AgentEventKind::AssistantMessage { text } => {
                if !std::mem::take(&mut self.streamed) {
                    self.end_line(output);
                    self.say(text, output);
                }
                self.end_line(output);
            }
            AgentEventKind::ContentBlock { block_type, data } => {
                for line in self.blocks.lines(block_type, data) {
                    self.end_line(output);
                    output.line(&line);
                }
            }
            other => {
                if let Some(line) = describe(other) {
                    self.end_line(output);
                    output.line(&line);
                }
            }
        }
    }

    /// Writes what the agent says.
    fn say(&mut self, text: &str, output: &mut Output) {
        self.turn_to(Last::Words, output);
        match &mut self.markdown {
            Some(markdown) => {
                let shown = markdown.push(text);
                self.stream(&shown, output);
            }
            None => self.stream(&printable(text), output),
        }
    }

    /// Thoughts and words do not share a line.
    fn turn_to(&mut self, next: Last, output: &mut Output) {
        if self.last != next {
            self.end_line(output);
            self.last = next;
        }
    }

    /// Whether streamed text left a line open.
    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line
    }

    /// Ends a line that streamed text left open.
    pub(crate) fn end_line(&mut self, output: &mut Output) {
        if let Some(markdown) = &mut self.markdown {
            let rest = markdown.end();
            self.stream(&rest, output);
        }
        self.last = Last::Line;
        if std::mem::take(&mut self.in_line) {
            output.line("");
        }
    }

    fn stream(&mut self, text: &str, output: &mut Output) {
        if !text.is_empty() {
            output.write(text);
            self.in_line = !text.ends_with('\n');
        }
    }
}

/// One line for an event; `None` for what the summary tells better.
fn describe(kind: &AgentEventKind) -> Option<String> {
    let line = match kind {
        AgentEventKind::RunStarted { message } => {
            format!("{STRONG}▸ {}{STRONG:#}", one_line(message))
        }
        AgentEventKind::RunResumed { attempt, .. } => {
            format!("{STRONG}▸ attempt {attempt}{STRONG:#}")
        }
        AgentEventKind::ToolCall {
            tool_name, input, ..
        } => {
            let target = ["path", "command", "pattern"]
                .iter()
                .find_map(|key| input.get(key)?.as_str());
            format!(
                "  {PLACE}{}{PLACE:#} {}",
                one_line(tool_name),
                one_line(target.unwrap_or_default())
            )
        }
        AgentEventKind::ToolResult {
            tool_name,
            output,
            is_error: true,
            ..
        } => {
            let problem = output.get("error").and_then(|error| error.as_str());
            let problem = problem.map_or_else(|| output.to_string(), str::to_owned);
            format!(
                "  {BAD}✗{BAD:#} {}: {}",
                one_line(tool_name),
                one_line(&problem)
            )
        }
        AgentEventKind::FileChanged { path, summary } => {
            format!("  {GOOD}±{GOOD:#} {} {}", one_line(path), one_line(summary))
        }
        AgentEventKind::CommandExecuted {
            command, exit_code, ..
        } => {
            let status = exit_code.map_or_else(|| "?".to_owned(), |code| code.to_string());
            format!("  $ {} {DIM}(exit {status}){DIM:#}", one_line(command))
        }
        AgentEventKind::Warning { message } => format!("{NOTE}! {}{NOTE:#}", one_line(message)),
        AgentEventKind::Error {
            message,
            error_code,
        } => {
            let code = error_code
                .map(|code| format!("[{code}]"))
                .unwrap_or_default();
            format!("{BAD}error{BAD:#}{code}: {}", one_line(message))
        }
        AgentEventKind::PlanUpdated { entries } => plan(entries),
        AgentEventKind::PermissionRequested { .. } | AgentEventKind::PermissionResolved { .. } => {
            return permission(kind);
        }
        AgentEventKind::SessionStarted { session_id } => dim(&format!("session {session_id}")),
        AgentEventKind::Adapted { adaptation } => {
            let Adaptation {
                event,
                from,
                to,
                reason,
                ..
            } = adaptation;
            dim(&format!("adapted {event}: {from} → {to} ({reason})"))
        }
        AgentEventKind::NetworkConnection {
            host,
            allowed: false,
            rule,
            ..
        } => format!(
            "  {BAD}refused{BAD:#} connection to {} ({})",
            one_line(host),
            one_line(rule)
        ),
        AgentEventKind::NetworkConnection {
            host,
            bytes_up,
            bytes_down,
            ..
        } => dim(&format!(
            "connected to {host} ({bytes_up} bytes sent, {bytes_down} received)"
        )),
        AgentEventKind::Opaque(event) => dim(&format!("{} (unknown to this version)", event.kind)),
        _ => return None,
    };
    Some(line)
}

fn dim(text: &str) -> String {
    format!("  {DIM}{}{DIM:#}", one_line(text))
}

fn plan(entries: &[PlanEntry]) -> String {
    let line = |entry: &PlanEntry| {
        format!(
            "  [{}] {}",
            one_line(&entry.status),
            one_line(&entry.content)
        )
    };
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn permission(kind: &AgentEventKind) -> Option<String> {
    let subject = |tool: &str, target: &Option<String>| {
        let target = target.as_deref().unwrap_or_default();
        one_line(format!("{tool} {target}").trim_end())
    };
    match kind {
        AgentEventKind::PermissionRequested {
            tool_name,
            target,
            reason,
            ..
        } => Some(format!(
            "  {NOTE}?{NOTE:#} {}: {}",
            subject(tool_name, target),
            one_line(reason)
        )),
        AgentEventKind::PermissionResolved {
            tool_name,
            target,
            outcome,
            decided_by,
            decided_via,
            reason,
            ..
        } => {
            let (style, word) = match outcome {
                PermissionOutcome::Approved => (GOOD, "approved"),
                PermissionOutcome::Denied => (BAD, "denied"),
            };
            let by = match decided_via {
                Some(via) => one_line(&format!("{decided_by} ({via})")),
                None => one_line(decided_by),
            };
            let (subject, reason) = (subject(tool_name, target), one_line(reason));
            Some(format!(
                "  {style}{word}{style:#} {subject} by {by}: {reason}"
            ))
        }
        _ => None,
    }
}

/// The candidates of a selection, with their reasons.
pub(crate) fn candidates(candidates: &[CandidateReport], output: &mut Output) {
    for candidate in candidates {
        let style = if candidate.eligible { GOOD } else { BAD };
        output.line(&format!(
            "{style}{}{style:#}  {DIM}score {:.3}{DIM:#}",
            one_line(&candidate.backend),
            candidate.score.total
        ));
        for reason in &candidate.reasons {
            output.line(&format!("  {}", one_line(reason)));
        }
    }
}

/// A diff, coloured line by line.
pub(crate) fn diff(text: &str, output: &mut Output) {
    for line in text.lines() {
        let line_text = printable(line);
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => {
                STRONG
            }
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', ..] => PLACE,
            _ => {
                output.line(&line_text);
                continue;
            }
        };
        output.line(&format!("{style}{line_text}{style:#}"));
    }
}
