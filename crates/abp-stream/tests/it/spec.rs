//! The examples of the CommonMark specification, spoken.
//!
//! The parser's package carries them with the HTML that they become. What that HTML says is what has to
//! be said, and nothing of the syntax.

use std::path::PathBuf;
use std::process::Command;

use abp_core::AgentEventKind;
use abp_testkit::skip;
use pulldown_cmark::Parser;

use crate::text::{delta, presented, voice};

/// What is not said as the HTML says it.
const OTHERWISE: [(&str, &str); 6] = [
    ("[\nfoo\n]: /url\nbar\n", LONG_LABEL),
    ("[Foo\n  bar]: /url\n\n[Baz][Foo bar]\n", LONG_LABEL),
    (
        "[ẞ]\n\n[SS]: /url\n",
        "labels are compared in lower case, not folded",
    ),
    ("![[[foo](uri1)](uri2)](uri3)\n", NESTED),
    ("![foo ![bar](/url)](/url2)\n", NESTED),
    ("![foo [bar](/url)](/url2)\n", NESTED),
];
const LONG_LABEL: &str = "a line that only begins a label is not held back: it is text";
const NESTED: &str = "addresses within a description are told; HTML has no place for them";

struct Example {
    markdown: String,
    html: String,
}

/// The examples, where the parser's package has them.
fn examples() -> Option<Vec<Example>> {
    let suite = package("pulldown-cmark")?.join("tests/suite/spec.rs");
    let source = std::fs::read_to_string(suite).ok()?;
    let mut examples = Vec::new();
    for test in source.split("let original = r##\"").skip(1) {
        let (markdown, rest) = test.split_once("\"##;")?;
        let (_, rest) = rest.split_once("let expected = r##\"")?;
        let (html, _) = rest.split_once("\"##;")?;
        examples.push(Example {
            markdown: markdown.to_owned(),
            html: html.to_owned(),
        });
    }
    Some(examples)
}

/// The folder of a package that we are built with.
fn package(name: &str) -> Option<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--offline"]);
    let output = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == name)?;
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    Some(manifest.parent()?.to_owned())
}

/// What is said of a text, with its definitions known from the start: a stream cannot know those that
/// come after the link.
fn spoken(markdown: &str) -> String {
    let parser = Parser::new(markdown);
    let definitions = parser.reference_definitions().iter();
    let mut definitions: Vec<_> = definitions.map(|(_, one)| one.span.clone()).collect();
    definitions.sort_by_key(|span| span.start);
    let known: String = definitions
        .into_iter()
        .map(|span| format!("{}\n\n", &markdown[span]))
        .collect();
    let kinds = presented(&mut voice(), &[delta(&known), delta(markdown)]);
    let text = |kind| match kind {
        AgentEventKind::AssistantDelta { text } => text,
        other => panic!("{other:?}"),
    };
    kinds.into_iter().map(text).collect()
}

/// What HTML says.
#[derive(Default)]
struct Listener<'e> {
    said: String,
    /// The source: tags that are in it are not of our making, and tell nothing.
    markdown: &'e str,
    /// The address of the open link, and where its words begin.
    link: Option<(String, usize)>,
    /// The number of the next item of each open list.
    lists: Vec<Option<u64>>,
    /// For each open item its number, until something of it was said.
    items: Vec<String>,
}

impl<'e> Listener<'e> {
    fn hear(example: &'e Example) -> String {
        let mut listener = Self {
            markdown: &example.markdown,
            ..Self::default()
        };
        let mut rest = example.html.as_str();
        while let Some(at) = rest.find('<') {
            listener.text(&rest[..at]);
            rest = listener.tag(&rest[at..]);
        }
        listener.text(rest);
        listener.said
    }

    fn text(&mut self, text: &str) {
        let text = unescape(text);
        if text.trim().is_empty() {
            return;
        }
        for number in &mut self.items {
            self.said.push_str(&std::mem::take(number));
        }
        self.said.push_str(&text);
    }

    /// Hears a tag, and says what follows it.
    fn tag<'h>(&mut self, html: &'h str) -> &'h str {
        for (begin, end) in [
            ("<!--", "-->"),
            ("<?", "?>"),
            ("<![CDATA[", "]]>"),
            ("<!", ">"),
            ("<script", "</script>"),
            ("<style", "</style>"),
        ] {
            if html.starts_with(begin) {
                return html.find(end).map_or("", |at| &html[at + end.len()..]);
            }
        }
        let Some(end) = tag_end(html) else {
            self.text(&html[..1]);
            return &html[1..];
        };
        let tag = &html[..end];
        if self.markdown.contains(tag) {
            return &html[end..];
        }
        if tag.starts_with("<a href=") {
            let address = attribute(tag, "href").unwrap_or_default();
            self.link = Some((address, self.said.len()));
        } else if tag == "</a>" {
            if let Some((address, begin)) = self.link.take() {
                self.address(&address, begin);
            }
        } else if tag.starts_with("<img ") {
            let begin = self.said.len();
            self.text(&attribute(tag, "alt").unwrap_or_default());
            self.address(&attribute(tag, "src").unwrap_or_default(), begin);
        } else if tag.starts_with("<ol") {
            let first = attribute(tag, "start").and_then(|start| start.parse().ok());
            self.lists.push(Some(first.unwrap_or(1)));
        } else if tag == "<ul>" {
            self.lists.push(None);
        } else if tag == "</ol>" || tag == "</ul>" {
            self.lists.pop();
        } else if tag == "<li>" {
            self.items.push(match self.lists.last_mut() {
                Some(Some(number)) => {
                    *number += 1;
                    format!("{}.", *number - 1)
                }
                _ => String::new(),
            });
        } else if tag == "</li>" {
            self.items.pop();
        }
        &html[end..]
    }

    fn address(&mut self, address: &str, begin: usize) {
        let words = self.said[begin..].trim().to_owned();
        let plain = address.strip_prefix("mailto:").unwrap_or(address);
        if words.is_empty() {
            self.text(address);
        } else if !address.is_empty() && bare(&words) != bare(plain) {
            self.said.push_str(&format!("({address})"));
        }
    }
}

fn tag_end(html: &str) -> Option<usize> {
    let name = html[1..].trim_start_matches('/');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let mut quote = None;
    for (at, c) in html.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, '>') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    Some(unescape(rest.split_once('"')?.0))
}

fn unescape(text: &str) -> String {
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"");
    text.replace("&amp;", "&")
}

/// Without spaces, and with escapes of addresses undone, which HTML has and words have not.
fn bare(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits =
            [ahead.next(), ahead.next()].map(|digit| char::from(digit.unwrap_or(0)).to_digit(16));
        match (byte, digits) {
            (b'%', [Some(high), Some(low)]) => {
                bytes.push((high * 16 + low) as u8);
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_whitespace().collect()
}

#[test]
fn the_specification_is_spoken_as_its_html_says() {
    let Some(examples) = examples() else {
        skip(
            "CommonMark's examples, spoken",
            "the parser's package has no examples here",
        );
        return;
    };
    assert!(examples.len() > 600, "{} examples", examples.len());
    let differs =
        |example: &&Example| bare(&spoken(&example.markdown)) != bare(&Listener::hear(example));
    let mut found: Vec<_> = examples
        .iter()
        .filter(differs)
        .map(|one| one.markdown.as_str())
        .collect();
    let mut known = OTHERWISE.map(|(markdown, _)| markdown);
    found.sort_unstable();
    known.sort_unstable();
    assert_eq!(found, known, "of {} examples", examples.len());
}
