//! HTML without its tags.

/// Elements whose content nobody reads.
const UNREADABLE: [&str; 2] = ["script", "style"];
/// Elements that stay within a line; all others begin a new one.
const WITHIN_LINE: [&str; 14] = [
    "a", "abbr", "b", "code", "del", "em", "i", "kbd", "small", "span", "strong", "sub", "sup", "u",
];
const ENTITIES: [(&str, char); 6] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", ' '),
];

/// The text of a piece of HTML, line by line, with white space as a browser shows it.
pub(super) fn lines(html: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        decode(before, &mut text);
        rest = after_markup(tag, &mut text);
    }
    decode(rest, &mut text);
    let words = |line: &str| line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let lines = text.split('\u{B}').map(words);
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether a tag breaks the line.
pub(super) fn breaks_line(tag: &str) -> bool {
    tag_name(tag) == "br"
}

/// What follows the markup at the start of `html`; a line break goes to the text as `\u{B}`.
fn after_markup<'a>(html: &'a str, text: &mut String) -> &'a str {
    for (open, close) in [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")] {
        if let Some(content) = html.strip_prefix(open) {
            return content.split_once(close).map_or("", |(_, rest)| rest);
        }
    }
    let is_tag = html
        .as_bytes()
        .get(1)
        .is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, b'/' | b'!'));
    let Some(end) = tag_end(html).filter(|_| is_tag) else {
        text.push('<');
        return html.get(1..).unwrap_or_default();
    };
    let (tag, rest) = html.split_at(end);
    let name = tag_name(tag);
    if !WITHIN_LINE.contains(&name.as_str()) {
        text.push('\u{B}');
    }
    if UNREADABLE.contains(&name.as_str()) && !tag.starts_with("</") {
        return skip_element(rest, &name);
    }
    rest
}

/// The end of the tag at the start of `html`; a `>` in quotes does not end it.
fn tag_end(html: &str) -> Option<usize> {
    let mut quote = None;
    for (index, byte) in html.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(index + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

fn tag_name(tag: &str) -> String {
    let name = tag.trim_start_matches(['<', '/']);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric());
    let name = end.and_then(|end| name.get(..end)).unwrap_or(name);
    name.to_ascii_lowercase()
}

/// What follows the end tag of an element whose content is left out.
fn skip_element<'a>(html: &'a str, name: &str) -> &'a str {
    let mut rest = html;
    while let Some(at) = rest.find("</") {
        rest = rest.get(at..).unwrap_or_default();
        if tag_name(rest) == name {
            return tag_end(rest)
                .and_then(|end| rest.get(end..))
                .unwrap_or_default();
        }
        rest = rest.get(2..).unwrap_or_default();
    }
    ""
}

/// Appends text with its commonest entities decoded.
fn decode(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, entity) = rest.split_at(at);
        out.push_str(before);
        match entity_at(entity) {
            Some((c, length)) => {
                out.push(c);
                rest = entity.get(length..).unwrap_or_default();
            }
            None => {
                out.push('&');
                rest = entity.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
}

fn entity_at(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(12).position(|byte| byte == b';')?;
    let name = text.get(1..end)?;
    let c = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
        None => ENTITIES.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((c, end + 1))
}
