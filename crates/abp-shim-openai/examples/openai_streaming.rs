//! An answer as it is written.

use std::io::Write;

use abp_shim_openai::Client;
use abp_shim_openai::wire::{ChatCompletionRequest, ChatMessage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    follow(&Client::from_env()?, &mut std::io::stdout()).await
}

pub(crate) async fn follow(
    client: &Client,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let question = [ChatMessage::user("Tell me a story of three words.")];
    let request = ChatCompletionRequest::new("gpt-4o", question).include_usage();
    let mut pieces = client.chat().completions().stream(request).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        write!(out, "{}", piece.text())?;
        if let Some(usage) = &piece.usage {
            writeln!(out, "\n{} tokens", usage.total_tokens)?;
        }
    }
    Ok(())
}
