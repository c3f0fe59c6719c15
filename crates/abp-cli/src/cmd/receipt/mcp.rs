//! What a receipt says of MCP servers, in a few lines.

use abp_capability::generate_mcp_report;
use abp_core::{McpFlagLevel, McpReport, McpServerReport, McpToolReport};

use crate::output::Output;
use crate::text::one_line;

pub(super) fn print(report: &McpReport, output: &mut Output) {
    for server in &report.servers {
        output.field("mcp", &one_line(&describe(server)));
    }
    let Some(negotiation) = &report.negotiation else {
        return;
    };
    output.field("agreed", &generate_mcp_report(negotiation).summary);
    for flag in &negotiation.flags {
        let label = match flag.level {
            McpFlagLevel::Native => continue,
            McpFlagLevel::Emulated => "emulated",
            McpFlagLevel::Unsupported => "lost",
        };
        let why = flag.reason.as_deref().unwrap_or_default();
        output.field(label, &one_line(&format!("{}: {why}", flag.flag)));
    }
}

fn describe(server: &McpServerReport) -> String {
    let name = &server.name;
    let tools: Vec<_> = server.tools.iter().map(usage).collect();
    match (&server.protocol_version, tools.is_empty()) {
        (None, true) => format!("{name} was not used"),
        (Some(version), true) => format!("{name} ({version}): no tool was called"),
        (version, false) => {
            let version = version.as_deref().unwrap_or("version unknown");
            format!("{name} ({version}): {}", tools.join(", "))
        }
    }
}

fn usage(tool: &McpToolReport) -> String {
    let McpToolReport {
        name,
        calls,
        failed,
        refused,
    } = tool;
    let marks = [(failed, "failed"), (refused, "refused")];
    let marks = marks.iter().filter(|(count, _)| **count > 0);
    let marks: Vec<_> = marks
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match marks.is_empty() {
        true => format!("{name} × {calls}"),
        false => format!("{name} × {} ({})", calls + refused, marks.join(", ")),
    }
}
