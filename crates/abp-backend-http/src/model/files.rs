//! The files of an order's context, read for a model through the host's own tools.
//!
//! The host judges every read by the policy and records it as a call of its tool. What cannot be sent
//! is named in a warning, so that no answer rests on a file that the model never saw.

use abp_backend_core::{RunContext, ToolError, ToolInvocation, ToolOutput};
use abp_core::AgentEventKind;
use abp_plan::ContextFile;

use super::{Interrupted, emit};

/// The largest file that is sent.
const MAX_FILE_BYTES: usize = 256 << 10;
/// The most that is sent of all files together.
const MAX_TOTAL_BYTES: usize = 1 << 20;
/// The most files that are read.
const MAX_FILES: usize = 256;

/// Reads the context files of the plan, as far as they can be sent.
///
/// # Errors
/// Fails only where the run is over.
pub(super) async fn read(context: &RunContext) -> Result<Vec<ContextFile>, Interrupted> {
    let mut files: Vec<ContextFile> = Vec::new();
    let mut warnings = Vec::new();
    let mut total = 0;
    for (number, path) in context.plan().context_files().iter().enumerate() {
        let problem = if number >= MAX_FILES {
            format!("the order names more than {MAX_FILES} files")
        } else {
            match read_one(context, path).await? {
                Ok(content) if total + content.len() > MAX_TOTAL_BYTES => format!(
                    "with it the files would have more than {MAX_TOTAL_BYTES} bytes together"
                ),
                Ok(content) => {
                    total += content.len();
                    let path = path.clone();
                    files.push(ContextFile { path, content });
                    continue;
                }
                Err(problem) => problem,
            }
        };
        warnings.push(AgentEventKind::Warning {
            message: format!("the content of {path:?} was not sent to the model: {problem}"),
        });
    }
    emit(context, warnings).await?;
    Ok(files)
}

/// The text of a file, or why it is not sent.
async fn read_one(context: &RunContext, path: &str) -> Result<Result<String, String>, Interrupted> {
    let invocation = ToolInvocation::ReadFile {
        path: path.to_owned(),
    };
    let bytes = match context.use_tool(invocation).await {
        Ok(ToolOutput::Content(bytes)) => bytes,
        Ok(other) => return Ok(Err(format!("the host answers {other:?}"))),
        Err(ToolError::Stopped(_)) => return Err(Interrupted::Stopped),
        Err(problem) => return Ok(Err(problem.to_string())),
    };
    if bytes.len() > MAX_FILE_BYTES {
        return Ok(Err(format!(
            "it has {} bytes, more than {MAX_FILE_BYTES}",
            bytes.len()
        )));
    }
    let text = String::from_utf8(bytes).ok();
    let text = text.filter(|text| !text.contains('\0'));
    Ok(text.ok_or_else(|| "it is no text".to_owned()))
}
