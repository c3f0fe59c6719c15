//! Why a list of patterns was refused, with the pattern and its place in the list.

/// The longest part of a pattern that a message repeats.
const SHOWN_CHARS: usize = 80;

/// A list of patterns that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// A pattern has too many bytes.
    #[error(
        "pattern {index} {:?} has {length} bytes, more than {max}",
        shown(pattern)
    )]
    TooLong {
        /// The pattern's place in the list, from 0.
        index: usize,
        /// The pattern.
        pattern: String,
        /// Its length in bytes.
        length: usize,
        /// The most that is accepted.
        max: usize,
    },
    /// The list has too many patterns.
    #[error("list of {count} patterns, more than {max}")]
    TooMany {
        /// How many there are.
        count: usize,
        /// The most that are accepted.
        max: usize,
    },
    /// A pattern, or the list up to it, would cost too much to compile or to match.
    #[error("pattern {index} {:?} is too complex: {reason}", shown(pattern))]
    TooComplex {
        /// The pattern's place in the list, from 0.
        index: usize,
        /// The pattern.
        pattern: String,
        /// Which limit it exceeds.
        reason: String,
    },
    /// A pattern does not follow the syntax.
    #[error("pattern {index} {:?} is invalid: {reason}", shown(pattern))]
    Invalid {
        /// The pattern's place in the list, from 0.
        index: usize,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl GlobError {
    /// The place of the offending pattern, where one pattern is to blame.
    #[must_use]
    pub const fn index(&self) -> Option<usize> {
        match self {
            Self::TooLong { index, .. }
            | Self::TooComplex { index, .. }
            | Self::Invalid { index, .. } => Some(*index),
            Self::TooMany { .. } => None,
        }
    }

    /// The offending pattern, where one pattern is to blame.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        match self {
            Self::TooLong { pattern, .. }
            | Self::TooComplex { pattern, .. }
            | Self::Invalid { pattern, .. } => Some(pattern),
            Self::TooMany { .. } => None,
        }
    }

    /// The same error about the pattern as somebody wrote it, where a list was compiled from
    /// rewritten patterns.
    #[must_use]
    pub fn as_written(mut self, patterns: &[String]) -> Self {
        if let Self::TooLong { index, pattern, .. }
        | Self::TooComplex { index, pattern, .. }
        | Self::Invalid { index, pattern, .. } = &mut self
            && let Some(written) = patterns.get(*index)
        {
            pattern.clone_from(written);
        }
        self
    }
}

fn shown(pattern: &str) -> String {
    let mut chars = pattern.chars();
    let mut shown: String = chars.by_ref().take(SHOWN_CHARS).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}
