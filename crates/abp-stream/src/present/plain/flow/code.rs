//! Code: its lines pass as they come.

use super::{Flow, Progress, State};
use crate::present::plain::line::{dedent, indent, line_of};
use crate::present::plain::render::Render;
use crate::present::plain::style::Style;

/// What a line must be to end the code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fence {
    byte: u8,
    length: usize,
    indent: usize,
    /// Whether the beginning of the line has passed already.
    in_line: bool,
}

impl Fence {
    /// The fence that opens code.
    pub(super) fn new(line: &str) -> Self {
        let text = line.trim_start();
        let byte = text.bytes().next().unwrap_or_default();
        Self {
            byte,
            length: text.bytes().take_while(|one| *one == byte).count(),
            indent: indent(line),
            in_line: false,
        }
    }

    /// Whether a line ends the code; `None` where its beginning does not tell.
    fn is_closed_by(&self, text: &str, last: bool) -> Option<bool> {
        let fence = text.trim_start_matches(' ');
        if text.len() - fence.len() > 3 {
            return Some(false);
        }
        let run = fence.bytes().take_while(|one| *one == self.byte).count();
        let after = fence.get(run..).unwrap_or_default().trim_start_matches(' ');
        match after.bytes().next() {
            None if !last => None,
            None | Some(b'\n') => Some(run >= self.length),
            Some(_) => Some(false),
        }
    }
}

impl Flow {
    pub(super) fn fence(&mut self, mut fence: Fence, last: bool, out: &mut Render) -> Progress {
        let closed = match fence.in_line {
            true => Some(false),
            false => fence.is_closed_by(&self.held, last),
        };
        let (Some(closed), false) = (closed, self.held.is_empty()) else {
            self.state = State::Fence(fence);
            return Progress::Waiting;
        };
        let line = line_of(&self.held, true).unwrap_or_default();
        let length = line.len();
        if closed {
            self.release(length);
            out.sink.block();
            return Progress::Made;
        }
        let text = line.trim_end_matches('\n');
        if fence.in_line {
            out.sink.styled(Style::Code, text);
        } else {
            out.sink.styled(Style::Code, &dedent(text, fence.indent));
        }
        fence.in_line = text.len() == length;
        if !fence.in_line {
            out.sink.code_break();
        }
        self.release(length);
        self.state = State::Fence(fence);
        Progress::Made
    }

    pub(super) fn code(&mut self, last: bool, out: &mut Render) -> Progress {
        let Some(line) = line_of(self.rest(), last) else {
            self.state = State::Code;
            return Progress::Waiting;
        };
        let end = self.at + line.len();
        if line.trim_ascii().is_empty() {
            self.at = end;
            self.state = State::Code;
        } else if indent(line) < 4 {
            self.release(self.at);
            out.sink.block();
        } else {
            let lines = self.held.get(..end).unwrap_or_default();
            for line in lines.split_inclusive('\n') {
                let text = line.trim_end_matches('\n');
                out.sink.styled(Style::Code, &dedent(text, 4));
                if text.len() < line.len() {
                    out.sink.code_break();
                }
            }
            self.release(end);
            self.state = State::Code;
        }
        Progress::Made
    }
}
