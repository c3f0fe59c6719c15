//! Prompts as tasks with context.

use std::path::Path;

use abp_backend_acp::protocol::schema::{ContentBlock, EmbeddedResourceResource, ResourceLink};
use abp_core::{ContextPacket, ContextSnippet};
use url::Url;

/// The most bytes of a prompt, with everything embedded in it.
const MAX_PROMPT: usize = 4 * 1024 * 1024;

/// The task and the context that a prompt says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptContent {
    pub(crate) task: String,
    pub(crate) context: ContextPacket,
}

/// A place that a link names.
#[derive(Debug, PartialEq, Eq)]
enum LinkTarget {
    /// A path in the session's directory, and the part of the file that is meant (`#L10`).
    Inside { path: String, fragment: String },
    /// A file elsewhere on this machine.
    Outside,
    /// Anything but a file.
    Foreign,
}

/// Reads the blocks of a prompt. Links and embedded files keep their place in the text.
///
/// # Errors
/// Names the block that a work order cannot carry.
pub(crate) fn read(blocks: Vec<ContentBlock>, root: &Path) -> Result<PromptContent, String> {
    let mut content = PromptContent::default();
    for block in blocks {
        content.add(block, root)?;
        let snippets = content.context.snippets.iter();
        let embedded: usize = snippets.map(|snippet| snippet.content.len()).sum();
        let size = content.task.len() + embedded;
        if size > MAX_PROMPT {
            return Err(format!(
                "the prompt has more than {MAX_PROMPT} bytes; link files instead of embedding them"
            ));
        }
    }
    match content.task.trim().is_empty() {
        true => Err("the prompt has no text".to_owned()),
        false => Ok(content),
    }
}

impl PromptContent {
    fn add(&mut self, block: ContentBlock, root: &Path) -> Result<(), String> {
        match block {
            ContentBlock::Text(text) => self.add_text(&text.text),
            ContentBlock::ResourceLink(link) => self.add_link(&link, root)?,
            ContentBlock::Resource(embedded) => match embedded.resource {
                EmbeddedResourceResource::TextResourceContents(text) => {
                    let name = match target(&text.uri, root) {
                        LinkTarget::Inside { path, fragment } => path + &fragment,
                        LinkTarget::Outside | LinkTarget::Foreign => text.uri,
                    };
                    self.mention(&format!("@{name}"));
                    self.context.snippets.push(ContextSnippet {
                        name,
                        content: text.text,
                    });
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => {
                    return Err(format!(
                        "the embedded resource {} is no text, which a run cannot carry",
                        blob.uri
                    ));
                }
                _ => return Err("an embedded resource is of an unknown form".to_owned()),
            },
            ContentBlock::Image(image) => {
                return Err(format!(
                    "the prompt has an image ({}), which a run cannot carry; put it in the directory and link it",
                    image.mime_type
                ));
            }
            ContentBlock::Audio(audio) => {
                return Err(format!(
                    "the prompt has audio ({}), which a run cannot carry",
                    audio.mime_type
                ));
            }
            _ => return Err("the prompt has content of an unknown type".to_owned()),
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) {
        self.task.push_str(text);
    }

    fn add_link(&mut self, link: &ResourceLink, root: &Path) -> Result<(), String> {
        match target(&link.uri, root) {
            LinkTarget::Inside { path, fragment } => {
                self.mention(&format!("@{path}{fragment}"));
                if !self.context.files.contains(&path) {
                    self.context.files.push(path);
                }
                Ok(())
            }
            LinkTarget::Outside => Err(format!(
                "the link {:?} names a file outside of the session's directory, which an agent cannot read; embed it",
                link.name
            )),
            LinkTarget::Foreign => {
                self.mention(&format!("[{}]({})", link.name, link.uri));
                Ok(())
            }
        }
    }

    /// Adds a word that stands for something linked or embedded.
    fn mention(&mut self, word: &str) {
        if !self.task.is_empty() && !self.task.ends_with(char::is_whitespace) {
            self.task.push(' ');
        }
        self.task.push_str(word);
    }
}

fn target(uri: &str, root: &Path) -> LinkTarget {
    let Ok(url) = Url::parse(uri) else {
        return LinkTarget::Foreign;
    };
    if url.scheme() != "file" {
        return LinkTarget::Foreign;
    }
    let Ok(path) = url.to_file_path() else {
        return LinkTarget::Outside;
    };
    let Some(path) = path.strip_prefix(root).ok().and_then(Path::to_str) else {
        return LinkTarget::Outside;
    };
    let path = match path {
        "" => ".".to_owned(),
        path => path.to_owned(),
    };
    let fragment = url.fragment().map(|fragment| format!("#{fragment}"));
    LinkTarget::Inside {
        path,
        fragment: fragment.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read_json(blocks: Value) -> Result<PromptContent, String> {
        read(serde_json::from_value(blocks).unwrap(), Path::new("/p"))
    }

    #[test]
    fn links_and_embedded_files_keep_their_place() {
        let content = read_json(json!([
            {"type": "text", "text": "compare "},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///p/src/a%20b.rs#L3:9"},
            {"type": "text", "text": " with"},
            {"type": "resource", "resource": {"uri": "file:///p/n.md", "text": "notes"}},
            {"type": "text", "text": " and "},
            {"type": "resource_link", "name": "the page", "uri": "https://example.org/x"},
        ]))
        .unwrap();
        assert_eq!(
            content.task,
            "compare @src/a b.rs#L3:9 with @n.md and [the page](https://example.org/x)"
        );
        assert_eq!(content.context.files, ["src/a b.rs"]);
        let snippets = content.context.snippets;
        assert_eq!(snippets.len(), 1);
        assert_eq!(
            (&*snippets[0].name, &*snippets[0].content),
            ("n.md", "notes")
        );
    }

    #[test]
    fn a_block_that_cannot_be_carried_is_refused_by_name() {
        let large = "x".repeat(MAX_PROMPT + 1);
        let cases = [
            (
                json!({"type": "image", "data": "", "mimeType": "image/png"}),
                "image/png",
            ),
            (
                json!({"type": "audio", "data": "", "mimeType": "audio/wav"}),
                "audio/wav",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "file:///p/x.bin", "blob": "AA=="}}),
                "x.bin",
            ),
            (
                json!({"type": "resource_link", "name": "passwd", "uri": "file:///etc/passwd"}),
                "\"passwd\"",
            ),
            (
                json!({"type": "resource_link", "name": "up", "uri": "file:///p/../q"}),
                "\"up\"",
            ),
            (json!({"type": "text", "text": large}), "bytes"),
            (json!({"type": "text", "text": " "}), "no text"),
        ];
        for (block, word) in cases {
            let with_text = json!([{"type": "text", "text": " "}, block]);
            let refused = read_json(with_text).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
