//! An answer as it is written.

use std::io::Write;

use abp_shim_claude::Client;
use abp_shim_claude::wire::{MessageParam, MessageRequest, MessageStreamEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    follow(&Client::from_env()?, &mut std::io::stdout()).await
}

pub(crate) async fn follow(
    client: &Client,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let question = [MessageParam::user("Tell me a story of three words.")];
    let request = MessageRequest::new("claude-sonnet-4-5", 1024, question);
    let mut pieces = client.messages().stream(request).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        write!(out, "{}", piece.text())?;
        if let MessageStreamEvent::MessageDelta { usage, .. } = &piece {
            writeln!(out, "\n{} tokens", usage.output_tokens)?;
        }
    }
    Ok(())
}
