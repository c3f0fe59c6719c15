//! The address and the title of a link.

use super::{Bracket, Step, through};
use crate::present::plain::line::is_white;

/// Addresses nest parentheses no deeper.
const MAX_PARENS: usize = 32;

/// What follows the text of a link.
#[derive(Debug)]
pub(super) struct Tail {
    /// Where the parenthesis is.
    pub(super) from: usize,
    pub(super) bracket: Bracket,
    phase: TailPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TailPhase {
    Start,
    Pointed,
    Bare { depth: usize },
    AfterAddress,
    Title { close: u8 },
    AfterTitle,
}

impl Tail {
    pub(super) fn new(from: usize, bracket: Bracket) -> Self {
        Self {
            from,
            bracket,
            phase: TailPhase::Start,
        }
    }

    pub(super) fn step(&mut self, rest: &[u8]) -> Step {
        use TailPhase::{AfterAddress, AfterTitle, Bare, Pointed, Start, Title};
        let mut at = 0;
        while let Some(&byte) = rest.get(at) {
            if byte == b'\n' {
                match self.phase {
                    Pointed => return Step::Wrong,
                    Bare { depth: 0 } => self.phase = AfterAddress,
                    Bare { .. } => return Step::Wrong,
                    Start | AfterAddress | Title { .. } | AfterTitle => {}
                }
                return through(Some(at), rest);
            }
            if byte == b'\\' && self.phase == Start {
                self.phase = Bare { depth: 0 };
            }
            let in_words = matches!(self.phase, Pointed | Bare { .. } | Title { .. });
            if byte == b'\\' && in_words {
                match rest.get(at + 1) {
                    None => return Step::Through(at),
                    Some(next) if next.is_ascii_punctuation() => at += 2,
                    Some(_) => at += 1,
                }
                continue;
            }
            self.phase = match (self.phase, byte) {
                (Start | AfterAddress | AfterTitle | Bare { depth: 0 }, b')') => {
                    return Step::Done(at + 1);
                }
                (Start, b'<') => Pointed,
                (Pointed, b'>') => AfterAddress,
                (Pointed, b'<') => return Step::Wrong,
                (AfterAddress, b'"' | b'\'') => Title { close: byte },
                (AfterAddress, b'(') => Title { close: b')' },
                (Title { close }, byte) if byte == close => AfterTitle,
                (Title { close: b')' }, b'(') => return Step::Wrong,
                (Bare { depth }, b'(') if depth < MAX_PARENS => Bare { depth: depth + 1 },
                (Bare { .. }, b'(') => return Step::Wrong,
                (Bare { depth }, b')') => Bare { depth: depth - 1 },
                (Bare { depth: 0 }, byte) if byte <= b' ' => AfterAddress,
                (Bare { .. }, byte) if byte <= b' ' => return Step::Wrong,
                (Start, b'(') => Bare { depth: 1 },
                (Start, byte) if !is_white(byte) => Bare { depth: 0 },
                (AfterAddress | AfterTitle, byte) if !is_white(byte) => return Step::Wrong,
                (phase, _) => phase,
            };
            at += 1;
        }
        Step::Through(at)
    }
}
