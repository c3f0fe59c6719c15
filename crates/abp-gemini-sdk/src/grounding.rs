//! Sources of a text.
//!
//! The vendor keeps sources apart from the text and says which part rests on them by offsets in
//! UTF-8 bytes; the intermediate representation counts characters.

use abp_core::ir::{IrCitation, IrRange, IrVendorField, Leaf, Origin, RawJson};
use abp_dialect::{DialectError, How, Item, Lowering};

use crate::wire::{Fields, vendor};

const OFFSETS: How = How::Converted("byte_offsets");

/// A part of an answer that rests on sources, in bytes.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The words, where the vendor repeats them.
    pub(crate) text: Option<String>,
}

/// Where a segment is: its block, and its first character and the one after the last.
pub(crate) type Place = (usize, u64, u64);

/// What can be cited, and was not in the events before.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    url: Option<Leaf<String>>,
    title: Option<Leaf<String>>,
    quote: Option<Leaf<String>>,
    native: Leaf<RawJson>,
}

impl Source {
    /// The same source, once its event is gone.
    pub(crate) fn kept(&self) -> Self {
        let keep =
            |leaf: &Option<Leaf<String>>| leaf.as_ref().map(|leaf| leaf.value.clone().into());
        Self {
            url: keep(&self.url),
            title: keep(&self.title),
            quote: keep(&self.quote),
            native: self.native.value.clone().into(),
        }
    }

    fn cited(&self, range: IrRange) -> IrCitation {
        IrCitation {
            url: self.url.clone(),
            title: self.title.clone(),
            quote: self.quote.clone(),
            range: Some(range),
            native: self.native.clone(),
        }
    }
}

/// What was found in a candidate.
#[derive(Debug, Default)]
pub(crate) struct Grounding {
    /// Citations with the blocks they belong to.
    pub(crate) citations: Vec<(usize, IrCitation)>,
    /// What no citation speaks for.
    pub(crate) vendor: Vec<IrVendorField>,
}

/// Reads the sources of a candidate. `locate` finds a segment in the text; `sources` are those of
/// earlier events, and get those of this one.
pub(crate) fn read(
    candidate: Fields<'_>,
    sources: &mut Vec<Source>,
    locate: impl Fn(&Segment) -> Option<Place>,
) -> Result<Grounding, DialectError> {
    let mut found = Grounding::default();
    if let Some(metadata) = candidate.fields("groundingMetadata")? {
        found.vendor = metadata.vendor(vendor::GROUNDING);
        let earlier = sources.len();
        let chunks: Vec<_> = metadata.repeated("groundingChunks").collect();
        for chunk in &chunks {
            sources.push(read_source(*chunk)?);
        }
        let mut used = vec![false; chunks.len()];
        for support in metadata.repeated("groundingSupports") {
            let Some((block, range)) = read_segment(Fields::of(support)?, &locate)? else {
                found.vendor.push(support.vendor("groundingSupports"));
                continue;
            };
            for index in Fields::of(support)?.repeated("groundingChunkIndices") {
                index.structure();
                let number = index.view().as_u64().and_then(|n| usize::try_from(n).ok());
                let Some(number) = number else { continue };
                if let Some(source) = sources.get(number) {
                    found.citations.push((block, source.cited(range.clone())));
                }
                let own = number.checked_sub(earlier);
                if let Some(used) = own.and_then(|own| used.get_mut(own)) {
                    *used = true;
                }
            }
        }
        for (chunk, _) in chunks.iter().zip(used).filter(|(_, used)| !used) {
            found.vendor.push(chunk.vendor("groundingChunks"));
        }
    }
    if let Some(metadata) = candidate.fields("citationMetadata")? {
        for name in ["citationSources", "citations"] {
            for item in metadata.repeated(name) {
                read_recitation(item, &locate, &mut found)?;
            }
        }
    }
    Ok(found)
}

/// Reads a source. Whatever it says besides where it is stays the vendor's.
fn read_source(chunk: Item<'_>) -> Result<Source, DialectError> {
    let native = chunk.vendor("groundingChunks").value;
    let inner = Fields::of(chunk)?;
    let kinds = ["web", "retrievedContext", "maps", "image"];
    let mut inner = kinds.iter().filter_map(|kind| inner.get(kind));
    let Some(inner) = inner.next().map(Fields::of).transpose()? else {
        return Ok(Source {
            url: None,
            title: None,
            quote: None,
            native,
        });
    };
    Ok(Source {
        url: inner.text("uri")?.or(inner.text("sourceUri")?),
        title: inner.text("title")?,
        quote: inner.text("text")?,
        native,
    })
}

fn read_recitation(
    item: Item<'_>,
    locate: &impl Fn(&Segment) -> Option<Place>,
    found: &mut Grounding,
) -> Result<(), DialectError> {
    let native = item.vendor("citationMetadata");
    let fields = Fields::of(item)?;
    match read_offsets(fields, locate)? {
        Some((block, range)) => {
            item.note(OFFSETS);
            let source = Source {
                url: fields.text("uri")?,
                title: fields.text("title")?,
                quote: None,
                native: native.value,
            };
            found.citations.push((block, source.cited(range)));
        }
        None => found.vendor.push(item.vendor("citationMetadata")),
    }
    Ok(())
}

fn read_segment(
    support: Fields<'_>,
    locate: &impl Fn(&Segment) -> Option<Place>,
) -> Result<Option<(usize, IrRange)>, DialectError> {
    let Some(segment) = support.fields("segment")? else {
        return Ok(None);
    };
    let Some(place) = read_offsets(segment, locate)? else {
        return Ok(None);
    };
    segment.item().note(OFFSETS);
    if let Some(text) = segment.get("text") {
        text.repeats();
    }
    if let Some(part) = segment.get("partIndex") {
        part.structure();
    }
    support.vendor(&["confidenceScores", "renderedParts"]);
    Ok(Some(place))
}

fn read_offsets(
    segment: Fields<'_>,
    locate: &impl Fn(&Segment) -> Option<Place>,
) -> Result<Option<(usize, IrRange)>, DialectError> {
    let start = segment.count("startIndex")?.unwrap_or_default();
    let Some(end) = segment.count("endIndex")? else {
        return Ok(None);
    };
    let text = segment.get("text").and_then(|text| text.view().as_str());
    let asked = Segment {
        start: start.value,
        end: end.value,
        text: text.map(std::borrow::Cow::into_owned),
    };
    Ok(locate(&asked).map(|(block, first, last)| {
        let range = IrRange {
            start: start.with(first),
            end: end.with(last),
        };
        (block, range)
    }))
}

/// Finds a segment in a text: its characters, where it starts and ends between two of them and says
/// what it should.
pub(crate) fn characters(text: &str, segment: &Segment) -> Option<(u64, u64)> {
    let start = usize::try_from(segment.start).ok()?;
    let end = usize::try_from(segment.end).ok()?;
    let words = text.get(start..end)?;
    if segment.text.as_ref().is_some_and(|told| told != words) {
        return None;
    }
    let before = text.get(..start)?.chars().count() as u64;
    Some((before, before + words.chars().count() as u64))
}

/// The widths of a text's characters, so that bytes and characters can be told apart once the text
/// itself is gone: runs of characters of the same width.
#[derive(Debug, Default)]
pub(crate) struct Widths(Vec<(u64, u64)>);

impl Widths {
    pub(crate) fn push(&mut self, text: &str) {
        for character in text.chars() {
            let width = character.len_utf8() as u64;
            match self.0.last_mut() {
                Some((last, count)) if *last == width => *count += 1,
                _ => self.0.push((width, 1)),
            }
        }
    }

    /// How many characters the first bytes are; `None` inside a character and beyond the end.
    pub(crate) fn characters(&self, bytes: u64) -> Option<u64> {
        let mut left = bytes;
        let mut characters = 0;
        for (width, count) in &self.0 {
            if left <= width * count {
                return left
                    .is_multiple_of(*width)
                    .then(|| characters + left / width);
            }
            left -= width * count;
            characters += count;
        }
        (left == 0).then_some(characters)
    }

    /// How many bytes the first characters are; all of them where there are fewer.
    pub(crate) fn bytes(&self, characters: u64) -> u64 {
        let mut left = characters;
        let mut bytes = 0;
        for (width, count) in &self.0 {
            let taken = left.min(*count);
            bytes += taken * width;
            left -= taken;
        }
        bytes
    }
}

/// A source as it is written.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// A page.
    Web {
        url: Leaf<String>,
        title: Option<Leaf<String>>,
    },
    /// Something else that only the vendor can name.
    Own(Leaf<RawJson>),
}

/// A citation of a written text, with its part of the answer in bytes.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) part: u64,
    pub(crate) chunk: Chunk,
    /// The bytes, and the parts of the source that they come from.
    pub(crate) range: Option<(u64, u64, [Origin; 2])>,
}

/// Plans to write a citation; `None` where another vendor names no address, which is remarked on by
/// `lose`.
pub(crate) fn plan(
    citation: &IrCitation,
    part: u64,
    widths: &Widths,
    own: bool,
    mut lose: impl FnMut(Origin, &'static str),
) -> Option<Written> {
    let IrCitation {
        url,
        title,
        quote,
        range,
        native,
    } = citation;
    let chunk = match url {
        Some(url) => Chunk::Web {
            url: url.clone(),
            title: title.clone(),
        },
        None if own => Chunk::Own(native.clone()),
        None => {
            lose(native.origin, "Gemini cites what has an address");
            return None;
        }
    };
    if let Some(quote) = quote.as_ref().filter(|_| !own) {
        lose(quote.origin, "Gemini does not repeat the words of a source");
    }
    let bytes = |range: &IrRange| {
        let (start, end) = (
            widths.bytes(range.start.value),
            widths.bytes(range.end.value),
        );
        (start, end, [range.start.origin, range.end.origin])
    };
    Some(Written {
        part,
        chunk,
        range: range.as_ref().map(bytes),
    })
}

/// Writes `groundingMetadata`, one source per citation.
pub(crate) fn write(citations: &[Written], out: &mut Lowering<'_>) {
    if citations.is_empty() {
        return;
    }
    out.put_object("groundingMetadata", |out| {
        out.put_array("groundingChunks", |out| {
            for citation in citations {
                match &citation.chunk {
                    Chunk::Web { url, title } => out.object(|out| {
                        out.put_object("web", |out| {
                            out.put("uri", url);
                            out.put_opt("title", title.as_ref());
                        });
                    }),
                    Chunk::Own(native) => out.value(native),
                }
            }
        });
        out.put_array("groundingSupports", |out| {
            for (index, citation) in citations.iter().enumerate() {
                if let Some((start, end, [from, to])) = citation.range {
                    out.object(|out| {
                        out.put_object("segment", |out| {
                            out.tag("partIndex", &citation.part);
                            out.put_as("startIndex", &start, &[from], &OFFSETS);
                            out.put_as("endIndex", &end, &[to], &OFFSETS);
                        });
                        out.put_array("groundingChunkIndices", |out| {
                            out.tag_value(&(index as u64));
                        });
                    });
                }
            }
        });
    });
}
