//! Whether something is open within the text of a paragraph.
//!
//! The parser decides what constructs there are; this scanner only tells where it can be asked. It
//! follows delimiters, brackets, code and tags as CommonMark does, and where two readings are
//! possible it takes the one that stays open longer: holding on to text is always right, letting go
//! of it too early is not.

mod angle;
mod delimiter;
mod tail;

use angle::Angle;
use delimiter::{Delimiter, flanks};
use tail::Tail;

/// Beyond so many open delimiters or brackets nothing is followed any more.
const MAX_OPEN: usize = 64;
/// The longest name an entity can have, and some more.
const MAX_ENTITY: usize = 40;

/// What comes next in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More text is needed to tell.
    More,
    /// Everything up to there was looked at; a step back where a guess was wrong.
    To(usize),
    /// A construct that is whole at once.
    Whole(usize),
    /// A character that a backslash protects.
    Escape,
    /// The end of the line.
    Newline,
}

/// Follows the text of one paragraph.
#[derive(Debug, Default)]
pub(super) struct Inline {
    mode: Mode,
    delimiters: Vec<Delimiter>,
    brackets: Vec<Bracket>,
    /// The parser does not look for an opening tilde below, once it found none there.
    tilde_floor: usize,
}

#[derive(Debug, Default)]
enum Mode {
    #[default]
    Text,
    /// In code that so many backticks end.
    Code(usize),
    /// In what may be a tag or an address.
    Angle(Angle),
    /// In what may be the address of a link.
    Tail(Tail),
    /// Too much is open.
    Lost,
}

/// An open bracket. What is in it is read as the text of a link, apart from what is around it.
#[derive(Debug, Clone, Copy)]
struct Bracket {
    is_image: bool,
    /// How many delimiters were open before it.
    bottom: usize,
    /// The floor that was before it.
    tilde_floor: usize,
    /// Whether it holds a link, so that it cannot be one.
    has_link: bool,
    /// Whether something in it would close something before it, were it not a link.
    is_leaky: bool,
}

impl Inline {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.mode, Mode::Text) || !self.delimiters.is_empty() || !self.brackets.is_empty()
    }

    /// Text before `by` was let go: places move.
    pub(super) fn shift(&mut self, by: usize) {
        match &mut self.mode {
            Mode::Angle(angle) => angle.from -= by,
            Mode::Tail(tail) => tail.from -= by,
            Mode::Text | Mode::Code(_) | Mode::Lost => {}
        }
    }

    /// Looks at what comes at `at`; `last` says that nothing follows the text, `before` is the
    /// character before that place.
    pub(super) fn next(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        before: impl Fn() -> Option<char>,
    ) -> Next {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        let step = match &mut self.mode {
            Mode::Text => return self.text(text, rest, at, last, before),
            Mode::Code(ticks) => code(rest, *ticks, last),
            Mode::Angle(angle) => angle.step(text, at),
            Mode::Tail(tail) => tail.step(rest),
            Mode::Lost => through(rest.iter().position(|byte| *byte == b'\n'), rest),
        };
        match step {
            Step::Through(0) => Next::More,
            Step::Through(to) => Next::To(at + to),
            Step::Newline => Next::Newline,
            Step::Done(to) => {
                self.end_mode();
                Next::To(at + to)
            }
            Step::Wrong => Next::To(self.leave_mode(at)),
            Step::Unknown => {
                self.give_up();
                Next::To(at)
            }
        }
    }

    /// The construct is whole.
    fn end_mode(&mut self) {
        if let Mode::Tail(Tail { bracket, .. }) = std::mem::take(&mut self.mode) {
            self.delimiters.truncate(bracket.bottom);
            self.tilde_floor = bracket.tilde_floor;
            if !bracket.is_image {
                self.brackets.iter_mut().for_each(|one| one.has_link = true);
            }
        }
    }

    /// Follows nothing any more: whatever is open stays open.
    pub(super) fn give_up(&mut self) {
        self.mode = Mode::Lost;
    }

    /// There is no such construct; returns where to read on.
    fn leave_mode(&mut self, at: usize) -> usize {
        match std::mem::take(&mut self.mode) {
            Mode::Angle(angle) => angle.from + 1,
            Mode::Tail(tail) => {
                self.settle(tail.bracket);
                tail.from
            }
            Mode::Text | Mode::Code(_) | Mode::Lost => at,
        }
    }

    /// A bracket was no link, as far as its text tells: it may still be one that is defined elsewhere.
    /// Where that makes a difference, nobody can tell what is open.
    fn settle(&mut self, bracket: Bracket) {
        if bracket.is_leaky || self.delimiters.len() > bracket.bottom {
            self.give_up();
        }
    }

    fn text(
        &mut self,
        text: &str,
        rest: &[u8],
        at: usize,
        last: bool,
        before: impl Fn() -> Option<char>,
    ) -> Next {
        let plain = rest.iter().position(|byte| is_special(*byte));
        let Some(0) = plain else {
            return match plain.unwrap_or(rest.len()) {
                0 => Next::More,
                plain => Next::To(at + plain),
            };
        };
        let second = rest.get(1).copied();
        match (rest.first().copied().unwrap_or_default(), second) {
            (b'\n', _) => Next::Newline,
            (b'*' | b'_' | b'~', _) => self.run(text, at, last, before),
            (b'`', _) => {
                let ticks = rest.iter().take_while(|byte| **byte == b'`').count();
                if ticks == rest.len() && !last {
                    return Next::More;
                }
                self.mode = Mode::Code(ticks);
                Next::To(at + ticks)
            }
            (b'[', _) => self.bracket(at + 1, false),
            (b'&', _) => entity(rest, at, last),
            (_, None) if !last => Next::More,
            (b'\\', Some(next)) if next.is_ascii_punctuation() => Next::Escape,
            (b'!', Some(b'[')) => self.bracket(at + 2, true),
            (b']', _) => self.close_bracket(at, second),
            (b'<', Some(next)) => self.angle(at, next),
            _ => Next::To(at + 1),
        }
    }

    fn bracket(&mut self, to: usize, is_image: bool) -> Next {
        self.brackets.push(Bracket {
            is_image,
            bottom: self.delimiters.len(),
            tilde_floor: self.tilde_floor,
            has_link: false,
            is_leaky: false,
        });
        self.give_up_beyond_limit();
        Next::To(to)
    }

    fn close_bracket(&mut self, at: usize, next: Option<u8>) -> Next {
        let Some(bracket) = self.brackets.pop() else {
            return Next::To(at + 1);
        };
        if next == Some(b'(') && (bracket.is_image || !bracket.has_link) {
            self.mode = Mode::Tail(Tail::new(at + 1, bracket));
            return Next::To(at + 2);
        }
        self.settle(bracket);
        match next {
            // The label of the link that the bracket was the text of.
            Some(b'[') => return self.bracket(at + 2, false),
            // The parser takes a bracket for the beginning of a label even behind a backslash.
            Some(b'\\') => self.give_up(),
            _ => {}
        }
        Next::To(at + 1)
    }

    fn angle(&mut self, at: usize, next: u8) -> Next {
        if let Some(angle) = Angle::new(at, next) {
            self.mode = Mode::Angle(angle);
        }
        Next::To(at + 1)
    }

    /// A run of delimiters.
    fn run(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        before: impl Fn() -> Option<char>,
    ) -> Next {
        let rest = text.get(at..).unwrap_or_default();
        let byte = rest.as_bytes().first().copied().unwrap_or_default();
        let run = rest.bytes().take_while(|one| *one == byte).count();
        let after = rest.get(run..).and_then(|rest| rest.chars().next());
        if after.is_none() && !last {
            return Next::More;
        }
        if byte == b'~' && run > 2 {
            return Next::To(at + run);
        }
        let (opens, closes) = flanks(byte, run, before(), after);
        let mut count = run;
        if closes {
            count = self.close(byte, run, opens);
            if let Some(bracket) = self.brackets.last_mut() {
                bracket.is_leaky |= count > 0 && bracket.bottom > 0;
            }
        }
        if opens && count > 0 {
            self.delimiters.push(Delimiter {
                byte,
                count,
                run,
                both: closes,
            });
            self.give_up_beyond_limit();
        }
        Next::To(at + run)
    }

    /// Closes what a run can close; returns how many of its delimiters are left.
    fn close(&mut self, byte: u8, run: usize, both: bool) -> usize {
        let mut bottom = self.brackets.last().map_or(0, |bracket| bracket.bottom);
        if byte == b'~' {
            bottom = bottom.max(self.tilde_floor);
        }
        let mut count = run;
        while count > 0 {
            let open = self.delimiters.get(bottom..).unwrap_or_default();
            let found = open
                .iter()
                .rposition(|one| one.byte == byte && one.matches(run, both));
            let Some(found) = found else {
                if byte == b'~' {
                    self.tilde_floor = self.delimiters.len();
                }
                break;
            };
            self.delimiters.truncate(bottom + found + 1);
            let Some(opener) = self.delimiters.last_mut() else {
                break;
            };
            let matched = count.min(opener.count);
            count -= matched;
            opener.count -= matched;
            if opener.count == 0 {
                self.delimiters.pop();
            }
            self.tilde_floor = self.tilde_floor.min(self.delimiters.len());
        }
        count
    }

    fn give_up_beyond_limit(&mut self) {
        if self.delimiters.len() > MAX_OPEN || self.brackets.len() > MAX_OPEN {
            self.give_up();
        }
    }
}

/// What a step within a construct came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It goes on; so much was looked at.
    Through(usize),
    /// The line ends here.
    Newline,
    /// It ends there.
    Done(usize),
    /// It is no such construct.
    Wrong,
    /// Nobody can tell yet.
    Unknown,
}

/// Whether the end of a text is on a line that only its rest keeps from beginning code.
pub(super) fn depends_on_rest_of_line(text: &str) -> bool {
    let line = text.rsplit_once('\n').map(|(_, line)| line.trim_start());
    line.is_some_and(|line| line.starts_with("```"))
}

/// A step up to the end of the line, where that is known.
fn through(newline: Option<usize>, rest: &[u8]) -> Step {
    match newline {
        Some(0) => Step::Newline,
        Some(to) => Step::Through(to),
        None => Step::Through(rest.len()),
    }
}

/// Looks for the backticks that end code.
fn code(rest: &[u8], ticks: usize, last: bool) -> Step {
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\n' => return through(Some(at), rest),
            b'`' => {
                let tail = rest.get(at..).unwrap_or_default();
                let run = tail.iter().take_while(|byte| **byte == b'`').count();
                if run == tail.len() && !last {
                    return Step::Through(at);
                }
                at += run;
                if run == ticks {
                    return Step::Done(at);
                }
            }
            _ => at += 1,
        }
    }
    Step::Through(at)
}

/// An entity is whole once its semicolon is there.
fn entity(rest: &[u8], at: usize, last: bool) -> Next {
    let name = rest.iter().skip(1).take(MAX_ENTITY);
    let name = name
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'#')
        .count();
    match rest.get(name + 1) {
        Some(b';') if name > 0 => Next::Whole(at + name + 2),
        None if !last => Next::More,
        _ => Next::To(at + 1),
    }
}

/// Bytes that may be more than themselves.
pub(super) fn is_special(byte: u8) -> bool {
    matches!(
        byte,
        b'\n' | b'\\' | b'`' | b'*' | b'_' | b'~' | b'[' | b']' | b'!' | b'<' | b'&'
    )
}
