//! The table of settings: what exists, of which type, and who may set it.
//!
//! Reading, unknown keys, the environment and the rules for project files all come from this table;
//! a test holds it against the JSON schema of [`Config`](crate::Config).

/// In a path: any name.
pub(crate) const ANY: &str = "*";

/// Everything that can be set.
#[must_use]
pub fn settings() -> &'static [Setting] {
    SETTINGS
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub(crate) path: &'static [&'static str],
    pub(crate) kind: Kind,
    project: bool,
    env: Option<&'static str>,
}

impl Setting {
    /// The dotted key, with `*` for any name.
    #[must_use]
    pub fn key(&self) -> String {
        self.path.join(".")
    }

    /// The environment variable that sets it.
    #[must_use]
    pub const fn env(&self) -> Option<&'static str> {
        self.env
    }

    /// Whether a project file may set it.
    #[must_use]
    pub const fn project_may_set(&self) -> bool {
        self.project
    }

    /// What replaces it, where it is no longer read.
    #[must_use]
    pub const fn successor(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Deprecated { successor } => Some(successor),
            _ => None,
        }
    }

    /// Whether its value is a path, a list of paths, or a command that can be one.
    #[must_use]
    pub const fn is_path(&self) -> bool {
        matches!(
            self.kind,
            Kind::Path | Kind::Command | Kind::List(Kind::Path)
        )
    }

    const fn env_name(mut self, name: &'static str) -> Self {
        self.env = Some(name);
        self
    }

    const fn project(mut self) -> Self {
        self.project = true;
        self
    }
}

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// A name or a version that goes to somebody else as it is.
    Word,
    /// The name of an environment variable.
    Variable,
    /// An address of HTTP, without a query and without credentials.
    Url,
    /// An address of HTTP that leads further, without credentials, or `none`.
    Proxy,
    /// The name of a header or of a parameter.
    HeaderName,
    /// A host, with or without a port.
    Host,
    /// Where a page may come from: scheme, host and port.
    WebOrigin,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number within limits; above `doubtful` it is probably a mistake.
    Integer { min: i64, max: i64, doubtful: i64 },
    /// An amount of money, zero or more.
    Dollars,
    /// A path.
    Path,
    /// A program: a name on the search path, or a path.
    Command,
    /// An IP address.
    Address,
    /// A list of values of one kind.
    List(&'static Self),
    /// A list of patterns: of models, of tools, or of the policy list of the same name.
    Patterns,
    /// No longer read.
    Deprecated { successor: &'static str },
}

const SANDBOX_ENGINES: &[&str] = &["auto", "namespaces", "landlock", "none"];
const SANDBOX_NETWORKS: &[&str] = &["policy", "open"];
const SECONDS: Kind = Kind::Integer {
    min: 1,
    max: 86_400,
    doubtful: 3_600,
};
const DAYS: Kind = between(1, 36_500);
const PRIORITY: Kind = at_least(0);
const PORT: Kind = between(1, u16::MAX as i64);
const TEXTS: Kind = Kind::List(&Kind::Text);

const fn between(min: i64, max: i64) -> Kind {
    Kind::Integer {
        min,
        max,
        doubtful: i64::MAX,
    }
}

const fn at_least(min: i64) -> Kind {
    between(min, u32::MAX as i64)
}

const fn setting(path: &'static [&'static str], kind: Kind) -> Setting {
    Setting {
        path,
        kind,
        project: false,
        env: None,
    }
}

const fn restriction(path: &'static [&'static str]) -> Setting {
    setting(path, Kind::Patterns).project()
}

const fn policy_list(path: &'static [&'static str]) -> Setting {
    setting(path, Kind::Patterns)
}

const fn price(path: &'static [&'static str]) -> Setting {
    setting(path, Kind::Dollars)
}

const fn deprecated(path: &'static [&'static str], successor: &'static str) -> Setting {
    setting(path, Kind::Deprecated { successor })
}

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
const AUTH_KINDS: &[&str] = &[
    "dialect", "bearer", "header", "query", "azure", "vertex", "bedrock",
];
const DIALECTS: &[&str] = &["openai", "claude", "gemini", "codex", "kimi", "copilot"];

const SETTINGS: &[Setting] = &[
    setting(&["default_backend"], Kind::Text)
        .env_name("ABP_DEFAULT_BACKEND")
        .project(),
    setting(&["default_policy"], Kind::Text).env_name("ABP_DEFAULT_POLICY"),
    setting(&["default_prices"], Kind::Text).env_name("ABP_DEFAULT_PRICES"),
    setting(&["state_dir"], Kind::Path).env_name("ABP_HOME"),
    setting(&["stages_dir"], Kind::Path).env_name("ABP_STAGES_DIR"),
    setting(&["hosts_dir"], Kind::Path).env_name("ABP_HOSTS_DIR"),
    setting(&["agents_dir"], Kind::Path).env_name("ABP_AGENTS_DIR"),
    setting(&["log_level"], Kind::Choice(LEVELS)).env_name("ABP_LOG_LEVEL"),
    setting(&["approval_timeout_secs"], SECONDS).env_name("ABP_APPROVAL_TIMEOUT_SECS"),
    setting(&["bind_address"], Kind::Address).env_name("ABP_BIND_ADDRESS"),
    setting(&["port"], PORT).env_name("ABP_PORT"),
    setting(&["server", "allowed_hosts"], Kind::List(&Kind::Host)),
    setting(&["server", "allowed_origins"], Kind::List(&Kind::WebOrigin)),
    setting(&["server", "max_body_mb"], between(1, 1_024)),
    setting(&["server", "max_connections"], between(1, 1_000_000)),
    setting(&["server", "max_concurrent"], between(1, 1_000_000)),
    setting(&["server", "max_bodies_mb"], between(1, 1_048_576)),
    setting(&["server", "header_timeout_secs"], SECONDS),
    setting(&["server", "body_timeout_secs"], SECONDS),
    setting(&["server", "idle_timeout_secs"], SECONDS),
    setting(&["server", "tls_cert"], Kind::Path),
    setting(&["server", "tls_key"], Kind::Path),
    setting(&["server", "keepalive_secs"], SECONDS),
    setting(&["server", "drain_timeout_secs"], SECONDS),
    setting(&["server", "max_attempts"], between(1, 10)),
    setting(&["server", "roots"], Kind::List(&Kind::Path)),
    setting(&["server", "max_blob_mb"], between(1, 4_096)),
    setting(&["server", "max_uploads_mb"], between(1, 1_048_576)),
    setting(&["server", "keep_days"], between(1, 3_650)),
    setting(&["retention", "events_days"], DAYS),
    setting(&["retention", "events_mb"], at_least(1)),
    setting(&["retention", "undecided_days"], DAYS),
    setting(&["retention", "stages_mb"], at_least(1)),
    setting(&["retention", "homes_days"], DAYS),
    setting(&["retention", "homes_mb"], at_least(1)),
    setting(&["retention", "keep_days"], between(0, 36_500)),
    setting(&["retention", "interval_minutes"], between(1, 10_080)),
    setting(&["telemetry", "endpoint"], Kind::Url),
    setting(&["telemetry", "headers", ANY], Kind::Text),
    setting(&["telemetry", "interval_secs"], SECONDS),
    setting(&["telemetry", "max_queue_mb"], between(1, 1_024)),
    setting(&["control", "max_running"], between(1, 100_000)),
    setting(
        &["control", "max_running_per_principal"],
        between(1, 100_000),
    ),
    setting(&["control", "max_parked"], between(1, 100_000)),
    setting(&["control", "max_queued"], between(1, 10_000_000)),
    setting(
        &["control", "max_queued_per_principal"],
        between(1, 10_000_000),
    ),
    setting(&["control", "max_stored_mb"], between(1, 1_048_576)),
    setting(
        &["control", "max_stored_mb_per_principal"],
        between(1, 1_048_576),
    ),
    setting(&["control", "assist_reattach_secs"], between(0, 86_400)),
    setting(&["upstreams", ANY, "dialect"], Kind::Choice(DIALECTS)),
    setting(&["upstreams", ANY, "base_url"], Kind::Url),
    setting(&["upstreams", ANY, "api_key_env"], Kind::Variable),
    setting(&["upstreams", ANY, "api_key_file"], Kind::Path),
    setting(&["upstreams", ANY, "api_key_command"], TEXTS),
    setting(&["upstreams", ANY, "api_key_ttl_secs"], between(1, 43_200)),
    setting(&["upstreams", ANY, "auth"], Kind::Choice(AUTH_KINDS)),
    setting(&["upstreams", ANY, "auth_name"], Kind::HeaderName),
    setting(&["upstreams", ANY, "aws_region"], Kind::Word),
    setting(&["upstreams", ANY, "aws_service"], Kind::Word),
    setting(&["upstreams", ANY, "headers", ANY], Kind::Word),
    setting(&["upstreams", ANY, "query", ANY], Kind::Word),
    setting(&["upstreams", ANY, "proxy"], Kind::Proxy),
    setting(&["upstreams", ANY, "models"], Kind::Patterns),
    setting(&["upstreams", ANY, "aliases", ANY], Kind::Word),
    setting(&["upstreams", ANY, "weight"], between(1, 1_000)),
    setting(&["upstreams", ANY, "priority"], PRIORITY),
    setting(&["upstreams", ANY, "wire_version"], Kind::Word),
    setting(&["upstreams", ANY, "prices"], Kind::Text),
    setting(&["upstreams", ANY, "ca_file"], Kind::Path),
    setting(
        &["upstreams", ANY, "connect_timeout_ms"],
        between(1, 600_000),
    ),
    setting(&["upstreams", ANY, "first_byte_timeout_secs"], SECONDS),
    setting(&["upstreams", ANY, "idle_timeout_secs"], SECONDS),
    setting(&["upstreams", ANY, "total_timeout_secs"], SECONDS),
    setting(&["upstreams", ANY, "max_answer_mb"], between(1, 4_096)),
    setting(&["upstreams", ANY, "max_concurrent"], between(1, 1_000_000)),
    setting(&["upstreams", ANY, "pass_through"], TEXTS),
    setting(&["upstreams", ANY, "fallback"], TEXTS),
    setting(&["webhooks", ANY, "url"], Kind::Url),
    setting(&["webhooks", ANY, "secret_env"], Kind::Variable),
    setting(&["webhooks", ANY, "secret_file"], Kind::Path),
    setting(
        &["webhooks", ANY, "addresses"],
        Kind::Choice(&["public", "any"]),
    ),
    setting(&["mcp", "roots"], Kind::List(&Kind::Path)),
    setting(&["mcp", "emulate", "roots"], Kind::List(&Kind::Path)),
    setting(&["mcp", "emulate", "list_changed_secs"], SECONDS),
    setting(&["mcp", "emulate", "subscribe_secs"], SECONDS),
    setting(&["mcp", "emulate", "max_subscriptions"], between(1, 10_000)),
    setting(&["mcp", "emulate", "sampling", "key"], Kind::Word),
    setting(
        &["mcp", "emulate", "sampling", "models"],
        Kind::List(&Kind::Word),
    ),
    setting(
        &["mcp", "emulate", "sampling", "max_tokens"],
        between(1, 1_000_000),
    ),
    setting(
        &["mcp", "emulate", "sampling", "max_per_call"],
        between(1, 100),
    ),
    setting(
        &["mcp", "emulate", "elicitation", "answers", ANY],
        Kind::Text,
    ),
    setting(
        &["mcp", "emulate", "elicitation", "servers", ANY, ANY],
        Kind::Text,
    ),
    setting(&["mcp", "servers", ANY, "command"], Kind::Command),
    setting(&["mcp", "servers", ANY, "args"], TEXTS),
    setting(&["mcp", "servers", ANY, "env", ANY], Kind::Text),
    setting(&["mcp", "servers", ANY, "url"], Kind::Url),
    setting(&["mcp", "servers", ANY, "token_env"], Kind::Variable),
    setting(
        &["mcp", "servers", ANY, "era"],
        Kind::Choice(&["auto", "legacy", "modern"]),
    ),
    setting(&["mcp", "servers", ANY, "timeout_secs"], SECONDS),
    setting(&["mcp", "servers", ANY, "open_timeout_secs"], SECONDS),
    setting(&["mcp", "servers", ANY, "allow_tools"], Kind::Patterns),
    setting(&["mcp", "servers", ANY, "deny_tools"], Kind::Patterns),
    setting(
        &["mcp", "servers", ANY, "sandbox", "engine"],
        Kind::Choice(SANDBOX_ENGINES),
    ),
    setting(&["mcp", "servers", ANY, "sandbox", "workspace"], Kind::Path),
    setting(
        &["mcp", "servers", ANY, "sandbox", "read_only"],
        Kind::List(&Kind::Path),
    ),
    setting(
        &["mcp", "servers", ANY, "sandbox", "network"],
        Kind::Choice(SANDBOX_NETWORKS),
    ),
    setting(
        &["mcp", "servers", ANY, "sandbox", "allow_network"],
        Kind::Patterns,
    ),
    restriction(&["restrictions", "disallowed_tools"]),
    restriction(&["restrictions", "deny_read"]),
    restriction(&["restrictions", "deny_write"]),
    restriction(&["restrictions", "deny_network"]),
    restriction(&["restrictions", "require_approval_for"]),
    setting(&["store", "url"], Kind::Text).env_name("ABP_DATABASE_URL"),
    setting(&["store", "keys"], Kind::Path).env_name("ABP_STORE_KEYS"),
    setting(&["store", "schema"], Kind::Word),
    setting(&["store", "node"], Kind::Word).env_name("ABP_NODE"),
    setting(&["store", "max_connections"], between(2, 1_000)),
    setting(&["sandbox", "engine"], Kind::Choice(SANDBOX_ENGINES)).env_name("ABP_SANDBOX_ENGINE"),
    setting(&["sandbox", "read_only"], Kind::List(&Kind::Path)),
    setting(&["sandbox", "network"], Kind::Choice(SANDBOX_NETWORKS)),
    setting(&["sandbox", "scratch_mb"], at_least(1)),
    setting(&["sandbox", "lend"], TEXTS),
    setting(
        &["backends", ANY, "type"],
        Kind::Choice(&["mock", "sidecar", "acp"]),
    ),
    setting(&["backends", ANY, "script"], Kind::Path),
    setting(&["backends", ANY, "command"], Kind::Command),
    setting(&["backends", ANY, "args"], TEXTS),
    setting(&["backends", ANY, "env", ANY], Kind::Text),
    setting(
        &["backends", ANY, "models"],
        Kind::Choice(&["gateway", "own"]),
    ),
    setting(&["backends", ANY, "mode"], Kind::Text),
    setting(&["backends", ANY, "timeout_secs"], SECONDS),
    setting(&["backends", ANY, "hello_timeout_secs"], SECONDS),
    setting(&["backends", ANY, "stall_timeout_secs"], SECONDS),
    setting(&["backends", ANY, "max_processes"], at_least(4)),
    setting(&["backends", ANY, "max_memory_mb"], at_least(16)),
    setting(&["backends", ANY, "max_file_mb"], at_least(1)),
    setting(&["backends", ANY, "max_workspace_mb"], at_least(1)),
    setting(&["backends", ANY, "priority"], PRIORITY),
    policy_list(&["policies", ANY, "allowed_tools"]),
    policy_list(&["policies", ANY, "disallowed_tools"]),
    policy_list(&["policies", ANY, "deny_read"]),
    policy_list(&["policies", ANY, "deny_write"]),
    policy_list(&["policies", ANY, "allow_network"]),
    policy_list(&["policies", ANY, "deny_network"]),
    policy_list(&["policies", ANY, "require_approval_for"]),
    price(&["prices", ANY, ANY, "input_usd_per_mtok"]),
    price(&["prices", ANY, ANY, "output_usd_per_mtok"]),
    price(&["prices", ANY, ANY, "cache_read_usd_per_mtok"]),
    price(&["prices", ANY, ANY, "cache_write_usd_per_mtok"]),
    price(&["prices", ANY, ANY, "request_usd"]),
    setting(
        &["emulation", ANY, "type"],
        Kind::Choice(&["system_prompt_injection", "post_processing", "disabled"]),
    ),
    setting(&["emulation", ANY, "prompt"], Kind::Text),
    setting(&["emulation", ANY, "detail"], Kind::Text),
    setting(&["emulation", ANY, "reason"], Kind::Text),
    deprecated(
        &["receipts_dir"],
        "set `state_dir`; receipts are in its directory `receipts`",
    )
    .env_name("ABP_RECEIPTS_DIR"),
    deprecated(
        &["workspace_dir"],
        "set `stages_dir`; staged workspaces are below it",
    )
    .env_name("ABP_WORKSPACE_DIR"),
    deprecated(
        &["policy_profiles"],
        "write each profile as a table `[policies.NAME]` and name one in `default_policy`",
    ),
];

/// The keys that a table with a `type` may have.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    pub(crate) required: &'static [&'static str],
    pub(crate) optional: &'static [&'static str],
}

const fn variant(
    table: &'static str,
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> Variant {
    Variant {
        table,
        name,
        required,
        optional,
    }
}

pub(crate) const VARIANTS: &[Variant] = &[
    variant("backends", "mock", &[], &["script", "priority"]),
    variant(
        "backends",
        "sidecar",
        &["command"],
        &[
            "args",
            "env",
            "timeout_secs",
            "hello_timeout_secs",
            "stall_timeout_secs",
            "max_processes",
            "max_memory_mb",
            "max_file_mb",
            "max_workspace_mb",
            "priority",
        ],
    ),
    variant(
        "backends",
        "acp",
        &["command"],
        &[
            "args",
            "env",
            "models",
            "mode",
            "stall_timeout_secs",
            "max_processes",
            "max_memory_mb",
            "max_file_mb",
            "max_workspace_mb",
            "priority",
        ],
    ),
    variant("emulation", "system_prompt_injection", &["prompt"], &[]),
    variant("emulation", "post_processing", &["detail"], &[]),
    variant("emulation", "disabled", &["reason"], &[]),
];

/// The keys that every named table of a group must have, where its kind does not depend on a
/// `type`.
pub(crate) const REQUIRED: &[(&str, &[&str])] = &[
    ("upstreams", &["dialect", "base_url"]),
    ("webhooks", &["url"]),
];

/// The settings below a path.
pub(crate) fn below<'a>(path: &'a [&'static str]) -> impl Iterator<Item = &'static Setting> + 'a {
    SETTINGS
        .iter()
        .filter(|setting| setting.path.starts_with(path))
}

/// The setting of exactly this path.
pub(crate) fn find(path: &[&str]) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

/// A path as a dotted key, with quotes where TOML needs them.
pub(crate) fn dotted<S: AsRef<str>>(path: &[S]) -> String {
    let parts: Vec<_> = path.iter().map(|part| key_text(part.as_ref())).collect();
    parts.join(".")
}

/// A key as TOML.
pub(crate) fn key_text(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        string_text(key)
    }
}

/// A text as a TOML string on one line.
pub(crate) fn string_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use abp_dialect::Dialect;

    use super::*;

    #[test]
    fn every_dialect_can_be_chosen() {
        assert_eq!(DIALECTS, Dialect::ALL.map(Dialect::as_str));
    }
}
