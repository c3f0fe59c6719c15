//! The form in which an answer is wanted.

/// How an answer is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Piece by piece, as server-sent events.
    Events,
    /// In one object, at the end.
    Collected,
    /// Nothing but the agent's words.
    Text(TextKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Plain,
    Markdown,
}

/// What the pieces of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Packets,
    AgUi,
}

impl Framing {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Collected => "application/json",
            Self::Text(TextKind::Plain) => "text/plain; charset=utf-8",
            Self::Text(TextKind::Markdown) => "text/markdown; charset=utf-8",
        }
    }
}

/// What an `Accept` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) framing: Framing,
    /// What the pieces are, where that is said.
    pub(super) profile: Option<Profile>,
}

impl Accepted {
    /// Reads the header: the form that is liked best counts, and of several the first. What is not
    /// known asks for nothing in particular.
    pub(super) fn of(header: &str) -> Self {
        let mut best = (
            0.0,
            Self {
                framing: Framing::Events,
                profile: None,
            },
        );
        for range in header.split(',') {
            let (quality, asked) = media_range(range);
            if quality > best.0 {
                best = (quality, asked);
            }
        }
        best.1
    }
}

fn media_range(range: &str) -> (f32, Accepted) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let framing = match name.as_str() {
        "application/json" => Framing::Collected,
        "text/plain" => Framing::Text(TextKind::Plain),
        "text/markdown" => Framing::Text(TextKind::Markdown),
        _ => Framing::Events,
    };
    let mut quality = 1.0;
    let mut profile = None;
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        let value = value.trim().trim_matches('"');
        match key.trim().to_ascii_lowercase().as_str() {
            "q" => quality = value.parse().unwrap_or(0.0),
            "profile" if value.eq_ignore_ascii_case("ag-ui") => profile = Some(Profile::AgUi),
            _ => {}
        }
    }
    (quality, Accepted { framing, profile })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_that_is_liked_best_counts() {
        use Framing::{Collected, Events, Text};
        let cases = [
            ("", Events, None),
            ("*/*", Events, None),
            ("text/event-stream", Events, None),
            ("application/json", Collected, None),
            ("application/json;q=0.5, text/event-stream", Events, None),
            ("Application/JSON, text/event-stream", Collected, None),
            ("text/plain", Text(TextKind::Plain), None),
            (
                "text/markdown, text/plain;q=0.9",
                Text(TextKind::Markdown),
                None,
            ),
            ("text/event-stream, text/plain;q=0.9", Events, None),
            (
                "text/event-stream; profile=ag-ui",
                Events,
                Some(Profile::AgUi),
            ),
            (
                "text/event-stream;profile=\"AG-UI\";q=0.8",
                Events,
                Some(Profile::AgUi),
            ),
            (
                "application/json;profile=ag-ui",
                Collected,
                Some(Profile::AgUi),
            ),
            ("text/event-stream; profile=other", Events, None),
            ("text/plain;q=0", Events, None),
            ("text/plain;q=oops", Events, None),
        ];
        for (header, framing, profile) in cases {
            assert_eq!(
                Accepted::of(header),
                Accepted { framing, profile },
                "{header}"
            );
        }
    }
}
