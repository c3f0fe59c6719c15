//! The capabilities and version that an agent tells, in ABP's terms.

use abp_core::{Capability, CapabilityManifest, SupportLevel};
use abp_error::{AbpError, ErrorCode};
use agent_client_protocol as acp;
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{AgentCapabilities, InitializeResponse};

use crate::spec::AcpSpec;

/// The error where the crate itself refused an answer of another version of the protocol. It says so in the data
/// of an invalid request only; the crate is pinned, and a test holds it to this.
pub(crate) fn foreign_version(error: &acp::Error) -> Option<AbpError> {
    let said = error.data.as_ref()?.to_string();
    let is_foreign =
        error.code == acp::ErrorCode::INVALID_REQUEST && said.contains("protocol version");
    is_foreign.then(|| {
        let message =
            format!("the agent does not speak version 1 of the Agent Client Protocol: {said}");
        AbpError::new(ErrorCode::ProtocolVersionMismatch, message)
    })
}

/// Checks the answer to `initialize`.
///
/// # Errors
/// Refuses another version of the protocol and of the agent.
pub(crate) fn check(answer: &InitializeResponse, spec: &AcpSpec) -> Result<(), AbpError> {
    if answer.protocol_version != ProtocolVersion::V1 {
        let message = format!(
            "the agent speaks version {} of the Agent Client Protocol, not 1",
            answer.protocol_version
        );
        return Err(AbpError::new(ErrorCode::ProtocolVersionMismatch, message));
    }
    let found = answer.agent_info.as_ref().map(|info| info.version.as_str());
    match (&spec.version, found) {
        (Some(pinned), Some(found)) if pinned != found => {
            let message = format!(
                "the agent says it is version {found}, and {pinned} is pinned; `abp agents update` installs that"
            );
            Err(AbpError::new(ErrorCode::BackendUnavailable, message))
        }
        _ => Ok(()),
    }
}

/// The capabilities of an agent: those it tells, and those of its tools.
pub(crate) fn manifest(
    capabilities: &AgentCapabilities,
    tools: &[Capability],
) -> CapabilityManifest {
    let sessions = &capabilities.session_capabilities;
    let told = [
        (Capability::Streaming, true),
        (
            Capability::SessionResume,
            capabilities.load_session || sessions.resume.is_some(),
        ),
        (Capability::SessionFork, sessions.fork.is_some()),
        (
            Capability::ImageInput,
            capabilities.prompt_capabilities.image,
        ),
        (Capability::Audio, capabilities.prompt_capabilities.audio),
        (Capability::McpClient, capabilities.mcp_capabilities.http),
    ];
    let told = told.into_iter().filter(|(_, has)| *has);
    let told: Vec<Capability> = told.map(|(capability, _)| capability).collect();
    native(told.iter().chain(tools))
}

/// A manifest in which all of these are native.
pub(crate) fn native<'a>(capabilities: impl Iterator<Item = &'a Capability>) -> CapabilityManifest {
    let all = capabilities.cloned();
    all.map(|capability| (capability, SupportLevel::Native))
        .collect()
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::Implementation;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_is_what_the_agent_tells_and_what_its_tools_are() {
        let capabilities = serde_json::from_value(json!({
            "loadSession": true,
            "promptCapabilities": {"image": true},
            "mcpCapabilities": {"http": true},
            "sessionCapabilities": {"fork": {}},
        }));
        let found = manifest(&capabilities.unwrap(), &[Capability::ToolBash]);
        let names: Vec<&str> = found.keys().map(Capability::as_str).collect();
        let mut expected = vec![
            "streaming",
            "session_resume",
            "session_fork",
            "image_input",
            "mcp_client",
            "tool_bash",
        ];
        let mut names_sorted = names.clone();
        names_sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names_sorted, expected);
        let bare = manifest(&AgentCapabilities::default(), &[]);
        assert_eq!(bare.len(), 1, "{bare:?}");
    }

    #[test]
    fn another_version_of_the_protocol_or_the_agent_is_refused() {
        let spec = AcpSpec {
            version: Some("1.2.3".to_owned()),
            ..AcpSpec::new("agent")
        };
        let cases = [
            (1, Some("1.2.3"), None),
            // An agent that does not say which it is was installed by its lock file.
            (1, None, None),
            (1, Some("1.2.4"), Some(ErrorCode::BackendUnavailable)),
            (2, Some("1.2.3"), Some(ErrorCode::ProtocolVersionMismatch)),
            (0, Some("1.2.3"), Some(ErrorCode::ProtocolVersionMismatch)),
        ];
        for (protocol, version, expected) in cases {
            let mut answer = InitializeResponse::new(ProtocolVersion::from(protocol));
            answer.agent_info = version.map(|version| Implementation::new("a", version));
            let refused = check(&answer, &spec).err().map(|error| error.code());
            assert_eq!(refused, expected, "{protocol} {version:?}");
        }
    }
}
