//! `abp explain`.

use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::{Value, json};

use crate::args::ExplainArgs;
use crate::input::closest;
use crate::output::{DIM, Output, STRONG};

pub(crate) fn run(args: &ExplainArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let Some(name) = &args.code else {
        list(output)?;
        return Ok(ExitStatus::Success);
    };
    let code: ErrorCode = name.parse().map_err(|error: abp_error::UnknownErrorCode| {
        let known = ErrorCode::ALL.iter().map(|code| code.as_str());
        let hint = closest(name, known)
            .map(|known| format!("; did you mean {known}?"))
            .unwrap_or_default();
        AbpError::new(ErrorCode::ConfigInvalid, format!("{error}{hint}"))
    })?;
    if output.is_json() {
        output.json(&describe(code))?;
    } else {
        output.line(&format!("{STRONG}{code}{STRONG:#}  {}", code.explanation()));
        output.field("remedy", code.remedy());
        output.field("HTTP", &code.http_status().to_string());
        output.field("exit", &code.exit_status().code().to_string());
    }
    Ok(ExitStatus::Success)
}

fn list(output: &mut Output) -> Result<(), AbpError> {
    if output.is_json() {
        let codes: Vec<_> = ErrorCode::ALL.iter().map(|&code| describe(code)).collect();
        return output.json(&json!({ "codes": codes }));
    }
    let width = ErrorCode::ALL
        .iter()
        .map(|code| code.as_str().len())
        .max()
        .unwrap_or(0);
    for code in ErrorCode::ALL {
        output.line(&format!(
            "{:<width$}  {DIM}{}{DIM:#}",
            code.as_str(),
            code.explanation()
        ));
    }
    Ok(())
}

fn describe(code: ErrorCode) -> Value {
    json!({
        "code": code,
        "category": code.category(),
        "http_status": code.http_status(),
        "exit_code": code.exit_status().code(),
        "explanation": code.explanation(),
        "remedy": code.remedy(),
    })
}
