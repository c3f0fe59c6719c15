//! `abp upstreams`: the models' APIs in the user's own configuration.

use std::path::{Path, PathBuf};

use abp_config::{
    Config, PresetChoices, Sources, load, upstream_presets, with_table, without_upstream,
};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::json;

use crate::args::{AddUpstreamArgs, GlobalArgs, UpstreamsArgs, UpstreamsCommand};
use crate::output::{DIM, GOOD, Output, STRONG};
use crate::session::sources;
use crate::text::one_line;

pub(crate) fn run(
    args: &UpstreamsArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    match &args.command {
        UpstreamsCommand::Add(args) => add(args, global, output),
        UpstreamsCommand::List { presets: true } => list_presets(output),
        UpstreamsCommand::List { presets: false } => list(global, output),
        UpstreamsCommand::Remove { name } => remove(name, global, output),
    }?;
    Ok(ExitStatus::Success)
}

fn invalid(message: impl Into<String>) -> AbpError {
    AbpError::new(ErrorCode::ConfigInvalid, message)
}

fn add(args: &AddUpstreamArgs, global: &GlobalArgs, output: &mut Output) -> Result<(), AbpError> {
    let Some(preset) = upstream_presets().get(&args.preset) else {
        let message = format!(
            "there is no vendor {:?}; `abp upstreams list --presets` shows them",
            args.preset
        );
        return Err(invalid(message));
    };
    let name = args.name.as_ref().unwrap_or(&args.preset);
    let sources = sources(global);
    if load(&sources)?.config.upstreams.contains_key(name) {
        let message = format!(
            "there is an upstream {name:?} already: give this one another --name, or remove that one \
             with `abp upstreams remove {name}`"
        );
        return Err(invalid(message));
    }
    let file = args.key_file.as_deref().map(std::path::absolute);
    let file = file
        .transpose()
        .map_err(|error| invalid(error.to_string()))?;
    let choices = PresetChoices {
        values: args.values.iter().cloned().collect(),
        base_url: args.base_url.clone(),
        api_key_env: args.key_env.clone(),
        api_key_file: file.map(|file| file.display().to_string()),
        models: args.models.clone(),
    };
    let table = preset.table(name, &choices);
    let table = table.map_err(|problem| invalid(format!("{}: {problem}", args.preset)))?;
    let path = own_file(&sources)?;
    let text = read(&path)?;
    let config = replace(&path, &with_table(&text, &table), &sources)?;
    let next = next_step(&config, name);
    if output.is_json() {
        return output.json(&json!({
            "upstream": name,
            "file": path,
            "table": table,
            "notes": preset.notes,
            "next": next,
        }));
    }
    output.line(&format!(
        "{GOOD}added{GOOD:#}   {name}  {DIM}{}{DIM:#}",
        path.display()
    ));
    for line in table.lines() {
        output.line(&format!("  {}", one_line(line)));
    }
    for note in &preset.notes {
        output.line(&format!("{DIM}# {note}{DIM:#}"));
    }
    for line in next {
        output.line(&line);
    }
    Ok(())
}

/// The commands that follow: the key, where it is not there yet, and a look whether it works.
fn next_step(config: &Config, name: &str) -> Vec<String> {
    let upstream = config.upstreams.get(name);
    let variable = upstream.and_then(|upstream| upstream.api_key_env.as_ref());
    let unset = variable.filter(|variable| std::env::var_os(variable).is_none());
    let export = unset.map(|variable| format!("export {variable}=…"));
    export
        .into_iter()
        .chain(["abp doctor".to_owned()])
        .collect()
}

fn remove(name: &str, global: &GlobalArgs, output: &mut Output) -> Result<(), AbpError> {
    let sources = sources(global);
    let path = own_file(&sources)?;
    let left = without_upstream(&read(&path)?, name);
    let left = left.map_err(|problem| invalid(format!("{}: {problem}", path.display())))?;
    replace(&path, &left, &sources)?;
    if output.is_json() {
        return output.json(&json!({ "removed": name, "file": path }));
    }
    output.line(&format!(
        "{GOOD}removed{GOOD:#} {name}  {DIM}{}{DIM:#}",
        path.display()
    ));
    Ok(())
}

/// The file that a user may change: the one of --config, or the user's own.
fn own_file(sources: &Sources) -> Result<PathBuf, AbpError> {
    let file = sources.operator.as_ref().or(sources.user.as_ref());
    file.cloned()
        .ok_or_else(|| invalid("there is no home directory to write to; name a file with --config"))
}

/// The text of a file; nothing where there is none yet.
fn read(path: &Path) -> Result<String, AbpError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(invalid(format!("{}: {error}", path.display()))),
    }
}

/// Puts another text into a file, all at once, where all of the configuration is valid with it.
fn replace(path: &Path, text: &str, sources: &Sources) -> Result<Config, AbpError> {
    let failed = |error: std::io::Error| invalid(format!("{}: {error}", path.display()));
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(_) => std::path::absolute(path).map_err(failed)?,
    };
    let directory = real.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let draft = real.with_extension(format!("toml.{}.new", std::process::id()));
    let mut trial = sources.clone();
    match &mut trial.operator {
        Some(operator) => operator.clone_from(&draft),
        None => trial.user = Some(draft.clone()),
    }
    let written = std::fs::write(&draft, text).and_then(|()| {
        let Ok(known) = std::fs::metadata(&real) else {
            return Ok(());
        };
        std::fs::set_permissions(&draft, known.permissions())
    });
    let checked = written.map_err(failed).and_then(|()| Ok(load(&trial)?));
    let moved = checked.and_then(|loaded| {
        std::fs::rename(&draft, &real).map_err(failed)?;
        Ok(loaded.config)
    });
    if moved.is_err() {
        // It may never have been made.
        drop(std::fs::remove_file(&draft));
    }
    moved
}

fn list(global: &GlobalArgs, output: &mut Output) -> Result<(), AbpError> {
    let loaded = load(&sources(global))?;
    let upstreams = &loaded.config.upstreams;
    if output.is_json() {
        let shown = abp_config::render_json(&loaded, false);
        return output.json(&json!({ "upstreams": shown.get("upstreams") }));
    }
    if upstreams.is_empty() {
        output
            .line("no upstream is configured; `abp upstreams list --presets` shows known vendors");
    }
    let width = upstreams.keys().map(String::len).max().unwrap_or(0);
    for (name, upstream) in upstreams {
        output.line(&format!(
            "{STRONG}{:<width$}{STRONG:#}  {:<7}  {}  {DIM}{}{DIM:#}",
            one_line(name),
            upstream.dialect.as_str(),
            one_line(&upstream.base_url),
            one_line(&upstream.models.join(", ")),
        ));
    }
    Ok(())
}

fn list_presets(output: &mut Output) -> Result<(), AbpError> {
    let presets = upstream_presets();
    if output.is_json() {
        return output.json(&json!({ "presets": presets }));
    }
    let width = presets.keys().map(String::len).max().unwrap_or(0);
    for (name, preset) in presets {
        output.line(&format!(
            "{STRONG}{name:<width$}{STRONG:#}  {:<7}  {}  {DIM}{}{DIM:#}",
            preset.dialect, preset.title, preset.base_url
        ));
        for (key, about) in &preset.about {
            output.line(&format!("{:width$}  {:7}  --set {key}=…  {about}", "", ""));
        }
    }
    Ok(())
}
