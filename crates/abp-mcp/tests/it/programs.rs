//! Servers that are programs: where they are looked for, and with which rights they run.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use abp_host::Launcher;
use abp_mcp::{
    ClientCapabilities, ClientOffer, ClientTimeouts, Implementation, McpUpstream, McpUpstreamError,
    ProgramServer, ProtocolVersion, RunningPrograms, ServerAddress,
};
use abp_policy::PolicyEngine;
use tokio::sync::mpsc;

fn server(command: &str, directory: &Path, path: String) -> ServerAddress {
    ServerAddress::Program(Box::new(ProgramServer {
        command: command.to_owned(),
        args: Vec::new(),
        env: BTreeMap::from([("PATH".to_owned(), path)]),
        directory: directory.to_owned(),
        sandbox: None,
        network: PolicyEngine::default(),
        launcher: Launcher::at(env!("CARGO_BIN_EXE_mcp-launcher")),
        running: RunningPrograms::default(),
    }))
}

#[tokio::test]
async fn d18_a_planted_server_is_never_started() {
    let directory = tempfile::tempdir().unwrap();
    let touched = directory.path().join("started");
    let planted = directory.path().join("files-server");
    fs::write(
        &planted,
        format!("#!/bin/sh\ntouch {}\n", touched.display()),
    )
    .unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(":.:{}:/usr/bin:/bin", directory.path().display());
    for (command, says) in [
        (
            "files-server",
            "\"files-server\" was not found on PATH in /usr/bin, /bin",
        ),
        ("./files-server", "\"./files-server\" is a relative path"),
    ] {
        let address = server(command, directory.path(), path.clone());
        let (events, _told) = mpsc::channel(1);
        let offer = ClientOffer {
            versions: ProtocolVersion::ALL.to_vec(),
            capabilities: ClientCapabilities::default(),
            info: Implementation::new("test", "1"),
        };
        let opened = McpUpstream::open(&address, offer, ClientTimeouts::USUAL, events).await;
        let Err(McpUpstreamError::Unreachable(problem)) = opened else {
            panic!("{command}: {opened:?}");
        };
        assert!(problem.contains(says), "{command}: {problem}");
    }
    assert!(!touched.exists(), "a planted program was started");
}
