//! `abp schema`.

use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::json;

use crate::args::SchemaArgs;
use crate::output::Output;

pub(crate) fn run(args: &SchemaArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let mut documents = abp_core::schema::documents();
    documents.push(("config", abp_config::Config::json_schema()));
    let names: Vec<_> = documents
        .iter()
        .map(|(name, _)| name.replace('_', "-"))
        .collect();
    match &args.name {
        None if output.is_json() => output.json(&json!({ "schemas": names }))?,
        None => names.iter().for_each(|name| output.line(name)),
        Some(wanted) => {
            let stem = wanted.replace('-', "_");
            let found = documents
                .iter()
                .find(|(name, _)| *name == stem)
                .ok_or_else(|| {
                    let message = format!(
                        "there is no schema {wanted:?}; there are: {}",
                        names.join(", ")
                    );
                    AbpError::new(ErrorCode::ConfigInvalid, message)
                })?;
            output.json(&found.1)?;
        }
    }
    Ok(ExitStatus::Success)
}
