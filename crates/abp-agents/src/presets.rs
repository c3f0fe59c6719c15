//! The table of agents. Every row was measured with the version it pins; `cargo xtask agents` repeats it.

use crate::preset::{AgentPreset, AgentProgram, PackageSource, PermissionBehaviour};

macro_rules! npm {
    ($name:literal, $package:literal, $version:literal) => {
        PackageSource::Npm {
            package: $package,
            version: $version,
            manifest: include_str!(concat!("../locks/", $name, "/package.json")),
            lock: include_str!(concat!("../locks/", $name, "/package-lock.json")),
        }
    };
}

/// The agents.
#[must_use]
pub const fn presets() -> &'static [AgentPreset] {
    &PRESETS
}

/// The agent of a backend's name.
#[must_use]
pub fn find_preset(name: &str) -> Option<&'static AgentPreset> {
    presets().iter().find(|preset| preset.name == name)
}

/// The tools that agents ask about: those that change something.
const CHANGING_TOOLS: &[&str] = &["Write", "Edit", "Bash"];
/// Tools that every other agent of the table has.
const USUAL_TOOLS: &[&str] = &["tool_read", "tool_write", "tool_edit", "tool_bash"];
/// The same, with searching files by name and content. Claude Code declares no tools for it, and those of opencode
/// need a program that it would download first.
const SEARCHING_TOOLS: &[&str] = &[
    "tool_read",
    "tool_write",
    "tool_edit",
    "tool_bash",
    "tool_glob",
    "tool_grep",
];

/// Told by agents that load earlier sessions.
const RESUMING: &[&str] = &["streaming", "session_resume", "image_input", "mcp_client"];
/// Told by agents that fork sessions besides.
const FORKING: &[&str] = &[
    "streaming",
    "session_resume",
    "session_fork",
    "image_input",
    "mcp_client",
];
/// Told by agents that load earlier sessions and take audio.
const HEARING: &[&str] = &[
    "streaming",
    "session_resume",
    "image_input",
    "audio",
    "mcp_client",
];

static PRESETS: [AgentPreset; 7] = [
    AgentPreset {
        name: "claude",
        title: "Claude Code",
        source: npm!("claude", "@agentclientprotocol/claude-agent-acp", "0.99.1"),
        program: AgentProgram::Script("@agentclientprotocol/claude-agent-acp/dist/index.js"),
        args: &[],
        env: &[
            ("ANTHROPIC_BASE_URL", "{url}"),
            ("ANTHROPIC_AUTH_TOKEN", "{key}"),
            // It asks other models for titles and for work on the side; all of it goes to the one chosen.
            ("ANTHROPIC_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_OPUS_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_SONNET_MODEL", "{model}"),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"),
            ("CLAUDE_CODE_SUBAGENT_MODEL", "{model}"),
            ("IS_SANDBOX", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ],
        files: &[],
        usual_model: "claude-sonnet-4-5",
        mode: Some("default"),
        permissions: PermissionBehaviour::AsksFor(CHANGING_TOOLS),
        offers_files: false,
        told: FORKING,
        tools: USUAL_TOOLS,
    },
    AgentPreset {
        name: "codex",
        title: "Codex",
        source: npm!("codex", "@agentclientprotocol/codex-acp", "2.6.0"),
        program: AgentProgram::Script("@agentclientprotocol/codex-acp/dist/index.js"),
        args: &[],
        env: &[("ABP_AGENT_KEY", "{key}")],
        files: &[(
            ".codex/config.toml",
            "model = \"{model}\"
model_provider = \"abp\"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
apps = false
plugins = false
remote_plugin = false
plugin_sharing = false
[model_providers.abp]
name = \"Agent Backplane\"
base_url = \"{url}/v1\"
env_key = \"ABP_AGENT_KEY\"
wire_api = \"responses\"
supports_websockets = false
",
        )],
        usual_model: "gpt-5",
        // Its own sandbox cannot be made inside of ours.
        mode: Some("agent-full-access"),
        permissions: PermissionBehaviour::NeverAsks,
        offers_files: false,
        told: FORKING,
        // It declares one tool for work on files: commands.
        tools: &["tool_bash"],
    },
    AgentPreset {
        name: "gemini",
        title: "Gemini CLI",
        source: npm!("gemini", "@google/gemini-cli", "0.61.0"),
        program: AgentProgram::Script("@google/gemini-cli/bundle/gemini.js"),
        args: &["--acp", "-m", "{model}"],
        env: &[
            ("GOOGLE_GEMINI_BASE_URL", "{url}"),
            ("GEMINI_API_KEY", "{key}"),
            ("GEMINI_TELEMETRY_ENABLED", "false"),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
        ],
        files: &[(
            ".gemini/settings.json",
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},
"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},
"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false}}
"#,
        )],
        usual_model: "gemini-2.5-pro",
        mode: Some("default"),
        permissions: PermissionBehaviour::AsksFor(CHANGING_TOOLS),
        offers_files: false,
        told: HEARING,
        tools: SEARCHING_TOOLS,
    },
    AgentPreset {
        name: "copilot",
        title: "Copilot CLI",
        source: npm!("copilot", "@github/copilot", "1.0.102"),
        program: AgentProgram::Native("@github/copilot-linux-{arch}/copilot"),
        args: &["--acp", "--no-auto-update"],
        env: &[
            ("COPILOT_OFFLINE", "true"),
            ("COPILOT_AUTO_UPDATE", "false"),
            ("COPILOT_PROVIDER_TYPE", "openai"),
            ("COPILOT_PROVIDER_WIRE_API", "completions"),
            ("COPILOT_PROVIDER_BASE_URL", "{url}/v1"),
            ("COPILOT_PROVIDER_BEARER_TOKEN", "{key}"),
            ("COPILOT_MODEL", "{model}"),
        ],
        files: &[],
        usual_model: "gpt-5",
        mode: None,
        permissions: PermissionBehaviour::AsksFor(CHANGING_TOOLS),
        offers_files: false,
        told: RESUMING,
        tools: SEARCHING_TOOLS,
    },
    AgentPreset {
        name: "kimi",
        title: "Kimi Code",
        source: npm!("kimi", "@moonshot-ai/kimi-code", "2.1.0"),
        program: AgentProgram::Script("@moonshot-ai/kimi-code/dist/main.mjs"),
        args: &["acp"],
        env: &[
            ("KIMI_CODE_NO_AUTO_UPDATE", "1"),
            ("KIMI_DISABLE_TELEMETRY", "1"),
        ],
        files: &[(
            ".kimi-code/config.toml",
            "default_model = \"abp\"
telemetry = false
[providers.abp]
type = \"kimi\"
base_url = \"{url}/v1\"
api_key = \"{key}\"
[models.abp]
provider = \"abp\"
model = \"{model}\"
max_context_size = 200000
",
        )],
        usual_model: "kimi-k2-turbo-preview",
        mode: Some("default"),
        permissions: PermissionBehaviour::NeverAsks,
        offers_files: true,
        told: FORKING,
        tools: SEARCHING_TOOLS,
    },
    AgentPreset {
        name: "opencode",
        title: "opencode",
        source: npm!("opencode", "opencode-ai", "1.18.33"),
        program: AgentProgram::Native("opencode-linux-{arch}/bin/opencode"),
        args: &["acp"],
        env: &[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            (
                "OPENCODE_CONFIG_CONTENT",
                r#"{"model":"abp/{model}","small_model":"abp/{model}","autoupdate":false,"share":"disabled",
"provider":{"abp":{"npm":"@ai-sdk/openai-compatible","name":"Agent Backplane",
"options":{"baseURL":"{url}/v1","apiKey":"{key}"},
"models":{"{model}":{"name":"{model}","limit":{"context":200000,"output":8192}}}}},
"permission":{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}}"#,
            ),
        ],
        files: &[],
        usual_model: "gpt-5",
        mode: None,
        permissions: PermissionBehaviour::AsksFor(CHANGING_TOOLS),
        offers_files: false,
        told: FORKING,
        tools: USUAL_TOOLS,
    },
    AgentPreset {
        name: "qwen",
        title: "Qwen Code",
        source: npm!("qwen", "@qwen-code/qwen-code", "0.24.4"),
        program: AgentProgram::Script("@qwen-code/qwen-code/cli-entry.js"),
        args: &["--acp"],
        env: &[
            ("OPENAI_BASE_URL", "{url}/v1"),
            ("OPENAI_API_KEY", "{key}"),
            ("OPENAI_MODEL", "{model}"),
        ],
        files: &[(
            ".qwen/settings.json",
            r#"{"security":{"auth":{"selectedType":"openai"}},
"general":{"enableAutoUpdate":false,"disableAutoUpdate":true},
"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false}}
"#,
        )],
        usual_model: "qwen3-coder-plus",
        mode: Some("default"),
        permissions: PermissionBehaviour::AsksFor(CHANGING_TOOLS),
        offers_files: true,
        told: HEARING,
        tools: SEARCHING_TOOLS,
    },
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_lock_pins_what_the_table_names_with_a_hash_for_each_package() {
        for preset in presets() {
            let PackageSource::Npm {
                package,
                version,
                manifest,
                lock,
            } = preset.source;
            let name = preset.name;
            let manifest: Value = serde_json::from_str(manifest).unwrap();
            assert_eq!(manifest["dependencies"][package], version, "{name}");
            let lock: Value = serde_json::from_str(lock).unwrap();
            let packages = lock["packages"].as_object().unwrap();
            let own = &packages[&format!("node_modules/{package}")];
            assert_eq!(own["version"], version, "{name}");
            for (path, entry) in packages.iter().filter(|(path, _)| !path.is_empty()) {
                // A bundled package is covered by the hash of the one that holds it.
                let is_bundled = entry["inBundle"] == true;
                let hash = entry["integrity"].as_str().unwrap_or_default();
                assert!(
                    is_bundled || hash.starts_with("sha512-"),
                    "{name}: {path} has no hash"
                );
                assert!(
                    entry.get("resolved").is_none(),
                    "{name}: {path} names a registry"
                );
            }
        }
    }

    #[test]
    fn no_key_is_on_a_command_line_and_every_agent_gets_one() {
        for preset in presets() {
            let name = preset.name;
            assert!(
                preset.args.iter().all(|arg| !arg.contains("{key}")),
                "{name}"
            );
            let texts = preset.env.iter().chain(preset.files);
            let texts: Vec<&str> = texts.map(|(_, text)| *text).collect();
            for place in ["{url}", "{key}"] {
                assert!(
                    texts.iter().any(|text| text.contains(place)),
                    "{name} is not given {place}"
                );
            }
        }
    }

    /// The evidence is of the pinned version, and of nothing that the table claims it shows the opposite.
    #[test]
    fn every_claim_of_the_table_has_its_evidence() {
        let evidence = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("evidence");
        for preset in presets() {
            let name = preset.name;
            let text = std::fs::read_to_string(evidence.join(format!("{name}.json"))).unwrap();
            let found: Value = serde_json::from_str(&text).unwrap();
            let version = found["version"].as_str().unwrap();
            assert!(version.ends_with(preset.version()), "{name}: {version}");
            let rows = found["capabilities"].as_array().unwrap();
            for claim in preset.told.iter().chain(preset.tools) {
                let row = rows.iter().find(|row| row["capability"] == *claim);
                let row = row.unwrap_or_else(|| panic!("{name} has no evidence of {claim}"));
                assert_eq!(row["claimed"], "native", "{name}: {claim}");
                assert_ne!(row["shown"], false, "{name}: {claim}");
            }
            let claimed = rows.iter().filter(|row| row["claimed"] != "unsupported");
            let claims = preset.told.len() + preset.tools.len();
            assert_eq!(
                claimed.count(),
                claims,
                "{name} claims something else when it is opened"
            );
        }
    }
}
