//! `abp ui`: the console of a server that runs, in a browser.

use std::process::{Command, Stdio};

use abp_control::{operator_key, operator_key_file};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_gateway_http::ServerOptions;
use abp_remote::{Remote, RemoteAddress};
use serde_json::json;

use crate::args::{GlobalArgs, UiArgs};
use crate::cmd::remote::connect;
use crate::gateway::reachable;
use crate::output::{DIM, Output};
use crate::session::{Session, block_on};

/// Programs that open an address in the user's browser, in the order they are tried.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

pub(crate) fn run(
    args: &UiArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let (remote, base) = match &global.remote {
        Some(url) => (connect(global)?, console_base(url)),
        None => local_server(args, global, output)?,
    };
    let code = block_on(async {
        let made = remote.one_time_code().await;
        made.map_err(|error| match error.code() {
            ErrorCode::BackendUnavailable => {
                let message = format!("no server answers at {base}; start one with `abp serve`");
                AbpError::new(ErrorCode::BackendUnavailable, message).with_source(error)
            }
            _ => error,
        })
    })?;
    let address = format!("{base}/console#code={}", code.code);
    let is_opened = !args.print && !output.is_json() && open(&address);
    if output.is_json() {
        let expires_at = code.expires_at.to_string();
        output.json(&json!({ "address": address, "expires_at": expires_at }))?;
    } else if is_opened {
        output.line(&format!("{base}/console is open in the browser"));
    } else {
        output.line(&address);
        output.line(&format!("{DIM}good once, for 60 seconds{DIM:#}"));
    }
    Ok(ExitStatus::Success)
}

/// The address without what follows the host, and without the version of the interface.
fn console_base(url: &str) -> String {
    let url = url.trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url).to_owned()
}

/// The server of this configuration, with the operator's key.
fn local_server(
    args: &UiArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<(Remote, String), AbpError> {
    let session = Session::open(global, &[], output)?;
    let config = session.config();
    let options = ServerOptions::from_config(config, args.listen);
    let scheme = match options.tls {
        Some(_) => "https",
        None => "http",
    };
    let base = format!("{scheme}://{}", reachable(options.listen));
    let file = operator_key_file(config);
    if !file.exists() {
        let message = "no server has run here yet; start one with `abp serve`";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    let key = operator_key(&file)?;
    let url = base.clone();
    Ok((Remote::new(&RemoteAddress { url, key })?, base))
}

/// Whether a browser was told to open the address. It may take long to end, and is not waited for.
fn open(address: &str) -> bool {
    let quiet = |program: &&str| {
        Command::new(program)
            .arg(address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .is_ok()
    };
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    (has_display || cfg!(target_os = "macos")) && OPENERS.iter().any(quiet)
}
