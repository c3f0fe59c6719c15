//! An answer as it is written.

use std::io::Write;

use abp_shim_gemini::Client;
use abp_shim_gemini::wire::GenerateContentRequest;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    follow(&Client::from_env()?, &mut std::io::stdout()).await
}

pub(crate) async fn follow(
    client: &Client,
    out: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let request = GenerateContentRequest::text("Tell me a story of three words.");
    let models = client.models();
    let mut pieces = models
        .generate_content_stream("gemini-2.5-flash", &request)
        .await?;
    let mut tokens = None;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        write!(out, "{}", piece.text())?;
        let usage = piece.usage_metadata.as_ref();
        tokens = usage.and_then(|usage| usage.total_token_count).or(tokens);
    }
    writeln!(out, "\n{} tokens", tokens.unwrap_or_default())?;
    Ok(())
}
