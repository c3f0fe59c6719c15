//! One question, one answer. `abp serve` says what to put into the environment.

use std::io::Write as _;

use abp_shim_claude::wire::{MessageParam, MessageRequest};
use abp_shim_claude::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = chat(&Client::from_env()?).await?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}

pub(crate) async fn chat(client: &Client) -> Result<String, Error> {
    let question = [MessageParam::user("Why is the sky blue?")];
    let request = MessageRequest::new("claude-sonnet-4-5", 1024, question)
        .system("Answer in one sentence.")
        .temperature(0.2);
    let answer = client.messages().create(request).await?;
    Ok(answer.text())
}
