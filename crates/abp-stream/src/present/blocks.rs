//! Blocks in words.

use abp_core::PresentationType;
use serde_json::Value;

/// A block in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) markdown: String,
    /// What form it was given.
    pub(super) form: &'static str,
}

/// Describes a block as markdown.
pub(super) fn describe(kind: &PresentationType, data: &Value) -> Description {
    let listed = match kind {
        PresentationType::CitationBlock => citations(data).map(|text| (text, "a numbered list")),
        PresentationType::MediaCarousel => media(data).map(|text| (text, "descriptions and links")),
        PresentationType::ProgressIndicator => progress_line(data).map(|text| (text, "a line")),
        PresentationType::MarkdownBlock
        | PresentationType::ThoughtTrace
        | PresentationType::Other(_) => None,
    };
    let (markdown, form) = listed.unwrap_or_else(|| (in_general(kind, data), "a description"));
    Description { markdown, form }
}

/// Sources as a numbered list.
fn citations(data: &Value) -> Option<String> {
    let items = list(data, &["citations", "items"])?;
    let lines = items.iter().enumerate().map(|(index, item)| {
        let address = text(item, &["uri", "url"]).unwrap_or_default();
        let title = text(item, &["title", "source_id"]).unwrap_or(address);
        let snippet = text(item, &["snippet"])
            .map(|snippet| format!(": {}", escape(snippet)))
            .unwrap_or_default();
        format!("{}. {}{snippet}", index + 1, link(title, address))
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Images and other media as a list of their descriptions.
fn media(data: &Value) -> Option<String> {
    let items = list(data, &["items"])?;
    let lines = items.iter().map(|item| format!("- {}", medium(item, None)));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// One image or other medium in words; why it is not there, where it could have been.
pub(super) fn medium(item: &Value, left_out: Option<&str>) -> String {
    let mime = text(item, &["mime_type", "mimeType"]).unwrap_or_default();
    let kind = match mime.split('/').next() {
        Some("image") => "Image",
        Some("video") => "Video",
        Some("audio") => "Audio",
        _ => "File",
    };
    let name = text(item, &["alt_text", "title"]).unwrap_or("without description");
    let address = text(item, &["url", "uri"]).unwrap_or_default();
    let is_inline = address.starts_with("data:");
    let described = match is_inline || left_out.is_some() {
        true => escape(name),
        false => link(name, address),
    };
    let reason = left_out.map(|reason| format!(" (left out: {})", escape(reason)));
    format!("{kind}: {described}{}", reason.unwrap_or_default())
}

/// Where something stands, in one line; none where the block does not tell.
fn progress_line(data: &Value) -> Option<String> {
    let label = escape(text(data, &["label"])?);
    let share = data.get("progress_percent").and_then(Value::as_f64);
    Some(match (text(data, &["status"]), share) {
        (Some("complete"), _) => format!("{label}: done"),
        (Some("failed"), _) => format!("{label}: failed"),
        (_, Some(share)) => format!("{label}: {:.0} %", share.clamp(0.0, 1.0) * 100.0),
        (_, None) => label,
    })
}

/// The lines about progress: one when something begins, one when it ends.
#[derive(Debug, Default)]
pub(super) struct ProgressLines {
    last: Option<(String, String)>,
}

impl ProgressLines {
    /// The line for a block, where there is news in it.
    pub(super) fn next(&mut self, data: &Value) -> Option<String> {
        let line = progress_line(data)?;
        let field = |name| text(data, &[name]).unwrap_or_default().to_owned();
        let now = Some((field("label"), field("status")));
        let is_news = self.last != now;
        self.last = now;
        is_news.then_some(line)
    }
}

/// Whatever a block of an unknown form says about itself.
fn in_general(kind: &PresentationType, data: &Value) -> String {
    let words = text(
        data,
        &[
            "title",
            "alt_text",
            "description",
            "summary",
            "label",
            "text",
            "content",
        ],
    );
    let kind = escape(kind.as_str());
    match words {
        Some(words) => format!("{kind}: {}", escape(words)),
        None => format!("{kind} (without a description)"),
    }
}

/// The first of these members that is a list with something in it.
fn list<'a>(data: &'a Value, names: &[&str]) -> Option<&'a Vec<Value>> {
    let mut lists = names
        .iter()
        .filter_map(|name| data.get(name).and_then(Value::as_array));
    lists.find(|list| !list.is_empty())
}

/// The first of these members that is a text with something in it.
fn text<'a>(data: &'a Value, names: &[&str]) -> Option<&'a str> {
    let mut texts = names
        .iter()
        .filter_map(|name| data.get(name).and_then(Value::as_str));
    texts.find(|text| !text.trim().is_empty())
}

/// A markdown link; the words alone where there is no address. An address that could do something else
/// than show a page is told, and is no link.
fn link(words: &str, address: &str) -> String {
    let address = address.trim();
    if address.is_empty() || words == address {
        return escape(words);
    }
    let scheme = address
        .split_once(':')
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("http" | "https" | "mailto")) {
        return format!("{} ({})", escape(words), escape(address));
    }
    let is_bare = |c: char| !c.is_whitespace() && !c.is_control() && !"()<>\\".contains(c);
    if address.chars().all(is_bare) {
        return format!("[{}]({address})", escape(words));
    }
    let address: String = address
        .chars()
        .filter(|c| !c.is_control() && !"<>\\".contains(*c))
        .collect();
    format!("[{}](<{address}>)", escape(words))
}

/// Words on one line, with nothing in them that is markdown.
fn escape(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::with_capacity(words.len());
    let mut before = ' ';
    let mut rest = words.chars().peekable();
    while let Some(c) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        let is_markup = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '~' | '|' => true,
            '_' => !before.is_alphanumeric() || !after.is_alphanumeric(),
            '&' => after == '#' || after.is_alphanumeric(),
            _ => false,
        };
        if is_markup {
            escaped.push('\\');
        }
        escaped.push(c);
        before = c;
    }
    escaped
}
