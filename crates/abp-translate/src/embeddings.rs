//! Embeddings between OpenAI's and Gemini's form.
//!
//! Both ask for vectors of texts and get lists of numbers, so nothing of a conversation is involved. A
//! request becomes an [`EmbeddingRequest`] and is written in the other form; numbers of an answer keep
//! their spelling, unless the caller wants them packed. Tokens instead of texts, and several lengths in
//! one batch, cannot be said in the other form and are refused.

use abp_dialect::{Dialect, DialectError, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Kind, Limits, Tape, View, Writer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{Action, Ledger, LedgerEntry};

/// The texts of which vectors are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingRequest {
    texts: Vec<String>,
    dimensions: Option<u64>,
    form: AnswerForm,
    ledger: Ledger,
}

/// The form in which the caller reads vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerForm {
    /// OpenAI's list with numbers.
    Numbers,
    /// OpenAI's list with the bytes of 32-bit floats in base64.
    Packed,
    /// Gemini's answer to one content.
    One,
    /// Gemini's answer to several.
    Several,
}

impl EmbeddingRequest {
    /// Reads a request of OpenAI's (`/embeddings`) or Gemini's (`embedContent`, `batchEmbedContents`) form.
    ///
    /// # Errors
    /// Fails where it is no such request, or cannot be said in the other form.
    pub fn read(source: &[u8], from: Dialect) -> Result<Self, AbpError> {
        let tape = parse(source)?;
        let root = tape.root();
        match from.family() {
            WireFamily::Chat => read_openai(root),
            WireFamily::GenerateContent => match root.get("requests") {
                Some(requests) => read_several(root, requests),
                None => {
                    let mut found = Found::default();
                    let text = found.content(root, "")?;
                    Ok(found.request(vec![text], AnswerForm::One))
                }
            },
            _ => Err(invalid(format!("{from} has no embeddings"))),
        }
    }

    /// What became of every part of the request.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes the request for a model: OpenAI's form, or that of Gemini's `batchEmbedContents`.
    #[must_use]
    pub fn write(&self, to: Dialect, model: &str) -> String {
        let mut out = Writer::with_capacity(256);
        out.begin_object();
        if to.family() == WireFamily::GenerateContent {
            out.key("requests");
            out.begin_array();
            for text in &self.texts {
                out.begin_object();
                out.key("model");
                out.string(&format!("models/{model}"));
                out.key("content");
                out.begin_object();
                out.key("parts");
                out.begin_array();
                out.begin_object();
                out.key("text");
                out.string(text);
                out.end_object();
                out.end_array();
                out.end_object();
                if let Some(dimensions) = self.dimensions {
                    out.key("outputDimensionality");
                    out.raw(&dimensions.to_string());
                }
                out.end_object();
            }
            out.end_array();
        } else {
            out.key("model");
            out.string(model);
            out.key("input");
            out.begin_array();
            self.texts.iter().for_each(|text| out.string(text));
            out.end_array();
            if let Some(dimensions) = self.dimensions {
                out.key("dimensions");
                out.raw(&dimensions.to_string());
            }
        }
        out.end_object();
        out.into_text()
    }

    /// Writes an answer of the other form for the caller, who named the model so.
    ///
    /// # Errors
    /// Fails where it is no answer to this request.
    pub fn answer(&self, source: &[u8], from: Dialect, model: &str) -> Result<String, AbpError> {
        let tape = parse(source)?;
        let root = tape.root();
        let (list, values) = match from.family() {
            WireFamily::GenerateContent => ("embeddings", "values"),
            _ => ("data", "embedding"),
        };
        let vectors = root.get(list).filter(|list| list.kind() == Kind::Array);
        let vectors = vectors.ok_or_else(|| broken(&format!("/{list} is missing")))?;
        let vectors: Option<Vec<_>> = vectors.items().map(|one| one.get(values)).collect();
        let vectors = vectors.ok_or_else(|| broken(&format!("a vector has no {values}")))?;
        if vectors.len() != self.texts.len() {
            let counts = (vectors.len(), self.texts.len());
            return Err(broken(&format!(
                "{} vectors for {} texts",
                counts.0, counts.1
            )));
        }
        let used = used(root, from);
        let mut out = Writer::with_capacity(source.len());
        out.begin_object();
        match self.form {
            AnswerForm::Numbers | AnswerForm::Packed => {
                self.write_list(&vectors, model, used, &mut out)?;
            }
            AnswerForm::One | AnswerForm::Several => {
                let several = self.form == AnswerForm::Several;
                out.key(if several { "embeddings" } else { "embedding" });
                if several {
                    out.begin_array();
                }
                for vector in &vectors {
                    out.begin_object();
                    out.key("values");
                    out.raw(vector.raw());
                    out.end_object();
                }
                if several {
                    out.end_array();
                }
                if let Some(used) = used {
                    out.key("usageMetadata");
                    out.begin_object();
                    out.key("promptTokenCount");
                    out.raw(&used.to_string());
                    out.end_object();
                }
            }
        }
        out.end_object();
        Ok(out.into_text())
    }

    fn write_list(
        &self,
        vectors: &[View<'_>],
        model: &str,
        used: Option<u64>,
        out: &mut Writer,
    ) -> Result<(), AbpError> {
        out.key("object");
        out.string("list");
        out.key("data");
        out.begin_array();
        for (index, vector) in vectors.iter().enumerate() {
            out.begin_object();
            out.key("object");
            out.string("embedding");
            out.key("index");
            out.raw(&index.to_string());
            out.key("embedding");
            match self.form {
                AnswerForm::Packed => out.string(&packed(*vector)?),
                _ => out.raw(vector.raw()),
            }
            out.end_object();
        }
        out.end_array();
        out.key("model");
        out.string(model);
        // A count that was never made is not told.
        if let Some(used) = used {
            out.key("usage");
            out.begin_object();
            for name in ["prompt_tokens", "total_tokens"] {
                out.key(name);
                out.raw(&used.to_string());
            }
            out.end_object();
        }
        Ok(())
    }
}

/// The tokens that an answer says it read.
fn used(root: View<'_>, from: Dialect) -> Option<u64> {
    match from.family() {
        WireFamily::GenerateContent => root.get("usageMetadata")?.get("promptTokenCount")?.as_u64(),
        _ => root.get("usage")?.get("prompt_tokens")?.as_u64(),
    }
}

fn packed(vector: View<'_>) -> Result<String, AbpError> {
    let mut bytes = Vec::new();
    for number in vector.items() {
        let number = number.as_f64();
        let number = number.ok_or_else(|| broken("a vector holds no numbers"))?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the vendors' own vectors are 32-bit floats"
        )]
        let number = number as f32;
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    Ok(STANDARD.encode(bytes))
}

fn read_openai(root: View<'_>) -> Result<EmbeddingRequest, AbpError> {
    let mut found = Found::default();
    let mut form = AnswerForm::Numbers;
    let mut texts = None;
    for (key, value) in root.entries() {
        let name = key.as_str().unwrap_or_default();
        let place = format!("/{name}");
        match name.as_ref() {
            "model" => found.carried(place, "model"),
            "input" => {
                texts = Some(inputs(value)?);
                found.carried(place, "embedding_form");
            }
            "dimensions" if !value.is_null() => {
                found.dimensions = Some(whole(value, &place)?);
                found.carried(place, "embedding_form");
            }
            "encoding_format" => {
                form = match value.as_str().as_deref() {
                    Some("base64") => AnswerForm::Packed,
                    Some("float") => AnswerForm::Numbers,
                    _ if value.is_null() => AnswerForm::Numbers,
                    _ => return Err(invalid(format!("{place} is not known"))),
                };
                found.carried(place, "answer_form");
            }
            "user" => found.dropped(place, "user", "the target does not take users"),
            _ => found.dropped(place, "vendor_extension", "the target has nothing like it"),
        }
    }
    let texts = texts.ok_or_else(|| invalid("/input is missing".to_owned()))?;
    Ok(found.request(texts, form))
}

fn inputs(input: View<'_>) -> Result<Vec<String>, AbpError> {
    if let Some(text) = input.as_str() {
        return Ok(vec![text.into_owned()]);
    }
    let text = |one: View<'_>| Some(one.as_str()?.into_owned());
    let texts: Option<Vec<String>> = match input.kind() {
        Kind::Array => input.items().map(text).collect(),
        _ => None,
    };
    let texts = texts.filter(|texts| !texts.is_empty());
    texts.ok_or_else(|| {
        invalid("/input holds tokens or nothing, and only texts can be translated".to_owned())
    })
}

fn read_several(root: View<'_>, requests: View<'_>) -> Result<EmbeddingRequest, AbpError> {
    let mut found = Found::default();
    let mut texts = Vec::new();
    let mut first = None;
    for (index, request) in requests.items().enumerate() {
        found.dimensions = None;
        texts.push(found.content(request, &format!("/requests/{index}"))?);
        if *first.get_or_insert(found.dimensions) != found.dimensions {
            let message = "/requests want vectors of several lengths, which one request cannot";
            return Err(invalid(message.to_owned()));
        }
    }
    for (key, _) in root.entries() {
        let name = key.as_str().unwrap_or_default();
        if name != "requests" {
            let place = format!("/{name}");
            found.dropped(place, "vendor_extension", "the target has nothing like it");
        }
    }
    if texts.is_empty() {
        return Err(invalid("/requests is empty".to_owned()));
    }
    Ok(found.request(texts, AnswerForm::Several))
}

/// What a request says besides its texts.
#[derive(Default)]
struct Found {
    dimensions: Option<u64>,
    entries: Vec<LedgerEntry>,
}

impl Found {
    /// The text of one content of Gemini's.
    fn content(&mut self, request: View<'_>, place: &str) -> Result<String, AbpError> {
        let mut text = None;
        for (key, value) in request.entries() {
            let name = key.as_str().unwrap_or_default();
            let place = format!("{place}/{name}");
            match name.as_ref() {
                "model" => self.carried(place, "model"),
                "content" => {
                    text = Some(only_text(value, &place)?);
                    self.carried(place, "embedding_form");
                }
                "outputDimensionality" | "output_dimensionality" => {
                    self.dimensions = Some(whole(value, &place)?);
                    self.carried(place, "embedding_form");
                }
                "taskType" | "task_type" | "title" => {
                    self.dropped(place, "embedding_task", "the target knows no tasks");
                }
                _ => self.dropped(place, "vendor_extension", "the target has nothing like it"),
            }
        }
        text.ok_or_else(|| invalid(format!("{place}/content is missing")))
    }

    fn carried(&mut self, source: String, label: &'static str) {
        self.enter(Action::Renamed, source, label, None);
    }

    fn dropped(&mut self, source: String, label: &'static str, reason: &'static str) {
        self.enter(Action::Dropped, source, label, Some(reason));
    }

    fn enter(
        &mut self,
        action: Action,
        source: String,
        label: &'static str,
        reason: Option<&'static str>,
    ) {
        self.entries.push(LedgerEntry {
            action,
            source: Some(source),
            target: None,
            label: Some(label.into()),
            reason: reason.map(Into::into),
            unsupported: false,
            count: None,
        });
    }

    fn request(self, texts: Vec<String>, form: AnswerForm) -> EmbeddingRequest {
        EmbeddingRequest {
            texts,
            dimensions: self.dimensions,
            form,
            ledger: Ledger::from_entries(self.entries),
        }
    }
}

fn only_text(content: View<'_>, place: &str) -> Result<String, AbpError> {
    let parts: Vec<_> = content
        .get("parts")
        .into_iter()
        .flat_map(View::items)
        .collect();
    match parts.as_slice() {
        [part] if part.entries().count() == 1 => part
            .get("text")
            .and_then(View::as_str)
            .map(std::borrow::Cow::into_owned)
            .ok_or_else(|| invalid(format!("{place} holds something else than text"))),
        _ => Err(invalid(format!("{place} is not one part of text"))),
    }
}

fn whole(value: View<'_>, place: &str) -> Result<u64, AbpError> {
    let count = value.as_u64();
    count.ok_or_else(|| invalid(format!("{place} is no count")))
}

fn parse(source: &[u8]) -> Result<Tape<'_>, AbpError> {
    let limits = Limits {
        max_bytes: source.len().max(1),
        ..Limits::default()
    };
    let tape = Tape::parse(source, &limits).map_err(DialectError::Json);
    tape.map_err(|error| invalid(error.to_string()))
}

fn invalid(problem: String) -> AbpError {
    AbpError::new(ErrorCode::ValidationFailed, problem)
}

fn broken(problem: &str) -> AbpError {
    let message = format!("the answer cannot be translated: {problem}");
    AbpError::new(ErrorCode::BackendBrokenAnswer, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        from: Dialect,
        to: Dialect,
        source: &str,
        written: &str,
        losses: usize,
    ) -> EmbeddingRequest {
        let read = EmbeddingRequest::read(source.as_bytes(), from).expect(source);
        assert_eq!(read.write(to, "m"), written, "{source}");
        assert_eq!(read.ledger().loss_count(), losses, "{source}");
        read
    }

    const GEMINI_ONE: &str =
        r#"{"requests":[{"model":"models/m","content":{"parts":[{"text":"a"}]}}]}"#;

    #[test]
    fn requests_of_either_form_become_the_other() {
        let (openai, gemini) = (Dialect::OpenAi, Dialect::Gemini);
        check(
            openai,
            gemini,
            r#"{"model":"x","input":"a"}"#,
            GEMINI_ONE,
            0,
        );
        check(
            openai,
            gemini,
            r#"{"model":"x","input":["a"],"user":"u","odd":1}"#,
            GEMINI_ONE,
            2,
        );
        check(
            openai,
            gemini,
            r#"{"input":["a","b"],"dimensions":3}"#,
            r#"{"requests":[{"model":"models/m","content":{"parts":[{"text":"a"}]},"outputDimensionality":3},{"model":"models/m","content":{"parts":[{"text":"b"}]},"outputDimensionality":3}]}"#,
            0,
        );
        check(
            gemini,
            openai,
            r#"{"content":{"parts":[{"text":"a"}]},"taskType":"X","outputDimensionality":2}"#,
            r#"{"model":"m","input":["a"],"dimensions":2}"#,
            1,
        );
        check(
            gemini,
            openai,
            GEMINI_ONE,
            r#"{"model":"m","input":["a"]}"#,
            0,
        );
        for (from, refused) in [
            (openai, r#"{"model":"x"}"#),
            (openai, r#"{"input":[1,2]}"#),
            (openai, r#"{"input":[[1]]}"#),
            (openai, r#"{"input":"a","encoding_format":"odd"}"#),
            (
                gemini,
                r#"{"content":{"parts":[{"text":"a"},{"text":"b"}]}}"#,
            ),
            (gemini, r#"{"content":{"parts":[{"inlineData":{}}]}}"#),
            (gemini, r#"{"requests":[]}"#),
            (
                gemini,
                r#"{"requests":[{"content":{"parts":[{"text":"a"}]},"outputDimensionality":2},{"content":{"parts":[{"text":"b"}]}}]}"#,
            ),
        ] {
            let error = EmbeddingRequest::read(refused.as_bytes(), from).expect_err(refused);
            assert_eq!(error.code(), ErrorCode::ValidationFailed, "{refused}");
        }
    }

    #[test]
    fn answers_of_either_form_become_the_other() {
        let (openai, gemini) = (Dialect::OpenAi, Dialect::Gemini);
        let theirs =
            r#"{"embeddings":[{"values":[0.10,-1e-3]}],"usageMetadata":{"promptTokenCount":4}}"#;
        let ours = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.10,-1e-3]}],"model":"x","usage":{"prompt_tokens":4,"total_tokens":4}}"#;
        let asked = check(openai, gemini, r#"{"input":"a"}"#, GEMINI_ONE, 0);
        assert_eq!(
            asked
                .answer(theirs.as_bytes(), gemini, "x")
                .expect("an answer"),
            ours
        );
        let asked = check(
            openai,
            gemini,
            r#"{"input":"a","encoding_format":"base64"}"#,
            GEMINI_ONE,
            0,
        );
        let packed = asked.answer(br#"{"embeddings":[{"values":[1,-2.5]}]}"#, gemini, "x");
        let expected = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAIMA="}],"model":"x"}"#;
        assert_eq!(packed.expect("an answer"), expected);
        let one = r#"{"content":{"parts":[{"text":"a"}]}}"#;
        let written = r#"{"model":"m","input":["a"]}"#;
        let asked = check(gemini, openai, one, written, 0);
        let answered = asked
            .answer(ours.as_bytes(), openai, "x")
            .expect("an answer");
        assert_eq!(
            answered,
            r#"{"embedding":{"values":[0.10,-1e-3]},"usageMetadata":{"promptTokenCount":4}}"#
        );
        let asked = check(gemini, openai, GEMINI_ONE, written, 0);
        let answered = asked
            .answer(ours.as_bytes(), openai, "x")
            .expect("an answer");
        assert_eq!(answered, theirs);
        for broken in [r#"{"data":[]}"#, r#"{"data":[{}]}"#, "{}", "x"] {
            assert!(
                asked.answer(broken.as_bytes(), openai, "x").is_err(),
                "{broken}"
            );
        }
    }
}
