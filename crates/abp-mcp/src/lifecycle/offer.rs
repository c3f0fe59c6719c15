//! What each end says of itself, and the messages that say so.

use abp_json::{View, Writer};

use crate::capabilities::{ClientCapabilities, ServerCapabilities};
use crate::meta::{self, Implementation};
use crate::refusal::{RpcRefusal, shorten};
use crate::version::{self, Era, ProtocolVersion};

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The versions it speaks, of one era or of both.
    pub versions: Vec<ProtocolVersion>,
    /// What it can do. Flags that a client's version does not have are not told to that client.
    pub capabilities: ServerCapabilities,
    /// Who it is.
    pub info: Implementation,
    /// How a model uses it best.
    pub instructions: Option<String>,
    /// What it does when a client asks for lists it does not have.
    pub profile: Profile,
}

/// What a server does when a client with a handshake asks for lists it does not have.
///
/// Widespread clients ask for prompts and resources whatever was declared, and give up on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Refuses, as the protocol says.
    Strict,
    /// Answers that the lists are empty.
    Compat,
}

/// What a client says of itself.
#[derive(Clone, Debug)]
pub struct ClientOffer {
    /// The versions it speaks. With both eras, a server is asked first whether it is modern.
    pub versions: Vec<ProtocolVersion>,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// Who it is.
    pub info: Implementation,
}

impl Offer {
    /// The answer to `initialize`.
    pub(super) fn initialize_result(
        &self,
        version: ProtocolVersion,
        server: &ServerCapabilities,
    ) -> String {
        let mut out = Writer::default();
        out.begin_object();
        out.key("protocolVersion");
        out.string(version.as_str());
        out.key("capabilities");
        out.raw(&server.to_json());
        out.key("serverInfo");
        out.raw(self.info.to_json());
        self.write_instructions(&mut out);
        out.end_object();
        out.into_text()
    }

    /// The answer to `server/discover`.
    pub(super) fn discover_result(&self, server: &ServerCapabilities) -> String {
        let mut out = Writer::default();
        out.begin_object();
        out.key("supportedVersions");
        out.begin_array();
        for version in self.newest_first() {
            out.string(version.as_str());
        }
        out.end_array();
        out.key("capabilities");
        out.raw(&server.to_json());
        self.write_instructions(&mut out);
        // What is offered may change with whoever is behind this server, so nobody is to keep it.
        out.key("ttlMs");
        out.raw("0");
        out.key("cacheScope");
        out.string("private");
        meta::write_result_stamps(&mut out, &self.info);
        out.end_object();
        out.into_text()
    }

    pub(super) fn unsupported(&self, requested: &str) -> RpcRefusal {
        RpcRefusal::UnsupportedVersion {
            requested: shorten(requested),
            supported: self.newest_first(),
        }
    }

    fn write_instructions(&self, out: &mut Writer) {
        if let Some(instructions) = &self.instructions {
            out.key("instructions");
            out.string(instructions);
        }
    }

    fn newest_first(&self) -> Vec<ProtocolVersion> {
        let mut versions = self.versions.clone();
        versions.sort();
        versions.reverse();
        versions
    }
}

impl ClientOffer {
    /// The parameters of `initialize`.
    pub(super) fn introduction(&self, version: ProtocolVersion) -> String {
        let mut out = Writer::default();
        out.begin_object();
        out.key("protocolVersion");
        out.string(version.as_str());
        out.key("capabilities");
        out.raw(&self.capabilities.for_version(version).to_json());
        out.key("clientInfo");
        out.raw(self.info.to_json());
        out.end_object();
        out.into_text()
    }

    /// The parameters of a request with what a modern version needs beside them.
    pub(super) fn stamp(
        &self,
        version: ProtocolVersion,
        params: Option<View<'_>>,
    ) -> Option<String> {
        let capabilities = self.capabilities.for_version(version);
        let stamped = || meta::stamp_params(params, version, &capabilities, &self.info);
        (version.era() == Era::Modern).then(stamped)
    }

    /// The newest version of an era that a server speaks too.
    pub(super) fn common(&self, era: Era, theirs: &[String]) -> Option<ProtocolVersion> {
        let theirs = theirs.iter().map(String::as_str);
        version::choose(era, &self.versions, theirs)
    }
}
