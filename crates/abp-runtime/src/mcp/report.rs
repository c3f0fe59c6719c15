//! What the receipt says of a run's MCP servers.

use std::collections::BTreeMap;

use abp_core::{
    McpFlagLevel, McpFlagReport, McpNegotiationReport, McpProtocolEra, McpReport, McpServerReport,
    McpToolReport, SandboxReport,
};
use abp_mcp::{Era, FlagOutcome, McpScope, Negotiation, Reason, Standing};

/// The report of servers with these sandboxes.
pub(super) fn report(
    servers: &BTreeMap<String, Option<SandboxReport>>,
    scope: &McpScope,
) -> McpReport {
    let negotiation = scope.negotiation();
    let versions = scope.versions();
    let tallies = scope.tallies();
    let servers = servers.iter().map(|(name, sandbox)| {
        let version = versions.get(name);
        let tools = tallies.iter().filter(|(tool, _)| tool.server == *name);
        let tools = tools.map(|(tool, tally)| McpToolReport {
            name: tool.tool.clone(),
            calls: tally.calls,
            failed: tally.failed,
            refused: tally.refused,
        });
        McpServerReport {
            protocol_version: version.map(ToString::to_string),
            era: version.map(|version| match version.era() {
                Era::Legacy => McpProtocolEra::Legacy,
                Era::Modern => McpProtocolEra::Modern,
            }),
            // A program that nobody asked for was not started.
            sandbox: version.and(sandbox.clone()),
            tools: tools.collect(),
            name: name.clone(),
        }
    });
    McpReport {
        servers: servers.collect(),
        negotiation: negotiation.as_deref().and_then(agreed),
    }
}

fn agreed(negotiation: &Negotiation) -> Option<McpNegotiationReport> {
    let first = negotiation.outcomes.first()?;
    Some(McpNegotiationReport {
        client_version: first.provenance.client_version.to_string(),
        flags: negotiation.outcomes.iter().filter_map(flag).collect(),
    })
}

/// The outcome for a flag; `None` for what nobody declared.
fn flag(outcome: &FlagOutcome) -> Option<McpFlagReport> {
    let (level, reason) = match &outcome.standing {
        Standing::Native => (McpFlagLevel::Native, None),
        Standing::Emulated { by, limits } => {
            let how = format!("{}: {limits}", by.label());
            (McpFlagLevel::Emulated, Some(how))
        }
        Standing::Unsupported {
            reason: Reason::NobodyDeclares,
        } => return None,
        Standing::Unsupported { reason } => (McpFlagLevel::Unsupported, Some(reason.to_string())),
    };
    let names = |servers: &BTreeMap<String, _>| servers.keys().cloned().collect();
    let provenance = &outcome.provenance;
    Some(McpFlagReport {
        flag: outcome.flag.to_string(),
        level,
        reason,
        by_client: provenance.by_client,
        native: names(&provenance.native),
        emulated: names(&provenance.emulated),
        without: names(&provenance.without),
    })
}
