//! Files that an agent reads and writes through the host.
//!
//! It is offered to agents that use it, because it puts the run's policy in front of their writes.

use std::path::Path;

use abp_backend_core::{RunContext, ToolError, ToolInvocation, ToolOutput};
use agent_client_protocol as acp;
use agent_client_protocol::v1::schema::{self, ReadTextFileRequest, WriteTextFileRequest};
use serde_json::{Value, json};

/// Reads a file of the workspace.
///
/// # Errors
/// Answers as the protocol says: what is not there is a resource that was not found.
pub(crate) async fn read(
    context: &RunContext,
    request: &ReadTextFileRequest,
) -> Result<Value, acp::Error> {
    let missing = || -> acp::Error {
        let path = request.path.to_string_lossy().into_owned();
        schema::Error::resource_not_found(Some(path)).into()
    };
    let path = relative(context, &request.path).ok_or_else(missing)?;
    // The gate records a denial of every read; looking for a file that is not there is none.
    if !context.workspace_root().join(&path).exists() {
        return Err(missing());
    }
    match context.use_tool(ToolInvocation::ReadFile { path }).await {
        Ok(ToolOutput::Content(bytes)) => {
            let text = String::from_utf8_lossy(&bytes);
            let content = part(&text, request.line, request.limit);
            Ok(json!({ "content": content }))
        }
        Ok(_) => Err(missing()),
        Err(error) => Err(refused(&error)),
    }
}

/// Writes a file of the workspace, for a call of the agent's own where one is known.
///
/// # Errors
/// Answers with the reason of a denial.
pub(crate) async fn write(
    context: &RunContext,
    request: WriteTextFileRequest,
    parent: Option<String>,
) -> Result<Value, acp::Error> {
    let Some(path) = relative(context, &request.path) else {
        let message = format!("{} is not in the workspace", request.path.display());
        return Err(acp::Error::invalid_params().data(json!(message)));
    };
    let content = request.content.into_bytes();
    let invocation = ToolInvocation::WriteFile { path, content };
    match context.use_tool_for(parent, invocation).await {
        Ok(_) => Ok(json!({})),
        Err(error) => Err(refused(&error)),
    }
}

fn relative(context: &RunContext, path: &Path) -> Option<String> {
    let inside = path.strip_prefix(context.workspace_root()).ok()?;
    inside.to_str().map(ToOwned::to_owned)
}

pub(crate) fn refused(error: &ToolError) -> acp::Error {
    acp::Error::new(-32603, error.to_string())
}

/// The lines of a text from a number on, counted from 1.
fn part(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    if line.is_none() && limit.is_none() {
        return text.to_owned();
    }
    let skipped = line.unwrap_or(1).saturating_sub(1) as usize;
    let lines = text.split_inclusive('\n').skip(skipped);
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    lines.take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_file_is_counted_in_lines() {
        let text = "a\nb\nc";
        let cases = [
            (None, None, "a\nb\nc"),
            (Some(1), Some(1), "a\n"),
            (Some(2), None, "b\nc"),
            (Some(3), Some(9), "c"),
            (Some(9), Some(1), ""),
            (Some(0), Some(1), "a\n"),
            (None, Some(0), ""),
        ];
        for (line, limit, expected) in cases {
            assert_eq!(part(text, line, limit), expected, "{line:?} {limit:?}");
        }
    }
}
