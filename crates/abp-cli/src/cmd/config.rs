//! `abp config` and `abp init`.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use abp_config::{load, project_template, render, render_json, render_toml, template};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::json;

use crate::args::{ConfigArgs, ConfigCommand, GlobalArgs, InitArgs};
use crate::output::{GOOD, Output};
use crate::session::sources;

pub(crate) fn run(
    args: &ConfigArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    match &args.command {
        ConfigCommand::Check { strict } => check(*strict, global, output),
        ConfigCommand::Show { origin } => show(*origin, global, output),
    }
}

/// Reports everything that is wrong with all files at once.
fn check(strict: bool, global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let mut sources = sources(global);
    sources.strict = strict;
    let (diagnostics, valid, files) = match load(&sources) {
        Ok(loaded) => (loaded.warnings, true, loaded.files),
        Err(errors) => (errors.diagnostics, false, Vec::new()),
    };
    let status = if valid {
        ExitStatus::Success
    } else {
        ExitStatus::Usage
    };
    if output.is_json() {
        output.json(&json!({ "valid": valid, "files": files, "diagnostics": diagnostics }))?;
        return Ok(status);
    }
    if !diagnostics.is_empty() {
        output.line(render(&diagnostics, output.is_coloured()).trim_end());
    }
    if valid {
        let read = match files.len() {
            0 => "no file, defaults only".to_owned(),
            _ => files
                .iter()
                .map(|f| f.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        };
        output.line(&format!("{GOOD}valid{GOOD:#}   {read}"));
    }
    Ok(status)
}

fn show(origin: bool, global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let loaded = load(&sources(global))?;
    if output.is_json() {
        output.json(&render_json(&loaded, origin))?;
    } else {
        output.write(&render_toml(&loaded, origin));
    }
    Ok(ExitStatus::Success)
}

/// Writes a commented file to start from, and never over another one.
pub(crate) fn init(args: &InitArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let (path, content) = if args.user {
        let user = abp_config::Sources::of_process(None).user;
        let path = user.ok_or_else(|| {
            AbpError::new(
                ErrorCode::ConfigInvalid,
                "there is no home directory to write to",
            )
        })?;
        (path, template())
    } else {
        (PathBuf::from("backplane.toml"), project_template())
    };
    let write = || -> std::io::Result<()> {
        if let Some(directory) = path
            .parent()
            .filter(|parent| *parent != std::path::Path::new(""))
        {
            std::fs::create_dir_all(directory)?;
        }
        File::create_new(&path)?.write_all(content.as_bytes())
    };
    write().map_err(|error| {
        AbpError::new(
            ErrorCode::ConfigInvalid,
            format!("cannot make {}", path.display()),
        )
        .with_source(error)
    })?;
    if output.is_json() {
        output.json(&json!({ "file": path }))?;
    } else {
        output.line(&format!("{GOOD}made{GOOD:#}    {}", path.display()));
    }
    Ok(ExitStatus::Success)
}
