//! Claude Code's `-p --output-format stream-json`, by way of `hosts/claude`.
//!
//! `claude_print HOSTS WORKSPACE PROMPT [TOOL…]` prints Claude Code's messages, one per line, and allows the tools
//! that are named. The environment variables whose names begin with `ANTHROPIC_` are handed on.

use std::io::Write as _;
use std::process::ExitCode;

use claude_bridge::{
    BridgeRun, BridgeSettings, ClaudeBridge, ClaudeMessage, ClaudeOptions, ControlRequest,
    ToolPermission,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Failure> {
    if let Some(code) = abp_host::run_if_launcher() {
        return Ok(code);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [hosts, workspace, prompt, tools @ ..] = arguments.as_slice() else {
        return Err("usage: claude_print HOSTS WORKSPACE PROMPT [TOOL…]".into());
    };
    let mut settings = BridgeSettings::new(hosts, workspace);
    settings.env = std::env::vars()
        .filter(|(name, _)| name.starts_with("ANTHROPIC_"))
        .collect();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(print(settings, prompt, tools))
}

async fn print(
    settings: BridgeSettings,
    prompt: &str,
    tools: &[String],
) -> Result<ExitCode, Failure> {
    let options = ClaudeOptions {
        model: std::env::var("ANTHROPIC_MODEL").ok(),
        ..ClaudeOptions::default()
    };
    let bridge = ClaudeBridge::open(settings).await?;
    let mut run = bridge.run(&options.to_order(prompt))?;
    while let Some(message) = run.next().await {
        print_line(&message)?;
        answer(&run, &message, tools);
    }
    let result = run.finish().await;
    print_line(&result)?;
    let failed = matches!(result, ClaudeMessage::Result { is_error: true, .. });
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn print_line(message: &ClaudeMessage) -> Result<(), Failure> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    std::io::stdout().lock().write_all(line.as_bytes())?;
    Ok(())
}

fn answer(run: &BridgeRun, message: &ClaudeMessage, tools: &[String]) {
    let ClaudeMessage::ControlRequest {
        request_id,
        request: ControlRequest::CanUseTool { tool_name, .. },
    } = message
    else {
        return;
    };
    let permission = if tools.contains(tool_name) {
        ToolPermission::Allow
    } else {
        ToolPermission::Deny {
            message: format!("{tool_name} was not named on the command line"),
        }
    };
    run.answer(request_id, permission);
}
