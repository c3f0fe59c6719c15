//! A model that looks something up before it answers.

use std::io::Write as _;

use abp_shim_gemini::wire::{Content, FunctionDeclaration, GenerateContentRequest, Part};
use abp_shim_gemini::{Client, Error};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answer = ask(&Client::from_env()?).await?;
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(())
}

pub(crate) async fn ask(client: &Client) -> Result<String, Error> {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
    });
    let weather = FunctionDeclaration::new("get_weather", "The weather in a city.", parameters);
    let question = "What is the weather in Oslo? Please use the tool get_weather.";
    let mut request = GenerateContentRequest::text(question).functions([weather]);
    let models = client.models();
    loop {
        let answer = models
            .generate_content("gemini-2.5-flash", &request)
            .await?;
        let results: Vec<Part> = answer
            .function_calls()
            .map(|call| Part::function_response(call, json!("It snows.")))
            .collect();
        if results.is_empty() {
            return Ok(answer.text());
        }
        request.contents.extend(answer.content().cloned());
        request.contents.push(Content::new("user", results));
    }
}
