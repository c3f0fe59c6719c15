//! `abp mcp negotiate`: flag by flag, what a client gets from servers.

use std::path::Path;

use abp_control::mcp_emulations;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_mcp::{
    ClientCapabilities, Downstream, FlagOutcome, Negotiation, ProtocolVersion, Reason,
    ServerCapabilities, Standing, UpstreamServer, negotiate, validate_protocol_version,
};
use serde_json::{Value, json};

use crate::args::{GlobalArgs, NegotiateArgs};
use crate::input;
use crate::output::{BAD, GOOD, NOTE, Output};
use crate::session::Session;
use crate::text::one_line;

pub(super) fn run(
    args: &NegotiateArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let routing = mcp_emulations(&session.config().mcp.emulate).routing();
    let (version, declared) = declaration(&args.client)?;
    let client = Downstream {
        version,
        capabilities: ClientCapabilities::from_json(&declared)
            .map_err(|error| invalid(&args.client, &error.to_string()))?,
    };
    let mut servers: Vec<UpstreamServer> = Vec::new();
    for path in &args.servers {
        let (version, declared) = declaration(path)?;
        let name = path.file_stem().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        if servers.iter().any(|server| server.name == name) {
            return Err(invalid(path, "another server is called the same"));
        }
        servers.push(UpstreamServer {
            name,
            version,
            capabilities: ServerCapabilities::from_json(&declared)
                .map_err(|error| invalid(path, &error.to_string()))?,
        });
    }
    let outcome = negotiate(&client, &servers, &routing);
    if output.is_json() {
        output.json(&to_json(&outcome))?;
    } else {
        print(&outcome, output);
    }
    Ok(if outcome.report().compatible {
        ExitStatus::Success
    } else {
        ExitStatus::CapabilityUnsupported
    })
}

/// The version and the capabilities that a file declares: the parameters or the result of
/// `initialize`, or the result of `server/discover`.
fn declaration(path: &Path) -> Result<(ProtocolVersion, String), AbpError> {
    let bytes = input::read(path)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| invalid(path, &format!("it is no JSON: {error}")))?;
    let newest = |versions: &Value| {
        let versions = versions.as_array()?.iter().filter_map(Value::as_str);
        versions.filter_map(ProtocolVersion::parse).max()
    };
    let version = match (
        member(&value, "protocolVersion"),
        member(&value, "supportedVersions"),
    ) {
        (Value::String(version), _) => {
            validate_protocol_version(version).map_err(|error| invalid(path, &error.to_string()))?
        }
        (_, several) => newest(several).ok_or_else(|| {
            invalid(
                path,
                "it names no protocolVersion and no supportedVersions that is spoken",
            )
        })?,
    };
    match member(&value, "capabilities") {
        capabilities @ Value::Object(_) => Ok((version, capabilities.to_string())),
        _ => Err(invalid(path, "it has no capabilities")),
    }
}

fn to_json(outcome: &Negotiation) -> Value {
    let declared = |text: String| serde_json::from_str::<Value>(&text).unwrap_or_default();
    let to_servers: serde_json::Map<_, _> = outcome
        .declared
        .iter()
        .map(|(server, client)| (server.clone(), declared(client.to_json())))
        .collect();
    let report = outcome.report();
    json!({
        "compatible": report.compatible,
        "summary": report.summary,
        "flags": outcome.outcomes,
        "advertised": declared(outcome.advertised.to_json()),
        "declared": to_servers,
    })
}

/// What somebody declares; the rest is in the JSON.
fn print(outcome: &Negotiation, output: &mut Output) {
    let nobody = Standing::Unsupported {
        reason: Reason::NobodyDeclares,
    };
    let shown = || outcome.outcomes.iter().filter(|one| one.standing != nobody);
    let widths = shown().map(|one| one.flag.to_string().len());
    let width = widths.max().unwrap_or_default();
    for one in shown() {
        let flag = one_line(&one.flag.to_string());
        let (style, word, why) = match &one.standing {
            Standing::Native => (GOOD, "native", String::new()),
            Standing::Emulated { by, limits } => (
                NOTE,
                "emulated",
                format!("{}: {}", by.label(), one_line(limits)),
            ),
            Standing::Unsupported { reason } => (BAD, "unsupported", reason.to_string()),
        };
        let from = provenance(one);
        output.line(&format!(
            "{flag:<width$}  {style}{word:<11}{style:#}  {from}{why}"
        ));
    }
    output.line(&outcome.report().summary);
}

fn provenance(one: &FlagOutcome) -> String {
    let names = |servers: &std::collections::BTreeMap<String, ProtocolVersion>| {
        let named = servers
            .iter()
            .map(|(name, version)| format!("{} ({version})", one_line(name)));
        named.collect::<Vec<_>>().join(", ")
    };
    let provenance = &one.provenance;
    let mut parts = Vec::new();
    if provenance.by_client == Some(true) {
        parts.push(format!("client ({})", provenance.client_version));
    }
    if !provenance.native.is_empty() {
        parts.push(names(&provenance.native));
    }
    if !provenance.emulated.is_empty() {
        parts.push(format!("for {}", names(&provenance.emulated)));
    }
    if !provenance.without.is_empty() && !provenance.native.is_empty() {
        parts.push(format!("not {}", names(&provenance.without)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("{}  ", parts.join("; ")),
    }
}

fn invalid(path: &Path, problem: &str) -> AbpError {
    let message = format!("{}: {problem}", path.display());
    AbpError::new(ErrorCode::ConfigInvalid, message)
}

/// A member of an object; null where there is none.
fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
}
