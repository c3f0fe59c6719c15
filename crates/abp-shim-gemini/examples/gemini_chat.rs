//! One question, one answer. `abp serve` says what to put into the environment.

use std::io::Write as _;

use abp_shim_gemini::wire::{GenerateContentRequest, GenerationConfig};
use abp_shim_gemini::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = chat(&Client::from_env()?).await?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}

pub(crate) async fn chat(client: &Client) -> Result<String, Error> {
    let request = GenerateContentRequest::text("Why is the sky blue?")
        .system_instruction("Answer in one sentence.")
        .generation_config(GenerationConfig {
            temperature: Some(0.2),
            ..GenerationConfig::default()
        });
    let models = client.models();
    let answer = models
        .generate_content("gemini-2.5-flash", &request)
        .await?;
    Ok(answer.text())
}
