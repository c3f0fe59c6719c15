//! What text looks like on a terminal.

/// How a piece of text is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Heading,
    Strong,
    Emphasis,
    Struck,
    Code,
    Link,
    /// What stands beside the words: addresses, bars.
    Aside,
}

impl Style {
    /// Back to how text usually looks.
    pub(super) const RESET: &'static str = "\u{1b}[0m";

    /// The sequence that begins it.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Heading => "\u{1b}[1;4m",
            Self::Strong => "\u{1b}[1m",
            Self::Emphasis => "\u{1b}[3m",
            Self::Struck => "\u{1b}[9m",
            Self::Code => "\u{1b}[36m",
            Self::Link => "\u{1b}[4m",
            Self::Aside => "\u{1b}[2m",
        }
    }
}
