//! A model that looks something up before it answers.

use std::io::Write as _;

use abp_shim_openai::wire::{ChatCompletionRequest, ChatMessage, Tool};
use abp_shim_openai::{Client, Error};
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
    let weather = Tool::function("get_weather", "The weather in a city.", parameters);
    let question = "What is the weather in Oslo? Please use the tool get_weather.";
    let mut request =
        ChatCompletionRequest::new("gpt-4o", [ChatMessage::user(question)]).tools([weather]);
    loop {
        let answer = client.chat().completions().create(request.clone()).await?;
        let Some(message) = answer.message().filter(|said| !said.tool_calls.is_empty()) else {
            return Ok(answer.text());
        };
        request.messages.push(message.clone());
        for call in &message.tool_calls {
            request
                .messages
                .push(ChatMessage::tool(&call.id, "It snows."));
        }
    }
}
