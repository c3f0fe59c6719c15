//! What can be different between markdown and the plain text made of it.

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::present) enum Construct {
    Heading,
    Emphasis,
    Strikethrough,
    CodeSpan,
    CodeBlock,
    Link,
    Image,
    ListItem,
    TableRow,
    Quote,
    Rule,
    Html,
    Definition,
    Escape,
    Control,
    Overlong,
}

const NO_MARKDOWN: &str = "the client does not take markdown";

impl Construct {
    const ALL: [Self; 16] = [
        Self::Heading,
        Self::Emphasis,
        Self::Strikethrough,
        Self::CodeSpan,
        Self::CodeBlock,
        Self::Link,
        Self::Image,
        Self::ListItem,
        Self::TableRow,
        Self::Quote,
        Self::Rule,
        Self::Html,
        Self::Definition,
        Self::Escape,
        Self::Control,
        Self::Overlong,
    ];

    /// What was there, what is there now, and why.
    pub(in crate::present) fn describe(self) -> [&'static str; 3] {
        match self {
            Self::Heading => ["markdown heading", "a line of text", NO_MARKDOWN],
            Self::Emphasis => ["markdown emphasis", "the words alone", NO_MARKDOWN],
            Self::Strikethrough => ["markdown strikethrough", "the words alone", NO_MARKDOWN],
            Self::CodeSpan => ["markdown code span", "the code alone", NO_MARKDOWN],
            Self::CodeBlock => ["markdown code block", "the code alone", NO_MARKDOWN],
            Self::Link => ["markdown link", "text (address)", NO_MARKDOWN],
            Self::Image => ["markdown image", "description (address)", NO_MARKDOWN],
            Self::ListItem => ["markdown list item", "a line of text", NO_MARKDOWN],
            Self::TableRow => ["markdown table row", "a line of text", NO_MARKDOWN],
            Self::Quote => ["markdown quote", "the words alone", NO_MARKDOWN],
            Self::Rule => ["markdown rule", "nothing", NO_MARKDOWN],
            Self::Html => ["HTML", "the text without tags", NO_MARKDOWN],
            Self::Definition => [
                "markdown link definition",
                "the address at each link",
                NO_MARKDOWN,
            ],
            Self::Escape => [
                "markdown escape or entity",
                "the character itself",
                NO_MARKDOWN,
            ],
            Self::Control => [
                "control or direction character",
                "nothing",
                "it can disguise what is said",
            ],
            Self::Overlong => [
                "markdown construct of more than 16 KiB",
                "the text as it came",
                "no more than that is held back",
            ],
        }
    }
}

/// How often each kind of change was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::present) struct Counts([u64; Construct::ALL.len()]);

impl Counts {
    pub(super) fn add(&mut self, construct: Construct, times: u64) {
        if let Some(count) = self.0.get_mut(construct as usize) {
            *count += times;
        }
    }

    /// The changes that were made, with their number.
    pub(in crate::present) fn made(&self) -> impl Iterator<Item = (Construct, u64)> + '_ {
        Construct::ALL
            .into_iter()
            .zip(self.0)
            .filter(|(_, count)| *count > 0)
    }
}
