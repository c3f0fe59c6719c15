//! How each agent is pointed at a gateway.
//!
//! Nothing here changes what the user has set up: an agent is told by its environment, its command
//! line, and files in a directory that is gone when it ends. The key is never on a command line, where
//! other users could read it.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::{Agent, OnLoss};

/// The variable in which Codex finds its key.
const CODEX_KEY: &str = "ABP_LAUNCH_KEY";
/// The name of the provider in configurations that have several.
const PROVIDER: &str = "abp";

/// What an agent has to know.
#[derive(Clone, Copy)]
pub(super) struct Target<'t> {
    /// The gateway's address, without a path.
    pub(super) base: &'t str,
    pub(super) key: &'t str,
    /// The model, where one was chosen.
    pub(super) model: Option<&'t str>,
    /// What the user has set up for the agent, where it has to be told again.
    pub(super) own: &'t OwnFiles,
    pub(super) on_loss: OnLoss,
    /// A directory of this launch alone.
    pub(super) directory: &'t Path,
}

/// Files of the user's that an agent does not look for once it has a directory of its own.
#[derive(Default)]
pub(super) struct OwnFiles {
    pub(super) settings: Option<Map<String, Value>>,
    pub(super) trusted_folders: Option<String>,
    pub(super) memory: Option<String>,
}

impl OwnFiles {
    /// What Gemini CLI has of the user's; what cannot be read is as good as absent.
    pub(super) fn of_gemini() -> Self {
        let home = ["GEMINI_CLI_HOME", "HOME"]
            .into_iter()
            .find_map(std::env::var_os);
        let Some(home) = home else {
            return Self::default();
        };
        let directory = Path::new(&home).join(".gemini");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
        Self {
            settings: read("settings.json").and_then(|text| serde_json::from_str(&text).ok()),
            trusted_folders: read("trustedFolders.json"),
            memory: read("GEMINI.md"),
        }
    }
}

/// What an agent is given.
#[derive(Default)]
pub(super) struct Setup {
    /// Variables that are set.
    pub(super) set: Vec<(&'static str, String)>,
    /// Variables that would lead it elsewhere.
    pub(super) unset: &'static [&'static str],
    /// Arguments before the user's own.
    pub(super) args: Vec<String>,
    /// Files in the directory of the launch.
    pub(super) files: Vec<(&'static str, String)>,
}

impl Agent {
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Kimi => "kimi",
            Self::Opencode => "opencode",
        }
    }

    /// Whether it has no model of its own choice.
    pub(super) const fn needs_model(self) -> bool {
        match self {
            Self::Claude | Self::Codex | Self::Gemini => false,
            Self::Copilot | Self::Kimi | Self::Opencode => true,
        }
    }

    /// The package that brings the program.
    pub(super) const fn package(self) -> &'static str {
        match self {
            Self::Claude => "@anthropic-ai/claude-code",
            Self::Codex => "@openai/codex",
            Self::Gemini => "@google/gemini-cli",
            Self::Copilot => "@github/copilot",
            Self::Kimi => "@moonshot-ai/kimi-code",
            Self::Opencode => "opencode-ai",
        }
    }

    pub(super) fn setup(self, target: &Target<'_>) -> Setup {
        match self {
            Self::Claude => claude(target),
            Self::Codex => codex(target),
            Self::Gemini => gemini(target),
            Self::Copilot => copilot(target),
            Self::Kimi => kimi(target),
            Self::Opencode => opencode(target),
        }
    }
}

impl Target<'_> {
    fn versioned(&self) -> String {
        format!("{}/v1", self.base)
    }

    fn on_loss(&self) -> &'static str {
        match self.on_loss {
            OnLoss::Label => "label",
            OnLoss::Reject => "reject",
        }
    }

    /// The wish in the form in which most agents take additional headers.
    fn header(&self) -> String {
        format!("x-abp-on-loss: {}", self.on_loss())
    }

    /// The model of an agent that cannot do without one.
    fn needed_model(&self) -> String {
        self.model.unwrap_or_default().to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// Claude Code prefers the environment in its user's settings to that of its process, and a file of
/// settings on its command line to both.
fn claude(target: &Target<'_>) -> Setup {
    const SETTINGS: &str = "claude.json";
    let mut environment = json!({
        "ANTHROPIC_BASE_URL": target.base,
        "ANTHROPIC_AUTH_TOKEN": target.key,
        "ANTHROPIC_CUSTOM_HEADERS": target.header(),
    });
    // It asks other models for titles and for work on the side; all of it goes to the one chosen.
    for variable in [
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "CLAUDE_CODE_SUBAGENT_MODEL",
    ] {
        if let (Some(model), Some(variables)) = (target.model, environment.as_object_mut()) {
            variables.insert(variable.to_owned(), model.into());
        }
    }
    let settings = json!({ "env": environment });
    Setup {
        unset: &[
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_FOUNDRY",
            "CLAUDE_CODE_USE_VERTEX",
        ],
        args: vec!["--settings".to_owned(), target.file(SETTINGS)],
        files: vec![(SETTINGS, format!("{settings:#}\n"))],
        ..Setup::default()
    }
}

fn codex(target: &Target<'_>) -> Setup {
    let provider = format!(
        "model_providers.{PROVIDER}={{name=\"Agent Backplane\",base_url={},env_key=\"{CODEX_KEY}\",\
         wire_api=\"responses\",http_headers={{x-abp-on-loss=\"{}\"}}}}",
        quoted(&target.versioned()),
        target.on_loss(),
    );
    let model = target.model.map(|model| format!("model={}", quoted(model)));
    let settings = [format!("model_provider=\"{PROVIDER}\""), provider];
    let settings = settings.into_iter().chain(model);
    Setup {
        set: vec![(CODEX_KEY, target.key.to_owned())],
        args: settings
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect(),
        ..Setup::default()
    }
}

/// Text as TOML and JSON both write it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Gemini CLI lets only its settings choose between a login and a key, so it gets settings of its own:
/// those of the user, with that choice, and beside them the folders and the memory that it would not find.
fn gemini(target: &Target<'_>) -> Setup {
    let own = target.own;
    let mut settings = own.settings.clone().unwrap_or_default();
    let mut security = taken(&mut settings, "security");
    let mut auth = taken(&mut security, "auth");
    auth.insert("selectedType".to_owned(), "gemini-api-key".into());
    security.insert("auth".to_owned(), auth.into());
    settings.insert("security".to_owned(), security.into());
    let settings = Value::from(settings);
    let mut files = vec![(".gemini/settings.json", format!("{settings:#}\n"))];
    let others = [
        (".gemini/trustedFolders.json", &own.trusted_folders),
        (".gemini/GEMINI.md", &own.memory),
    ];
    files.extend(
        others
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.clone()?))),
    );
    let mut set = vec![
        ("GEMINI_CLI_HOME", target.directory.display().to_string()),
        ("GOOGLE_GEMINI_BASE_URL", target.base.to_owned()),
        ("GEMINI_API_KEY", target.key.to_owned()),
        ("GEMINI_CLI_CUSTOM_HEADERS", target.header()),
    ];
    set.extend(target.model.map(|model| ("GEMINI_MODEL", model.to_owned())));
    Setup {
        set,
        unset: &[
            "GOOGLE_API_KEY",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ],
        files,
        ..Setup::default()
    }
}

/// The object under a name; an empty one where there is none.
fn taken(object: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match object.remove(name) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

fn copilot(target: &Target<'_>) -> Setup {
    Setup {
        set: vec![
            ("COPILOT_OFFLINE", "true".to_owned()),
            ("COPILOT_PROVIDER_TYPE", "openai".to_owned()),
            ("COPILOT_PROVIDER_WIRE_API", "completions".to_owned()),
            ("COPILOT_PROVIDER_BASE_URL", target.versioned()),
            ("COPILOT_PROVIDER_BEARER_TOKEN", target.key.to_owned()),
            ("COPILOT_PROVIDER_HEADERS", target.header()),
            ("COPILOT_MODEL", target.needed_model()),
        ],
        unset: &[
            "COPILOT_PROVIDER_API_KEY",
            "COPILOT_PROVIDER_API_KEY_COMMAND",
            "COPILOT_PROVIDER_MODEL_ID",
            "COPILOT_PROVIDER_TRANSPORT",
            "COPILOT_PROVIDER_WIRE_MODEL",
        ],
        ..Setup::default()
    }
}

fn kimi(target: &Target<'_>) -> Setup {
    Setup {
        set: vec![
            ("KIMI_MODEL_NAME", target.needed_model()),
            ("KIMI_MODEL_PROVIDER_TYPE", "kimi".to_owned()),
            ("KIMI_MODEL_BASE_URL", target.versioned()),
            ("KIMI_MODEL_API_KEY", target.key.to_owned()),
            ("KIMI_CODE_CUSTOM_HEADERS", target.header()),
        ],
        ..Setup::default()
    }
}

fn opencode(target: &Target<'_>) -> Setup {
    let model = target.needed_model();
    let chosen = format!("{PROVIDER}/{model}");
    let config = json!({
        "model": chosen,
        "small_model": chosen,
        "provider": { PROVIDER: {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Agent Backplane",
            "options": {
                "baseURL": target.versioned(),
                "apiKey": target.key,
                "headers": { "x-abp-on-loss": target.on_loss() },
            },
            "models": { &model: { "name": model } },
        } },
    });
    Setup {
        set: vec![("OPENCODE_CONFIG_CONTENT", config.to_string())],
        ..Setup::default()
    }
}
