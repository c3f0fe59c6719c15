//! The Inspector, and the server with everything, through the gateway.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Case;
use super::stage::Stage;

/// What a client declares that can do everything.
const FULL: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;
/// Tools that the server has only for such a client.
const MORE_TOOLS: [&str; 3] = [
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-sampling-request",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = ["legacy", "modern", "auto"]
        .into_iter()
        .map(|era| {
            Case::new(format!("Inspector over HTTP, {era}"), move |stage| {
                let daemon = stage.daemon(&everything(stage))?;
                let key = format!("Authorization: Bearer {}", daemon.key);
                let target = [&daemon.gateway, "--transport", "http", "--header", &key];
                inspect(stage, &target, era)
            })
        })
        .collect();
    cases.push(Case::new("Inspector over standard streams", |stage| {
        let program = gateway_program(stage)?;
        inspect(stage, &[&program], "auto")
    }));
    cases.push(Case::new(
        "what a client declares reaches the server",
        capabilities_count,
    ));
    cases
}

/// The server with everything, as it is configured.
fn everything(stage: &Stage) -> String {
    let node = stage.node();
    let program = stage.program("server-everything", "dist/index.js");
    format!("command = {node:?}\nargs = [{program:?}]\n")
}

/// A program without arguments: the Inspector would take them for its own.
fn gateway_program(stage: &Stage) -> Result<String> {
    let config = stage.gateway_config(&everything(stage))?;
    let file = stage.folder.join("abp-gateway");
    let abp = &stage.abp;
    let script = format!("#!/bin/sh\nexec {abp:?} mcp --gateway --config {config:?}\n");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700))?;
    let file = file.to_str().context("a path is no text")?;
    Ok(file.to_owned())
}

/// Lists the tools and calls one.
fn inspect(stage: &Stage, target: &[&str], era: &str) -> Result<String> {
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(stage.node());
        command
            .arg(stage.program("inspector", "clients/launcher/build/index.js"))
            .arg("--cli")
            .args(target)
            .args(["--protocol-era", era, "--format", "json"])
            .args(arguments);
        stage.succeed(&mut command, "inspector")
    };
    let listed: serde_json::Value = serde_json::from_str(&ask(&["--method", "tools/list"])?)?;
    let tools = listed.pointer("/result/tools");
    let tools = tools.and_then(|tools| tools.as_array());
    let count = tools.context("no tools are listed")?.len();
    ensure!(count >= 10, "{count} tools are listed");
    let said = ask(&[
        "--method",
        "tools/call",
        "--tool-name",
        "echo",
        "--tool-args-json",
        r#"{"message":"hello"}"#,
    ])?;
    ensure!(said.contains("Echo: hello"), "the tool answers {said}");
    Ok(format!("{count} tools"))
}

/// The server has other tools for a client that can do more.
fn capabilities_count(stage: &Stage) -> Result<String> {
    let daemon = stage.daemon(&everything(stage))?;
    let tools = |capabilities: &str| -> Result<BTreeSet<String>> {
        let mut command = Command::new(&stage.conformance);
        command.args(["tools", &daemon.gateway, &daemon.key, capabilities]);
        let said = stage.succeed(&mut command, "client")?;
        Ok(said.lines().map(str::to_owned).collect())
    };
    let (none, all) = (tools("{}")?, tools(FULL)?);
    ensure!(none.is_subset(&all), "a client that can do more has less");
    let more: Vec<_> = all.difference(&none).map(String::as_str).collect();
    let has_all = MORE_TOOLS.iter().all(|tool| more.contains(tool));
    ensure!(has_all, "only {more:?} are there for who can do everything");
    Ok(format!("{} tools, and {}", none.len(), all.len()))
}
