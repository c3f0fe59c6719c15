//! `abp models`: what the configured upstreams serve.

use abp_core::ModelPrice;
use abp_error::{AbpError, ExitStatus};
use serde_json::json;

use crate::args::GlobalArgs;
use crate::output::{DIM, Output, STRONG};
use crate::session::Session;
use crate::text::one_line;
use abp_control::{ConfiguredModel, configured_models};

pub(crate) fn run(global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let models = configured_models(session.config());
    if output.is_json() {
        output.json(&json!({ "models": models }))?;
        return Ok(ExitStatus::Success);
    }
    let width = |of: fn(&ConfiguredModel<'_>) -> usize| models.iter().map(of).max().unwrap_or(0);
    let (name, upstream) = (
        width(|model| model.name.len()),
        width(|model| model.upstream.len()),
    );
    for model in &models {
        output.line(&format!(
            "{STRONG}{:<name$}{STRONG:#}  {:<upstream$}  {}",
            one_line(model.name),
            one_line(model.upstream),
            about(model)
        ));
    }
    Ok(ExitStatus::Success)
}

fn about(model: &ConfiguredModel<'_>) -> String {
    let mut about = match model.dialects.as_slice() {
        [dialect] => dialect.label().to_owned(),
        _ => "every dialect".to_owned(),
    };
    if let Some(vendor) = model.vendor_name {
        about.push_str(&format!(", as {}", one_line(vendor)));
    }
    if let Some(price) = &model.price {
        about.push_str(&format!("  {DIM}{}{DIM:#}", rates(price)));
    }
    about
}

fn rates(price: &ModelPrice) -> String {
    let (input, output) = (price.input_usd_per_mtok, price.output_usd_per_mtok);
    format!("${input} in, ${output} out per million tokens")
}
