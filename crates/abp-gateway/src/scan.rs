//! What the gateway has to know of a request before it can pass it on.

use abp_backend_core::ModelOperation;
use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape, View};

mod strict;

/// Members that decide what a request may do and cost. A vendor might read another one of two equal
/// names than we do, so none of them may come twice.
const DECISIVE: [&str; 9] = [
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "model",
    "n",
    "previous_response_id",
    "store",
    "stream",
    "tools",
];

/// Members by which some gateways let a caller choose where its request goes, and with which key.
const FORBIDDEN: [&str; 4] = ["api_base", "api_key", "base_url", "custom_host"];

/// Who asks, as far as it decides what a request may leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nothing it may use or spend is limited.
    Free,
    /// Something is, so nothing may be in a request that a vendor could read as another limit, another
    /// model or another price than we do.
    Limited,
}

/// What a request says that matters to the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    /// The model, as the caller names it.
    pub(crate) model: String,
    /// Whether the answer is to be streamed.
    pub(crate) stream: bool,
    /// The most tokens an answer may have, where the caller says so.
    pub(crate) max_output: Option<u64>,
    /// How many answers.
    pub(crate) choices: u64,
    /// What tells the conversation from others, where the caller says so.
    pub(crate) session: Option<String>,
    /// The kept answer that this goes on from.
    pub(crate) previous: Option<String>,
    /// Whether the answer is to be kept.
    pub(crate) keep: bool,
    /// Whether the caller wants to know what a stream used, where its vendor tells that only if asked.
    pub(crate) asks_usage: bool,
}

impl Scan {
    /// A request without an answer in tokens.
    pub(crate) fn of_input() -> Self {
        Self {
            model: String::new(),
            stream: false,
            max_output: Some(0),
            choices: 1,
            session: None,
            previous: None,
            keep: false,
            asks_usage: false,
        }
    }

    /// Reads what matters.
    pub(crate) fn of(
        dialect: Dialect,
        operation: &ModelOperation,
        model_of_route: Option<&str>,
        body: &[u8],
        caller: Caller,
    ) -> Result<Self, AbpError> {
        let limits = Limits {
            max_bytes: body.len().max(1),
            ..Limits::default()
        };
        let tape = Tape::parse(body, &limits)
            .map_err(|error| invalid(format!("the body is not JSON: {error}")))?;
        let root = tape.root();
        if root.kind() != abp_json::Kind::Object {
            return Err(invalid("the body is not a JSON object"));
        }
        refuse_ambiguity(&tape)?;
        let members = Members::of(root)?;
        if caller == Caller::Limited {
            strict::check(dialect, root, model_of_route, &tape)?;
        }
        let model = match model_of_route {
            Some(model) => model.to_owned(),
            None => text(members.model).ok_or_else(|| invalid("/model is missing"))?,
        };
        let stream = match operation {
            ModelOperation::Generate { stream }
                if dialect.family() == WireFamily::GenerateContent =>
            {
                *stream
            }
            ModelOperation::Generate { .. } => flag(members.stream).unwrap_or(false),
            ModelOperation::CountTokens
            | ModelOperation::Stored { .. }
            | ModelOperation::Other(_) => false,
        };
        // Only what the caller's own vendor reads: anything else is no limit.
        let (max_output, choices) = match dialect.family() {
            WireFamily::Chat => {
                let words = [members.completion_limit, members.plain_limit];
                (words.into_iter().filter_map(count).max(), members.choices)
            }
            WireFamily::Responses => (count(members.output_limit), None),
            WireFamily::Messages => (count(members.plain_limit), None),
            WireFamily::GenerateContent => {
                let of_config = |camel, snake| match members.config {
                    Some(config) => twin(config, camel, snake),
                    None => Ok(None),
                };
                let limit = of_config("maxOutputTokens", "max_output_tokens")?;
                (
                    count(limit),
                    of_config("candidateCount", "candidate_count")?,
                )
            }
            _ => (None, None),
        };
        let user = || text(members.user).or_else(|| text(members.metadata?.get("user_id")));
        Ok(Self {
            model,
            stream,
            max_output,
            choices: count(choices).unwrap_or(1),
            session: text(members.cache_key).or_else(user),
            previous: text(members.previous),
            keep: flag(members.store).unwrap_or(true),
            asks_usage: flag(members.usage_asked()).unwrap_or(false),
        })
    }
}

/// The members of a request that are looked at. Where one is given twice, the last one counts.
#[derive(Default)]
struct Members<'t> {
    model: Option<View<'t>>,
    stream: Option<View<'t>>,
    completion_limit: Option<View<'t>>,
    output_limit: Option<View<'t>>,
    plain_limit: Option<View<'t>>,
    choices: Option<View<'t>>,
    config: Option<View<'t>>,
    cache_key: Option<View<'t>>,
    user: Option<View<'t>>,
    metadata: Option<View<'t>>,
    previous: Option<View<'t>>,
    store: Option<View<'t>>,
    stream_options: Option<View<'t>>,
}

impl<'t> Members<'t> {
    fn usage_asked(&self) -> Option<View<'t>> {
        self.stream_options?.get("include_usage")
    }

    fn of(root: View<'t>) -> Result<Self, AbpError> {
        let mut found = Self::default();
        for (key, value) in root.entries() {
            let key = key.as_str().unwrap_or_default();
            let place = match key.as_ref() {
                "model" => &mut found.model,
                "stream" => &mut found.stream,
                "max_completion_tokens" => &mut found.completion_limit,
                "max_output_tokens" => &mut found.output_limit,
                "max_tokens" => &mut found.plain_limit,
                "n" => &mut found.choices,
                "generationConfig" | "generation_config" if found.config.is_some() => {
                    return Err(given_twice("generationConfig"));
                }
                "generationConfig" | "generation_config" => &mut found.config,
                "prompt_cache_key" => &mut found.cache_key,
                "user" => &mut found.user,
                "metadata" => &mut found.metadata,
                "previous_response_id" => &mut found.previous,
                "store" => &mut found.store,
                "stream_options" => &mut found.stream_options,
                name if FORBIDDEN.contains(&name) => {
                    let message = format!(
                        "/{name} is not taken: where requests go is configured by the operator"
                    );
                    return Err(invalid(message));
                }
                _ => continue,
            };
            *place = Some(value);
        }
        Ok(found)
    }
}

fn refuse_ambiguity(tape: &Tape<'_>) -> Result<(), AbpError> {
    let root = tape.root().id();
    for duplicate in tape.duplicates() {
        let key = tape.view(duplicate.key).and_then(View::as_str);
        if duplicate.object == root
            && let Some(key) = key.filter(|key| DECISIVE.contains(&key.as_ref()))
        {
            return Err(given_twice(&key));
        }
    }
    Ok(())
}

fn text(member: Option<View<'_>>) -> Option<String> {
    Some(member?.as_str()?.into_owned())
}

fn flag(member: Option<View<'_>>) -> Option<bool> {
    member?.as_bool()
}

/// A member with two spellings, which must not come in both, nor twice.
fn twin<'t>(object: View<'t>, camel: &str, snake: &str) -> Result<Option<View<'t>>, AbpError> {
    let named = |key: View<'_>| key.as_str().is_some_and(|key| key == camel || key == snake);
    let mut found = object.entries().filter(|(key, _)| named(*key));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(given_twice(camel)),
        (found, None) => Ok(found.map(|(_, value)| value)),
    }
}

/// A count, as vendors take them: `1e3` and, where they read protocol buffers, `"1000"` are counts, too.
/// What is no count may mean anything to a vendor, so it is the highest.
fn count(member: Option<View<'_>>) -> Option<u64> {
    let member = member.filter(|member| !member.is_null())?;
    let text = member.as_str();
    let text = text.as_deref().or(member.number_text()).unwrap_or_default();
    if let Ok(count) = text.trim().parse() {
        return Some(count);
    }
    let number: f64 = text.trim().parse().unwrap_or(f64::INFINITY);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and the cast keeps within bounds"
    )]
    Some(if number >= 0.0 {
        number.ceil() as u64
    } else {
        u64::MAX
    })
}

fn given_twice(name: &str) -> AbpError {
    invalid(format!("/{name} is given twice"))
}

fn invalid(problem: impl Into<String>) -> AbpError {
    AbpError::new(ErrorCode::ValidationFailed, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(dialect: Dialect, body: &str) -> Result<Scan, String> {
        let operation = ModelOperation::Generate { stream: true };
        let model = (dialect == Dialect::Gemini).then_some("gemini-x");
        Scan::of(dialect, &operation, model, body.as_bytes(), Caller::Free)
            .map_err(|error| error.to_string())
    }

    fn scan_limited(dialect: Dialect, body: &str) -> Result<Scan, String> {
        let operation = ModelOperation::Generate { stream: true };
        let model = (dialect == Dialect::Gemini).then_some("gemini-x");
        Scan::of(dialect, &operation, model, body.as_bytes(), Caller::Limited)
            .map_err(|error| error.to_string())
    }

    /// B23, B24: for a key with limits, nothing that some vendor could read in another way than we do.
    #[test]
    fn b23_b24_keys_with_limits_say_everything_once_and_plainly() {
        use Dialect::{Claude, Codex, Gemini, OpenAi};
        let refused = [
            (OpenAi, r#"{"model":"m","models":["m","gpt-5"]}"#),
            (OpenAi, r#"{"model":"m","fallbacks":["gpt-5"]}"#),
            (OpenAi, r#"{"model":"m","route":"fallback"}"#),
            (OpenAi, r#"{"model":"m","provider":{"order":["x"]}}"#),
            (OpenAi, r#"{"model":"m","Model":"gpt-5"}"#),
            (OpenAi, r#"{"model":"m","MODEL":"gpt-5"}"#),
            (OpenAi, r#"{"model":"m","Models":["gpt-5"]}"#),
            (OpenAi, r#"{"model":"m","maxTokens":9}"#),
            (OpenAi, r#"{"model":"m","Max_Tokens":9}"#),
            (OpenAi, r#"{"model":"m","max-tokens":9}"#),
            (OpenAi, r#"{"model":"m","N":9}"#),
            (OpenAi, r#"{"model":"m","\u004e":9}"#),
            (
                OpenAi,
                r#"{"model":"m","max_tokens":5,"max_completion_tokens":5}"#,
            ),
            (
                OpenAi,
                r#"{"model":"m","max_tokens":5,"max_output_tokens":9}"#,
            ),
            (OpenAi, r#"{"model":"m","max_output_tokens":9}"#),
            (OpenAi, r#"{"model":"m","service_tier":"priority"}"#),
            (OpenAi, r#"{"model":"m","temperature":1,"temperature":2}"#),
            (
                OpenAi,
                r#"{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}"#,
            ),
            (OpenAi, r#"{"model":"m","extra_body":{"models":["x"]}}"#),
            (
                Claude,
                r#"{"model":"m","max_tokens":5,"max_completion_tokens":9}"#,
            ),
            (Claude, r#"{"model":"m","max_tokens":5,"speed":"fast"}"#),
            (
                Claude,
                r#"{"model":"m","max_tokens":5,"fallback_model":"x"}"#,
            ),
            (
                Codex,
                r#"{"model":"m","max_output_tokens":5,"max_tokens":9}"#,
            ),
            (Codex, r#"{"model":"m","service_tier":"fast"}"#),
            (Gemini, r#"{"contents":[],"model":"models/other"}"#),
            (
                Gemini,
                r#"{"contents":[],"GenerationConfig":{"maxOutputTokens":9}}"#,
            ),
            (
                Gemini,
                r#"{"contents":[],"generationConfig":{"MaxOutputTokens":9}}"#,
            ),
            (
                Gemini,
                r#"{"contents":[],"generationConfig":{"topK":1,"topK":2}}"#,
            ),
            (Gemini, r#"{"contents":[],"maxOutputTokens":9}"#),
        ];
        for (dialect, body) in refused {
            assert!(
                scan(dialect, body).is_ok() || body.contains("given"),
                "{body}"
            );
            let error = scan_limited(dialect, body).expect_err(body);
            let told = ["not taken", "given twice"]
                .iter()
                .any(|one| error.contains(one));
            assert!(told, "{body}: {error}");
        }
        let taken = [
            (
                OpenAi,
                r#"{"model":"m","max_tokens":5,"n":2,"service_tier":"flex","user":"u"}"#,
            ),
            (
                OpenAi,
                r#"{"model":"m","max_completion_tokens":5,"service_tier":null}"#,
            ),
            (
                Claude,
                r#"{"model":"m","max_tokens":5,"service_tier":"standard_only"}"#,
            ),
            (
                Codex,
                r#"{"model":"m","max_output_tokens":5,"metadata":{"models":"x"}}"#,
            ),
            (
                Gemini,
                r#"{"contents":[],"model":"models/gemini-x","generation_config":{"max_output_tokens":9}}"#,
            ),
        ];
        for (dialect, body) in taken {
            assert_eq!(scan_limited(dialect, body), scan(dialect, body), "{body}");
        }
    }

    #[test]
    fn what_matters_is_found_in_every_dialect() {
        let cases = [
            (
                Dialect::OpenAi,
                r#"{"model":"m","stream":true,"max_completion_tokens":5,"n":2,"user":"u"}"#,
                ("m", true, Some(5), 2, Some("u")),
            ),
            (
                Dialect::Claude,
                r#"{"model":"m","max_tokens":7,"metadata":{"user_id":"s"}}"#,
                ("m", false, Some(7), 1, Some("s")),
            ),
            (
                Dialect::Gemini,
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":9,"candidateCount":3}}"#,
                ("gemini-x", true, Some(9), 3, None),
            ),
            (
                Dialect::Codex,
                r#"{"model":"m","max_output_tokens":4,"prompt_cache_key":"k","user":"u"}"#,
                ("m", false, Some(4), 1, Some("k")),
            ),
        ];
        for (dialect, body, expected) in cases {
            let found = scan(dialect, body).expect(body);
            let session = found.session.as_deref();
            let found = (
                found.model.as_str(),
                found.stream,
                found.max_output,
                found.choices,
                session,
            );
            assert_eq!(found, expected, "{body}");
        }
    }

    /// B24: a limit is what the caller's own vendor takes for one, however it is spelled.
    #[test]
    fn b24_limits_are_those_of_the_dialect() {
        let cases = [
            (
                Dialect::OpenAi,
                r#"{"model":"m","max_tokens":9,"max_completion_tokens":5}"#,
                Some(9),
            ),
            (
                Dialect::OpenAi,
                r#"{"model":"m","max_output_tokens":5}"#,
                None,
            ),
            (
                Dialect::OpenAi,
                r#"{"model":"m","max_tokens":1e5}"#,
                Some(100_000),
            ),
            (
                Dialect::OpenAi,
                r#"{"model":"m","max_tokens":-1}"#,
                Some(u64::MAX),
            ),
            (
                Dialect::OpenAi,
                r#"{"model":"m","max_tokens":"many"}"#,
                Some(u64::MAX),
            ),
            (Dialect::OpenAi, r#"{"model":"m","max_tokens":null}"#, None),
            (
                Dialect::Claude,
                r#"{"model":"m","max_completion_tokens":1,"max_tokens":7}"#,
                Some(7),
            ),
            (
                Dialect::Codex,
                r#"{"model":"m","max_tokens":1,"max_output_tokens":70.0}"#,
                Some(70),
            ),
            (
                Dialect::Gemini,
                r#"{"max_tokens":1,"generationConfig":{"maxOutputTokens":"900"}}"#,
                Some(900),
            ),
            (
                Dialect::Gemini,
                r#"{"generation_config":{"max_output_tokens":8}}"#,
                Some(8),
            ),
        ];
        for (dialect, body, expected) in cases {
            let found = scan(dialect, body).expect(body);
            assert_eq!(found.max_output, expected, "{body}");
        }
        let two = r#"{"generationConfig":{"candidate_count":2,"maxOutputTokens":3}}"#;
        assert_eq!(scan(Dialect::Gemini, two).expect(two).choices, 2);
        for twice in [
            r#"{"generationConfig":{},"generation_config":{}}"#,
            r#"{"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":9}}"#,
            r#"{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}}"#,
            r#"{"generationConfig":{"candidateCount":1,"candidate_count":9}}"#,
        ] {
            let error = scan(Dialect::Gemini, twice).expect_err(twice);
            assert!(error.contains("given twice"), "{twice}: {error}");
        }
    }

    /// B22, B23, B8: what could be read in two ways, or would choose its own way, goes no further.
    #[test]
    fn b22_b23_b8_what_is_ambiguous_or_directs_itself_is_refused() {
        let cases = [
            (r#"{"model":"a","model":"b"}"#, "/model is given twice"),
            (r#"{"model":"a","\u006dodel":"b"}"#, "/model is given twice"),
            (
                r#"{"model":"a","stream":true,"stream":false}"#,
                "/stream is given twice",
            ),
            (
                r#"{"model":"a","tools":[],"tools":[]}"#,
                "/tools is given twice",
            ),
            (
                r#"{"model":"a","api_base":"http://x"}"#,
                "/api_base is not taken",
            ),
            (
                r#"{"model":"a","base_url":"http://x"}"#,
                "/base_url is not taken",
            ),
            (r#"{"model":"a","api_key":"x"}"#, "/api_key is not taken"),
            (
                r#"{"model":"a","custom_host":"x"}"#,
                "/custom_host is not taken",
            ),
            (r#"{"messages":[]}"#, "/model is missing"),
            (r#"{"model":1}"#, "/model is missing"),
            ("[]", "not a JSON object"),
            (r#"{"model":"a""#, "not JSON"),
        ];
        for (body, problem) in cases {
            let error = scan(Dialect::OpenAi, body).expect_err(body);
            assert!(error.contains(problem), "{body}: {error}");
        }
        let deep = format!(r#"{{"model":"a","x":{}}}"#, "[".repeat(100_000));
        assert!(scan(Dialect::OpenAi, &deep).is_err());
    }
}
