//! What a vendor's models have, by their names.

use abp_core::{Capability, SupportLevel};
use abp_dialect::Dialect;
use abp_translate::manifest;

/// A model, what it has, and what it lacks or has under a condition only.
const CASES: [(Dialect, &str); 6] = [
    (
        Dialect::OpenAi,
        "
            | streaming max_tokens | tool_use image_input
            llama-3.1-8b | system_message | tool_use temperature
            gpt-3.5-turbo | tool_use json_mode logprobs | image_input structured_output_json_schema
            gpt-4-0613 | tool_use seed_determinism | json_mode image_input
            gpt-4-1106-preview | json_mode | image_input
            gpt-4-vision-preview | image_input | tool_use
            gpt-4-turbo-2024-04-09 | image_input json_mode | pdf_input structured_output_json_schema
            ft:gpt-4o-mini:org::id | structured_output_json_schema pdf_input | audio extended_thinking
            gpt-4o-audio-preview | audio tool_use | image_input
            gpt-4o-mini-search-preview | tool_web_search | temperature tool_use
            chatgpt-4o-latest | image_input | tool_use
            openai/gpt-4.1-mini | structured_output_json_schema temperature | extended_thinking
            o1-mini | extended_thinking | system_message tool_use
            o1 | tool_use stop_sequences | temperature
            o3-mini | tool_use stop_sequences | image_input
            o3 | image_input extended_thinking | stop_sequences top_p
            o4-mini | image_input extended_thinking | stop_sequences
            gpt-5-mini | extended_thinking pdf_input | temperature cache_control
            gpt-5.6-sol | cache_control extended_thinking | temperature
            gpt-5.2-chat-latest | temperature tool_use | extended_thinking
        ",
    ),
    (
        Dialect::Claude,
        "
            | streaming system_message | tool_use extended_thinking
            claude-next | stop_sequences | structured_output_json_schema
            claude-2.1 | temperature | tool_use image_input
            claude-3-haiku-20240307 | tool_use image_input top_k | pdf_input extended_thinking
            anthropic/claude-3.5-haiku | pdf_input | extended_thinking
            claude-3-7-sonnet | extended_thinking tool_web_search | structured_output_json_schema
            claude-sonnet-4-20250514 | code_execution top_k | structured_output_json_schema
            us.anthropic.claude-opus-4-1-v1:0 | structured_output_json_schema temperature | mcp_client
            claude-haiku-4-5 | cache_control temperature | mcp_client
            claude-opus-4-7 | extended_thinking structured_output_json_schema | temperature top_p
            claude-fable-5 | tool_web_fetch | top_k
        ",
    ),
    (
        Dialect::Gemini,
        "
            | streaming temperature | tool_use extended_thinking
            learnlm | max_tokens | audio
            gemini-1.5-flash | tool_use audio | structured_output_json_schema extended_thinking
            gemini-2.0-flash | structured_output_json_schema code_execution | tool_web_fetch logprobs
            models/gemini-2.5-pro | extended_thinking tool_web_fetch | frequency_penalty
            gemini-2.5-flash-image | image_generation image_input | tool_use audio
            gemini-2.5-flash-preview-tts | audio | image_input tool_use
            gemini-3-flash-preview | extended_thinking pdf_input top_k | image_generation
        ",
    ),
    (
        Dialect::Codex,
        "
            | streaming | session_resume tool_use
            grok-4.3 | max_tokens | tool_web_search
            gpt-3.5-turbo | tool_use session_resume | image_input tool_web_search
            gpt-4-0613 | tool_use | json_mode
            gpt-4-turbo | image_input | structured_output_json_schema
            chatgpt-4o-latest | image_input | tool_use
            gpt-4o | tool_web_search code_execution logprobs | extended_thinking
            gpt-4.1 | mcp_client image_generation | extended_thinking
            o1 | extended_thinking image_input | mcp_client
            o3-mini | tool_use session_fork | image_input
            o3 | code_execution pdf_input | temperature
            o4-mini | code_execution | top_p
            codex-mini-latest | tool_use extended_thinking | image_generation
            gpt-5.3-codex | tool_web_search extended_thinking | temperature cache_control
            gpt-5.6-terra | cache_control | temperature
            gpt-5.1-chat-latest | temperature | extended_thinking
        ",
    ),
    (
        Dialect::Kimi,
        "
            | streaming tool_use | extended_thinking temperature
            kimi-next | json_mode | image_input
            moonshot-v1-32k | temperature tool_use | image_input extended_thinking
            moonshot-v1-8k-vision-preview | image_input | extended_thinking
            moonshotai/kimi-k2-0905-preview | presence_penalty | image_input
            kimi-k2-thinking-turbo | extended_thinking | image_input tool_web_search
            kimi-k2.6 | extended_thinking image_input | temperature
            kimi-k3 | extended_thinking image_input | top_p
        ",
    ),
    (
        Dialect::Copilot,
        "
            | streaming | tool_use
            raptor-mini | system_message | image_input
            gpt-3.5-turbo | tool_use | image_input
            gpt-4 | temperature | structured_output_json_schema
            gpt-4o-2024-11-20 | image_input structured_output_json_schema | extended_thinking
            gpt-4.1 | image_input | cache_control
            gpt-5-mini | extended_thinking | temperature
            o1 | extended_thinking | image_input
            o3-mini | tool_use | image_input
            o3 | image_input | top_p
            o4-mini | image_input | top_p
            claude-3.5-sonnet | cache_control image_input | extended_thinking
            claude-sonnet-4.5 | extended_thinking cache_control | structured_output_json_schema
            gemini-2.5-pro | tool_use image_input | cache_control
        ",
    ),
];

#[test]
fn families_by_name() {
    for (dialect, cases) in CASES {
        for line in cases.lines().filter(|line| line.contains('|')) {
            let mut columns = line.split('|').map(str::trim);
            let mut column = || columns.next().expect("three columns");
            let (model, has, lacks) = (column(), column(), column());
            let manifest = manifest(dialect, (!model.is_empty()).then_some(model));
            let native = |name| {
                let one = Capability::from_wire(name);
                assert!(Capability::KNOWN.contains(&one), "{name}");
                manifest.get(&one) == Some(&SupportLevel::Native)
            };
            for name in has.split(' ') {
                assert!(native(name), "{dialect:?}: {model} has {name}");
            }
            for name in lacks.split(' ') {
                assert!(!native(name), "{dialect:?}: {model} has no {name}");
            }
        }
    }
}

#[test]
fn what_is_there_under_a_condition_is_not_absent() {
    let level = |model| {
        manifest(Dialect::OpenAi, Some(model))
            .get(&Capability::Temperature)
            .cloned()
    };
    assert_eq!(level("gpt-5-mini"), None, "it always reasons");
    assert!(matches!(
        level("gpt-5.4"),
        Some(SupportLevel::Restricted { .. })
    ));
}
