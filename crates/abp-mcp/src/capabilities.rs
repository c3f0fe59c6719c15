//! What servers and clients declare they can do.
//!
//! Capabilities are a JSON object of which some members are known: the flags. Everything else, be it
//! experimental, newer than this crate or plainly wrong, is kept as it was written and declares
//! nothing.
//!
//! ```
//! use abp_mcp::{ServerCapabilities, ServerFlag};
//!
//! let text = r#"{"tools":{"listChanged":true,"x":1e5},"acme":[]}"#;
//! let server = ServerCapabilities::from_json(text)?;
//! assert!(server.declares(ServerFlag::ToolsListChanged));
//! assert!(!server.declares(ServerFlag::Prompts));
//! assert_eq!(server.to_json(), text);
//! # Ok::<(), abp_mcp::CapabilityError>(())
//! ```

mod flag;
mod tree;

use std::collections::BTreeSet;

use abp_json::{JsonError, Kind, Tape, View};

pub use flag::{CapabilityFlag, ClientFlag, Form, ServerFlag};
use tree::Tree;

use crate::message::MESSAGE_LIMITS;
use crate::meta;
use crate::version::ProtocolVersion;

/// What a server declares.
pub type ServerCapabilities = Capabilities<ServerFlag>;

/// What a client declares.
pub type ClientCapabilities = Capabilities<ClientFlag>;

/// The extension that tasks are since 2026-07-28.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

const EXTENSIONS: &str = "extensions";
const EXPERIMENTAL: &str = "experimental";

/// The capabilities of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities<F> {
    document: Tree,
    declared: BTreeSet<F>,
}

/// Why capabilities are not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityError {
    /// The text is not JSON.
    #[error("capabilities are not JSON: {0}")]
    NotJson(#[from] JsonError),
    /// The value is not an object.
    #[error("capabilities are not an object")]
    NotAnObject,
    /// No version of the protocol has this capability or feature.
    #[error("there is no capability {path:?}")]
    Unknown {
        /// What was asked for.
        path: String,
    },
    /// It is not declared.
    #[error("{path} is not declared")]
    NotSupported {
        /// What was asked for.
        path: String,
    },
}

impl<F: CapabilityFlag> Capabilities<F> {
    /// No capability at all.
    #[must_use]
    pub fn none() -> Self {
        Self::from_tree(Tree::empty())
    }

    /// The flags, each with what it is written under.
    #[must_use]
    pub fn of(flags: impl IntoIterator<Item = F>) -> Self {
        let mut document = Tree::empty();
        for flag in flags {
            write(flag, &mut document);
        }
        Self::from_tree(document)
    }

    /// Reads capabilities.
    ///
    /// # Errors
    /// Refuses what is not a JSON object; a member of the wrong kind only declares nothing.
    pub fn from_json(text: &str) -> Result<Self, CapabilityError> {
        let tape = Tape::parse_str(text, &MESSAGE_LIMITS)?;
        Self::read(tape.root()).ok_or(CapabilityError::NotAnObject)
    }

    /// Reads capabilities from a part of a message; `None` if that is no object.
    #[must_use]
    pub fn read(view: View<'_>) -> Option<Self> {
        (view.kind() == Kind::Object).then(|| Self::from_tree(Tree::read(view)))
    }

    /// The capabilities as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.document.to_json()
    }

    /// Whether a flag is declared.
    #[must_use]
    pub fn declares(&self, flag: F) -> bool {
        self.declared.contains(&flag)
    }

    /// The flags that are declared, whatever the version.
    #[must_use]
    pub fn flags(&self) -> &BTreeSet<F> {
        &self.declared
    }

    /// The flags that are declared and that a version has.
    #[must_use]
    pub fn flags_in(&self, version: ProtocolVersion) -> BTreeSet<F> {
        let declared = self.declared.iter().copied();
        declared
            .filter(|flag| flag.span().contains(version))
            .collect()
    }

    /// The identifiers of the extensions that are declared.
    pub fn extensions(&self) -> impl Iterator<Item = &str> {
        self.objects_in(EXTENSIONS)
    }

    /// The names of the experimental capabilities that are declared.
    pub fn experimental(&self) -> impl Iterator<Item = &str> {
        self.objects_in(EXPERIMENTAL)
    }

    /// The settings of an extension as JSON, if it is declared.
    #[must_use]
    pub fn extension(&self, id: &str) -> Option<String> {
        let settings = self.document.get(&[EXTENSIONS, id])?;
        settings.is_object().then(|| settings.to_json())
    }

    /// Declares a flag, and what it is written under. Nothing that was declared is lost.
    #[must_use]
    pub fn with(mut self, flag: F) -> Self {
        write(flag, &mut self.document);
        // What the parent implied before is written out where it no longer does.
        for implied in &self.declared {
            if !is_declared(*implied, &self.document) {
                write(*implied, &mut self.document);
            }
        }
        Self::from_tree(self.document)
    }

    /// Takes a flag back, and what is written under it. Nothing becomes declared by that.
    #[must_use]
    pub fn without(mut self, flag: F) -> Self {
        self.document.remove(flag.path());
        let kept = Self::from_tree(self.document.clone());
        let is_implied = kept.declares(flag) || !kept.declared.is_subset(&self.declared);
        match flag.path().split_last() {
            // An emptied parent would imply what was not declared, so it goes as well.
            Some((_, parent)) if is_implied => {
                self.document.remove(parent);
                Self::from_tree(self.document)
            }
            _ => kept,
        }
    }

    /// Declares an extension with the settings of another declaration of it.
    #[must_use]
    pub fn with_extension<G: CapabilityFlag>(mut self, id: &str, of: &Capabilities<G>) -> Self {
        let settings = of.document.get(&[EXTENSIONS, id]).cloned();
        let settings = settings.filter(Tree::is_object);
        self.document
            .set(&[EXTENSIONS, id], settings.unwrap_or_else(Tree::empty));
        Self::from_tree(self.document)
    }

    /// Leaves out the flags that a version does not have. What is not a flag stays: no version
    /// closes the set.
    #[must_use]
    pub fn for_version(&self, version: ProtocolVersion) -> Self {
        let foreign = F::ALL
            .iter()
            .filter(|flag| !flag.span().contains(version) && self.declares(**flag));
        foreign.fold(self.clone(), |kept, flag| kept.without(*flag))
    }

    fn from_tree(document: Tree) -> Self {
        let declared = F::ALL.iter().copied();
        let declared = declared
            .filter(|flag| is_declared(*flag, &document))
            .collect();
        Self { document, declared }
    }

    fn objects_in(&self, member: &str) -> impl Iterator<Item = &str> {
        let object = self.document.get(&[member]);
        object.into_iter().flat_map(Tree::objects).map(|(id, _)| id)
    }
}

impl<F: CapabilityFlag> Default for Capabilities<F> {
    fn default() -> Self {
        Self::none()
    }
}

/// What a server declares that has every feature but tasks.
///
/// Sampling and roots are not among them: those are capabilities of clients.
#[must_use]
pub fn build_server_capabilities() -> ServerCapabilities {
    build_server_capabilities_with([
        ServerFlag::Logging,
        ServerFlag::Completions,
        ServerFlag::PromptsListChanged,
        ServerFlag::ResourcesSubscribe,
        ServerFlag::ResourcesListChanged,
        ServerFlag::ToolsListChanged,
    ])
}

/// What a server declares that has these features.
#[must_use]
pub fn build_server_capabilities_with(
    flags: impl IntoIterator<Item = ServerFlag>,
) -> ServerCapabilities {
    ServerCapabilities::of(flags)
}

/// What a client declares in the parameters of `initialize`, or since 2026-07-28 in the `_meta` of
/// any request; nothing where it declares nothing.
#[must_use]
pub fn extract_client_capabilities(params: Option<View<'_>>) -> ClientCapabilities {
    let declared = params.and_then(|params| {
        let in_meta = || params.get(meta::META)?.get(meta::CLIENT_CAPABILITIES);
        params.get("capabilities").or_else(in_meta)
    });
    declared
        .and_then(ClientCapabilities::read)
        .unwrap_or_default()
}

/// Says whether a capability is declared, by its name: `tools`, `sampling`, `extensions`, …
///
/// # Errors
/// Tells a name that is not declared from one that this side has in no version.
pub fn validate_capability<F: CapabilityFlag>(
    capabilities: &Capabilities<F>,
    name: &str,
) -> Result<(), CapabilityError> {
    if matches!(name, EXTENSIONS | EXPERIMENTAL) {
        let is_declared = capabilities.objects_in(name).next().is_some();
        return supported(is_declared, name.to_owned());
    }
    let flag = F::ALL.iter().find(|flag| flag.path() == [name]);
    by_flag(capabilities, flag, name.to_owned())
}

/// Says whether a feature of a capability is declared: `subscribe` of `resources`, `form` of
/// `elicitation`, `requests.tools.call` of `tasks`, …
///
/// # Errors
/// Tells a feature that is not declared from one that this side has in no version.
pub fn validate_feature<F: CapabilityFlag>(
    capabilities: &Capabilities<F>,
    capability: &str,
    feature: &str,
) -> Result<(), CapabilityError> {
    let path = format!("{capability}.{feature}");
    let flag = F::ALL.iter().find(|flag| flag.to_string() == path);
    by_flag(capabilities, flag, path)
}

fn by_flag<F: CapabilityFlag>(
    capabilities: &Capabilities<F>,
    flag: Option<&F>,
    path: String,
) -> Result<(), CapabilityError> {
    match flag {
        Some(flag) => supported(capabilities.declares(*flag), path),
        None => Err(CapabilityError::Unknown { path }),
    }
}

fn supported(is_declared: bool, path: String) -> Result<(), CapabilityError> {
    if is_declared {
        return Ok(());
    }
    Err(CapabilityError::NotSupported { path })
}

fn is_declared<F: CapabilityFlag>(flag: F, document: &Tree) -> bool {
    let implied = || match (flag.form(), flag.path().split_last()) {
        (Form::ObjectUnless { rival }, Some((name, parent))) => {
            document.get(parent).is_some_and(|parent| {
                parent.is_object() && parent.get(&[name]).or(parent.get(&[rival])).is_none()
            })
        }
        _ => false,
    };
    is_written(flag, document) || implied()
}

fn is_written<F: CapabilityFlag>(flag: F, document: &Tree) -> bool {
    let value = document.get(flag.path());
    value.is_some_and(|value| match flag.form() {
        Form::Object | Form::ObjectUnless { .. } => value.is_object(),
        Form::True => value.is_true(),
    })
}

fn write<F: CapabilityFlag>(flag: F, document: &mut Tree) {
    if !is_written(flag, document) {
        let value = match flag.form() {
            Form::Object | Form::ObjectUnless { .. } => Tree::empty(),
            Form::True => Tree::Other("true".to_owned()),
        };
        document.set(flag.path(), value);
    }
}
