//! Splitting changes nothing, and the pieces give what one parse of the whole gives.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use pulldown_cmark::Parser;

use super::sink::Sink;
use super::walk::{Part, Walk};
use super::{Construct, Counts, MAX_HELD, OPTIONS, PlainText};
use crate::present::TextForm;

fn streamed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Counts) {
    let mut plain = PlainText::new(TextForm::Screen);
    for piece in pieces {
        plain.push(piece);
    }
    plain.end_passage();
    (plain.take(), plain.take_counts())
}

fn chunks(text: &str, size: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars
        .chunks(size)
        .map(|chunk| chunk.iter().collect())
        .collect()
}

/// One parse of the whole.
fn parsed(markdown: &str) -> String {
    let mut sink = Sink::default();
    let events = Parser::new_ext(markdown, OPTIONS).into_offset_iter();
    Walk::new(markdown, &mut sink, TextForm::Screen, Part::Whole).run(events);
    sink.take()
}

/// Pieces of markdown in any order: constructs that are whole, begun, nested, misplaced.
fn markdown() -> impl Strategy<Value = String> {
    let inline = prop::sample::select(vec![
        "a",
        "b c",
        " ",
        "*",
        "**",
        "_",
        "~~",
        "`",
        "``",
        "[",
        "]",
        "](",
        "(u \"t\")",
        ")",
        "![",
        "<b>",
        "</b>",
        "<",
        ">",
        "<http://a.b>",
        "<!--",
        "-->",
        "&amp;",
        "&",
        "\\",
        "\\*",
        "|",
        "é",
        "”",
        "\u{a0}",
        "😀",
        "\u{202e}",
        "!",
        "**b**",
        "[a](u)",
        "=",
        "0",
    ]);
    let block = prop::sample::select(vec![
        "\n",
        "\n\n",
        "  \n",
        "\\\n",
        "\r\n",
        "- ",
        "* ",
        "1. ",
        "2. ",
        "> ",
        "    ",
        "\t",
        "# ",
        "```",
        "~~~",
        "---",
        "===",
        "***",
        "| a | b |\n",
        "|---|---|\n",
        "a | b\n---|---\n",
        "<div>",
        "</div>",
        "<pre>",
        "<script>",
        "- [x] ",
        "> [!NOTE]\n",
        "-",
        "   ",
    ]);
    let piece = prop_oneof![2 => inline, 1 => block];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_split_is_the_whole(text in markdown(), at in any::<prop::sample::Index>()) {
        let whole = streamed([text.as_str()]);
        prop_assert_eq!(&streamed(chunks(&text, 1).iter().map(String::as_str)), &whole);
        let (begin, end) = text.split_at(text.floor_char_boundary(at.index(text.len() + 1)));
        prop_assert_eq!(&streamed([begin, end]), &whole);
    }

    /// Except for links that are defined after they are used, which a stream cannot know.
    #[test]
    fn pieces_give_what_one_parse_gives(text in markdown()) {
        prop_assume!(!text.contains("]:"));
        let text = format!("[a]: b\n\n{text}");
        let (pieces, _) = streamed([text.as_str()]);
        let whole = parsed(&text.replace("\r\n", "\n"));
        prop_assert_eq!(pieces.trim_end(), whole.trim_end());
    }

    /// On a terminal the words are the same, tables and rules apart, and every style is ended.
    #[test]
    fn styles_change_no_word(text in markdown()) {
        prop_assume!(!text.contains('|'));
        let mut styled = PlainText::with_styles(TextForm::Screen);
        styled.push(&text);
        styled.end_passage();
        let shown = styled.take();
        prop_assume!(!shown.contains('─'));
        let mut words = String::new();
        let mut is_usual = true;
        for part in shown.split('\u{1b}').enumerate() {
            match part {
                (0, text) => words.push_str(text),
                (_, sequence) => {
                    let (code, text) = sequence.split_once('m').unwrap();
                    is_usual = code == "[0";
                    words.push_str(text);
                }
            }
        }
        prop_assert!(is_usual, "{shown:?}");
        let said = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert_eq!(said(&words), said(&streamed([text.as_str()]).0));
    }

    #[test]
    fn nothing_disappears_without_a_record(text in markdown()) {
        let (plain, counts) = streamed([text.as_str()]);
        let said = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert!(said(&plain) == said(&text) || counts.made().next().is_some(), "{}", plain);
    }
}

/// What is longer than can be held back passes as it is, wherever it is split, and is recorded.
#[test]
fn overlong_constructs_pass_as_text() {
    let filler = "word ".repeat(MAX_HELD);
    for (open, close) in [
        ("*", "*"),
        ("> ", "\n"),
        ("- ", "\n"),
        ("<div>", "\n"),
        ("`", "`"),
    ] {
        let text = format!("{open}{filler}{close} and *more*");
        let (whole, counts) = streamed([text.as_str()]);
        let pieces = chunks(&text, 7);
        assert!(
            (whole.clone(), counts) == streamed(pieces.iter().map(String::as_str)),
            "{open}"
        );
        assert!(
            counts
                .made()
                .any(|(construct, _)| construct == Construct::Overlong),
            "{open}"
        );
        assert!(
            whole.starts_with(open) && whole.ends_with("and more"),
            "{open}"
        );
    }
}

/// Prose does not wait for the end of its paragraph, a list not for its last item, code for nothing.
#[test]
fn text_passes_as_soon_as_it_is_certain() {
    let mut plain = PlainText::new(TextForm::Speech);
    for (piece, said) in [
        ("Hello wo", "Hello wo"),
        ("rld, ", "rld,"),
        ("see **bo", " see "),
        ("ld** and", "bold and"),
        (" [a](http", " "),
        ("://b)!\n\n", "a (http://b)!"),
        ("- one\n", ""),
        ("- t", "\n\none"),
        ("wo\n\n", ""),
        ("```sh\n", "\ntwo"),
        ("ls -", "\n\nls -"),
        ("l\n```\n", "l"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "\n\na: 1, b: 2"),
        ("| 3 | 4 |\n", "\na: 3, b: 4"),
    ] {
        plain.push(piece);
        assert_eq!(plain.take(), said, "after {piece:?}");
    }
}

/// Each is cheap to write and dear to read for a parser that looks back or recurses.
#[test]
fn hostile_markdown_takes_bounded_time() {
    let cases: Vec<(&str, String)> = vec![
        ("quotes", ">".repeat(10_000) + "a"),
        ("lists", "- ".repeat(10_000) + "a"),
        (
            "deep lists",
            (0..300)
                .map(|depth| format!("{}- a\n", "  ".repeat(depth)))
                .collect(),
        ),
        ("numbers", "1) ".repeat(10_000)),
        ("openers", "*a _b ~~c ".repeat(20_000)),
        ("brackets", "[".repeat(50_000) + &"]".repeat(50_000)),
        ("links", "[a](b".repeat(30_000)),
        ("images", "![a](".repeat(30_000)),
        ("ticks", (1..400).map(|run| "`".repeat(run) + " ").collect()),
        ("tags", "<a b='".repeat(30_000)),
        ("comments", "<!-- a".repeat(30_000)),
        ("entities", "&#x41;".repeat(50_000)),
        ("bars", "a|".repeat(50_000) + "\n" + &"-|".repeat(50_000)),
        (
            "rows",
            "|a|b|\n|-|-|\n".to_owned() + &"|\\|\n".repeat(20_000),
        ),
        ("lazy lines", "> a\n".to_owned() + &"2. b\n".repeat(20_000)),
        ("definitions", "[a]: b\n".repeat(20_000)),
        ("fences", "`".repeat(200_000)),
        (
            "wide tables",
            format!(
                "{}|\n{}|\n{}",
                "|abc".repeat(1500),
                "|-".repeat(1500),
                "a\n".repeat(50_000)
            ),
        ),
        (
            "long names",
            format!(
                "|{}|b|\n|-|-|\n{}",
                "a".repeat(7000),
                "|c|\n".repeat(20_000)
            ),
        ),
        (
            "long addresses",
            format!("[a]: {}\n\n{}", "b".repeat(2000), "[a]\n\n".repeat(20_000)),
        ),
        ("direction", "\u{202e}".repeat(100_000)),
        ("controls", "\u{1b}[2J".repeat(50_000)),
        ("script", "<script>".to_owned() + &"x".repeat(300_000)),
        ("one line", "a".repeat(2_000_000)),
    ];
    for (name, text) in cases {
        let start = Instant::now();
        let (plain, _) = streamed(chunks(&text, 64).iter().map(String::as_str));
        assert!(!plain.contains(['\u{202e}', '\u{1b}']), "{name}");
        assert!(
            plain.len() <= 2 * text.len() + 1000,
            "{name}: {} of {}",
            plain.len(),
            text.len()
        );
        // Unoptimised, on a busy machine; what is quadratic takes minutes.
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{name}: {:?}",
            start.elapsed()
        );
    }
}
