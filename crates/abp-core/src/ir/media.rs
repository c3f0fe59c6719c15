//! Images, documents, sound.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrBlock, Leaf};

/// The content of an image, a document, a sound or a film.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrMedia {
    /// Its media type, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<Leaf<String>>,
    /// The content.
    #[serde(flatten)]
    pub data: IrMediaData,
}

/// How content is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrMediaData {
    /// Inline, base64. A data URL is this, with the origin of the URL on both leaves.
    #[serde(rename = "data")]
    Base64(Leaf<String>),
    /// Somewhere on the network.
    Url(Leaf<String>),
    /// A file the vendor keeps.
    FileId(Leaf<String>),
    /// A document of plain text.
    Text(Leaf<String>),
    /// A document made of blocks.
    Blocks(Vec<IrBlock>),
}
