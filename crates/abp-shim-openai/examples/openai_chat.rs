//! One question, one answer. `abp serve` says what to put into the environment.

use std::io::Write as _;

use abp_shim_openai::wire::{ChatCompletionRequest, ChatMessage};
use abp_shim_openai::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = chat(&Client::from_env()?).await?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}

pub(crate) async fn chat(client: &Client) -> Result<String, Error> {
    let messages = [
        ChatMessage::system("Answer in one sentence."),
        ChatMessage::user("Why is the sky blue?"),
    ];
    let request = ChatCompletionRequest::new("gpt-4o", messages).temperature(0.2);
    let answer = client.chat().completions().create(request).await?;
    Ok(answer.text())
}
