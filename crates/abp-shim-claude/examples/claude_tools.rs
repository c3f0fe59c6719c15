//! A model that looks something up before it answers.

use std::io::Write as _;

use abp_shim_claude::wire::{ContentBlock, MessageParam, MessageRequest, StopReason, Tool};
use abp_shim_claude::{Client, Error};
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
    let weather = Tool::new("get_weather", "The weather in a city.", parameters);
    let question = "What is the weather in Oslo? Please use the tool get_weather.";
    let question = [MessageParam::user(question)];
    let mut request = MessageRequest::new("claude-sonnet-4-5", 1024, question).tools([weather]);
    loop {
        let answer = client.messages().create(request.clone()).await?;
        if answer.stop_reason != Some(StopReason::ToolUse) {
            return Ok(answer.text());
        }
        request.messages.push(answer.to_param());
        let results = answer.content.iter().filter_map(|block| match block {
            ContentBlock::ToolUse { id, .. } => Some(ContentBlock::tool_result(id, "It snows.")),
            _ => None,
        });
        let results: Vec<ContentBlock> = results.collect();
        request.messages.push(MessageParam::user(results));
    }
}
