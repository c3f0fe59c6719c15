//! Markdown as it is spoken: examples for every section of CommonMark, and of the extensions.

use abp_core::AgentEventKind;

use crate::text::{changes, delta, event, message, presented, voice};

const EXAMPLES: &[(&str, &str)] = &[
    // Tabs, precedence, blank lines.
    ("\tfoo\tbaz", "foo\tbaz"),
    ("- foo\n\n\tbar", "foo\nbar"),
    ("- `one\n- two`", "`one\ntwo`"),
    ("a\n\n\n\nb", "a\n\nb"),
    // Thematic breaks.
    ("a\n\n***\n\nb", "a\n\nb"),
    (" - - -\nb", "b"),
    ("--\n**", "-- **"),
    // Headings.
    ("# One\n## Two ##\n#hash", "One\n\nTwo\n\n#hash"),
    ("Title\n=====\ntext", "Title\n\ntext"),
    ("*Sub* title\n---", "Sub title"),
    ("####### seven", "####### seven"),
    // Code blocks.
    (
        "text:\n\n    let a = *b;\n\n    c();\n\nend",
        "text:\n\nlet a = *b;\n\nc();\n\nend",
    ),
    (
        "```rust\nlet **a** = 1;\n\n# b\n```\nend",
        "let **a** = 1;\n\n# b\n\nend",
    ),
    ("~~~\n```\n~~~", "```"),
    ("  ```\n    a\n```", "  a"),
    ("```\nunclosed", "unclosed"),
    // HTML blocks and inline HTML.
    (
        "<div>\n*not* markdown\n</div>\n\nafter",
        "*not* markdown\n\nafter",
    ),
    ("<script>\nalert(1)\n\n</script>\nafter", "after"),
    ("<!-- a\n\nb -->\nc", "c"),
    (
        "<p>one</p><p>two &amp; <b>three</b></p>",
        "one\ntwo & three",
    ),
    ("a <b>bold</b><br>line", "a bold\nline"),
    ("3 < 4 and 5 > 4", "3 < 4 and 5 > 4"),
    // Definitions: before the link, after it, and never used.
    ("[a]: /b 'c'\n\nsee [a] and [x][a]", "see a (/b) and x (/b)"),
    ("see [a]\n\n[a]: /b", "see [a]\n\na: /b"),
    ("[a]: /b", ""),
    // Paragraphs and breaks.
    ("one\n  two", "one two"),
    ("one  \ntwo\\\nthree", "one\ntwo\nthree"),
    ("end\\", "end\\"),
    // Quotes.
    ("> one\n> two\nthree\n\nfour", "one two three\n\nfour"),
    ("> # a\n> - b\n> > c", "a\nb\nc"),
    ("> [!WARNING]\n> Careful.", "Warning: Careful."),
    // Lists.
    ("- a\n- b\n  - c\n- d", "a\nb\nc\nd"),
    ("1. a\n1. b\n7. c", "1. a\n2. b\n3. c"),
    ("4) a\n\n   more\n5) b", "4. a\nmore\n5. b"),
    ("- a\n+ b", "a\n\nb"),
    ("- [x] done\n- [ ] open", "done: done\nto do: open"),
    ("text\n- a\n2. b", "text\n\na\n\n2. b"),
    (
        "1. run:\n\n   ```sh\n   ls\n   ```\n2. end",
        "1. run:\nls\n2. end",
    ),
    ("-\n\n- a", "a"),
    // Tables.
    (
        "| Name | Age |\n|---|:-:|\n| *Ada* | 36 |\n| Bob |\n\nend",
        "Name: Ada, Age: 36\nName: Bob\n\nend",
    ),
    ("a | b\n--|--\n1 | `c`", "a, b\n1, c"),
    ("| only | head |\n|---|---|", "only, head"),
    ("| a | b |\nno table", "| a | b | no table"),
    ("| a \\| b |\n|---|\n| c |", "a | b: c"),
    // Escapes and entities.
    ("\\*not emphasis\\* \\a", "*not emphasis* \\a"),
    ("&lt;&copy; &#65;&#x42; &nope; AT&T", "<© AB &nope; AT&T"),
    // Code spans.
    ("`a` `` b ` c `` `*d*`", "a b ` c *d*"),
    ("an `open tick", "an `open tick"),
    // Emphasis.
    ("*a* **b** ***c*** _d_ __e__", "a b c d e"),
    (
        "**a *b* c** snake_case_name 2*3*4",
        "a b c snake_case_name 234",
    ),
    ("*open and 5 * 3", "*open and 5 * 3"),
    ("“**quoted**”—**dash**", "“quoted”—dash"),
    ("~~gone~~ ~so~ ~~~not~~~", "gone so ~~~not~~~"),
    // Links, images, addresses.
    (
        "[text](https://a.b/c_d \"title\")",
        "text (https://a.b/c_d)",
    ),
    ("[**bold** `code`](<a b>)", "bold code (a b)"),
    ("[](/empty) [same](same)", "/empty same"),
    ("[not a link] [no](t a link)", "[not a link] [no](t a link)"),
    (
        "![alt *text*](pic.png) ![x](data:image/png;base64,AA)",
        "alt text (pic.png) x",
    ),
    ("[![alt](i.png)](u)", "alt (i.png) (u)"),
    ("<https://a.b> <me@a.b>", "https://a.b me@a.b"),
    // Characters that are not said.
    ("a\u{202e}b\u{7}c\u{1b}[31m", "abc[31m"),
];

#[test]
fn markdown_is_spoken_without_its_syntax() {
    for (markdown, spoken) in EXAMPLES {
        let mut presenter = voice();
        let text = (*spoken).to_owned();
        let kinds = presented(&mut presenter, &[message(markdown)]);
        assert_eq!(
            kinds,
            [AgentEventKind::AssistantMessage { text }],
            "{markdown:?}"
        );
    }
}

/// A message that repeats what was streamed is not counted again; one that does not is.
#[test]
fn changes_are_counted_once() {
    let cases = [
        (vec![delta("**a** `b`"), message("**a** `b`")], 1),
        (vec![delta("**a** `b`"), message("**c** `d`")], 2),
        (vec![message("**a** `b`"), message("**a** `b`")], 2),
    ];
    for (events, count) in cases {
        let mut presenter = voice();
        presented(&mut presenter, &events);
        let records = presenter.adaptations();
        let emphasis = records.iter().filter(|one| one.from == "markdown emphasis");
        assert_eq!(
            emphasis.map(|one| one.count).sum::<u64>(),
            count,
            "{records:?}"
        );
    }
}

/// What is held back goes out before the agent acts, and what follows is not glued to it.
#[test]
fn a_passage_ends_where_the_agent_acts() {
    let call = event(AgentEventKind::ToolCall {
        tool_name: "Bash".to_owned(),
        tool_use_id: None,
        parent_tool_use_id: None,
        input: serde_json::json!({}),
    });
    let usage = event(AgentEventKind::UsageUpdated {
        usage: abp_core::UsageNormalized::default(),
    });
    let events = [
        delta("Look at *th"),
        usage,
        delta("is*.\n\n- item"),
        call,
        delta("Done."),
    ];
    let kinds = presented(&mut voice(), &events);
    let text = |kind: &AgentEventKind| match kind {
        AgentEventKind::AssistantDelta { text } => text.clone(),
        other => format!("<{}>", other.name()),
    };
    let spoken: String = kinds.iter().map(text).collect();
    assert_eq!(
        spoken,
        "Look at <usage_updated>this.\n\nitem<tool_call>\n\nDone."
    );
}

#[test]
fn disguises_are_taken_out_of_messages_too() {
    let mut presenter = voice();
    let kind = |message: &str| AgentEventKind::Warning {
        message: message.to_owned(),
    };
    let kinds = presented(
        &mut presenter,
        &[event(kind("safe\u{202e}exe")), event(kind("fine"))],
    );
    assert_eq!(kinds, [kind("safeexe"), kind("fine")]);
    let removed = ("control or direction character", "nothing", 1);
    assert_eq!(changes(&presenter), [removed]);
}
