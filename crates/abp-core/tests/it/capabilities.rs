//! The vocabulary: names, aliases, and names from the future.

use abp_core::{Capability, CapabilityManifest, SupportLevel};
use serde_json::json;

/// The documented variants, in their order, with their wire names.
const DOCUMENTED: [(&str, &str); 18] = [
    ("Streaming", "streaming"),
    ("ToolRead", "tool_read"),
    ("ToolWrite", "tool_write"),
    ("ToolEdit", "tool_edit"),
    ("ToolBash", "tool_bash"),
    ("ToolGlob", "tool_glob"),
    ("ToolGrep", "tool_grep"),
    ("ToolWebSearch", "tool_web_search"),
    ("ToolWebFetch", "tool_web_fetch"),
    ("ToolAskUser", "tool_ask_user"),
    ("HooksPreToolUse", "hooks_pre_tool_use"),
    ("HooksPostToolUse", "hooks_post_tool_use"),
    ("SessionResume", "session_resume"),
    ("SessionFork", "session_fork"),
    ("Checkpointing", "checkpointing"),
    (
        "StructuredOutputJsonSchema",
        "structured_output_json_schema",
    ),
    ("McpClient", "mcp_client"),
    ("McpServer", "mcp_server"),
];

#[test]
fn names() {
    let documented: Vec<_> = Capability::KNOWN
        .iter()
        .take(DOCUMENTED.len())
        .map(|capability| (format!("{capability:?}"), capability.to_string()))
        .collect();
    assert_eq!(
        documented,
        DOCUMENTED.map(|(variant, wire)| (variant.to_owned(), wire.to_owned()))
    );

    for capability in Capability::KNOWN {
        let names =
            std::iter::once(capability.as_str()).chain(capability.aliases().iter().copied());
        for name in names {
            let read: Capability = serde_json::from_value(json!(name)).unwrap();
            assert_eq!(&read, capability);
            assert_eq!(
                serde_json::to_value(&read).unwrap(),
                json!(capability.as_str()),
                "written under one name"
            );
        }
    }
    for (alias, canonical) in [
        ("vision", Capability::ImageInput),
        ("function_calling", Capability::ToolUse),
    ] {
        assert_eq!(Capability::from_wire(alias), canonical);
    }
}

#[test]
fn manifests_keep_what_they_do_not_know() {
    let wire = json!({"streaming": "native", "telepathy": {"restricted": {"reason": "range"}}});
    let manifest: CapabilityManifest = serde_json::from_value(wire.clone()).unwrap();
    assert_eq!(manifest[&Capability::Streaming], SupportLevel::Native);
    assert_eq!(serde_json::to_value(manifest).unwrap(), wire);
}
