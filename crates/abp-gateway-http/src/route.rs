//! Every address there is.

use abp_backend_core::{ModelOperation, StoredAction};
use abp_dialect::Dialect;
use http::Method;

/// What an address and a method mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// A vendor's request.
    Vendor {
        dialect: Dialect,
        operation: ModelOperation,
        /// The model, where the address names it.
        model: Option<String>,
    },
    /// An answer that is kept.
    Stored {
        id: String,
        action: StoredAction,
    },
    /// The models, in the words of the vendor whose address it is; one of them where it is named.
    Models {
        vendor: Option<Dialect>,
        name: Option<String>,
    },
    /// A part of a vendor's API that is not translated, and passed on where the operator says so.
    Other {
        dialect: Dialect,
        part: &'static str,
        /// The address below the version of the vendor's API; with the version for Gemini.
        path: String,
    },
    /// A dry run of a translation.
    Translate,
    /// The receipt of an exchange.
    Receipt(String),
    Protocol,
    Version,
    Health,
    Ready,
    Metrics,
    Root,
    /// There is something here, but not for this method.
    WrongMethod,
    Nothing,
}

/// Prefixes under which the vendors' addresses are also found.
pub(crate) const PREFIXES: [(&str, Dialect); 6] = [
    ("/openai", Dialect::OpenAi),
    ("/kimi", Dialect::Kimi),
    ("/copilot", Dialect::Copilot),
    ("/anthropic", Dialect::Claude),
    ("/genai", Dialect::Gemini),
    ("/gemini", Dialect::Gemini),
];

const GET: &[Method] = &[Method::GET, Method::HEAD];
const POST: &[Method] = &[Method::POST];
/// A GET is how a WebSocket begins; it is told that there is none.
const POST_OR_UPGRADE: &[Method] = &[Method::POST, Method::GET];
const GET_OR_DELETE: &[Method] = &[Method::GET, Method::HEAD, Method::DELETE];
const ANY: &[Method] = &[
    Method::POST,
    Method::GET,
    Method::DELETE,
    Method::PUT,
    Method::PATCH,
];

/// Parts of OpenAI's API by the first segment of their addresses. Copilot and Kimi have some of them.
const OF_OPENAI: [&str; 18] = [
    "assistants",
    "audio",
    "batches",
    "completions",
    "containers",
    "conversations",
    "embeddings",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "moderations",
    "organization",
    "realtime",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];

/// Parts of Claude's API by the first segment of their addresses.
const OF_CLAUDE: [&str; 4] = ["complete", "files", "organizations", "skills"];

/// Parts of Gemini's API by the first segment of their addresses.
const OF_GEMINI: [&str; 7] = [
    "batches",
    "cachedContents",
    "corpora",
    "fileSearchStores",
    "files",
    "interactions",
    "tunedModels",
];

/// Parts of Gemini's API by what a model is asked for.
const OF_GEMINI_MODELS: [(&str, &str); 7] = [
    ("embedContent", "embeddings"),
    ("batchEmbedContents", "embeddings"),
    ("asyncBatchEmbedContent", "batches"),
    ("batchGenerateContent", "batches"),
    ("generateImages", "images"),
    ("predict", "predictions"),
    ("predictLongRunning", "videos"),
];

impl Route {
    /// Reads an address. Prefixes and the version may be left out where the vendor's clients do so.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let path = without_slash(path);
        let prefixed = PREFIXES.iter().find_map(|(prefix, vendor)| {
            let rest = path.strip_prefix(prefix)?;
            rest.starts_with('/').then_some((rest, Some(*vendor)))
        });
        let (bare, vendor) = prefixed.unwrap_or((path, None));
        match Self::known(method, bare, vendor) {
            Some((methods, route)) if methods.contains(method) => route,
            Some(_) => Self::WrongMethod,
            None => Self::Nothing,
        }
    }

    /// What there is at an address, and for which methods.
    fn known(
        method: &Method,
        path: &str,
        prefix: Option<Dialect>,
    ) -> Option<(&'static [Method], Self)> {
        let is_beta = path.starts_with("/v1beta/");
        let vendors = if is_beta {
            Some(Dialect::Gemini)
        } else {
            prefix
        };
        let (whole, path) = (path, unversioned(path));
        Some(match path {
            "/chat/completions" => (POST, vendor(of_chat(prefix))),
            "/responses" => (POST_OR_UPGRADE, vendor(Dialect::Codex)),
            "/responses/input_tokens" => (POST, count(Dialect::Codex)),
            "/messages" => (POST, vendor(Dialect::Claude)),
            "/messages/count_tokens" => (POST, count(Dialect::Claude)),
            "/models" => {
                let (vendor, name) = (vendors, None);
                (GET, Self::Models { vendor, name })
            }
            "/translate" => (POST, Self::Translate),
            "/" => (GET, Self::Root),
            "/protocol" => (GET, Self::Protocol),
            "/version" => (GET, Self::Version),
            "/metrics" => (GET, Self::Metrics),
            "/healthz" | "/health" | "/health/liveness" => (GET, Self::Health),
            "/readyz" | "/health/readiness" => (GET, Self::Ready),
            _ => match other(whole, path, vendors) {
                Some(other) => (ANY, other),
                None => return Self::with_name(method, path, vendors),
            },
        })
    }

    /// What there is at an address that names something.
    fn with_name(
        method: &Method,
        path: &str,
        vendor: Option<Dialect>,
    ) -> Option<(&'static [Method], Self)> {
        if let Some((model, operation)) = gemini_call(path) {
            let route = Self::Vendor {
                dialect: Dialect::Gemini,
                operation,
                model: Some(decoded(model)?),
            };
            return Some((POST, route));
        }
        if let Some(name) = path.strip_prefix("/models/") {
            let name = Some(decoded(name)?);
            return Some((GET, Self::Models { vendor, name }));
        }
        if let Some(id) = path.strip_prefix("/receipts/") {
            return Some((GET, Self::Receipt(decoded(id)?)));
        }
        let (id, action) = match path.strip_prefix("/responses/")?.split_once('/') {
            None if method == Method::DELETE => {
                (path.strip_prefix("/responses/")?, StoredAction::Delete)
            }
            None => (path.strip_prefix("/responses/")?, StoredAction::Get),
            Some((id, "cancel")) => (id, StoredAction::Cancel),
            Some((id, "input_items")) => (id, StoredAction::InputItems),
            Some(_) => return None,
        };
        let methods = match action {
            StoredAction::Cancel => POST,
            StoredAction::InputItems => GET,
            StoredAction::Get | StoredAction::Delete => GET_OR_DELETE,
        };
        let id = decoded(id)?;
        Some((methods, Self::Stored { id, action }))
    }
}

/// The dialect of chat completions under a prefix.
fn of_chat(prefix: Option<Dialect>) -> Dialect {
    match prefix {
        Some(Dialect::Kimi) => Dialect::Kimi,
        Some(Dialect::Copilot) => Dialect::Copilot,
        _ => Dialect::OpenAi,
    }
}

/// A part of a vendor's API that is not translated. `whole` has the version, `path` has not.
fn other(whole: &str, path: &str, vendor: Option<Dialect>) -> Option<Route> {
    let uploads = whole.strip_prefix("/upload/v1beta/");
    let first = uploads
        .unwrap_or(path.strip_prefix('/')?)
        .split('/')
        .next()?;
    let named = |parts: &[&'static str]| parts.iter().find(|part| **part == first).copied();
    let operation = path.rsplit_once(':').map(|(_, operation)| operation);
    let asked = OF_GEMINI_MODELS
        .iter()
        .find(|(name, _)| Some(*name) == operation);
    let (dialect, part) = match (path, vendor) {
        ("/responses/compact", _) => (Dialect::Codex, "compaction"),
        _ if path == "/messages/batches" || path.starts_with("/messages/batches/") => {
            (Dialect::Claude, "batches")
        }
        _ if asked.is_some() => (Dialect::Gemini, asked?.1),
        _ if uploads.is_some() => (Dialect::Gemini, named(&OF_GEMINI)?),
        (_, Some(Dialect::Gemini)) => (Dialect::Gemini, named(&OF_GEMINI)?),
        (_, Some(Dialect::Claude)) => (Dialect::Claude, named(&OF_CLAUDE)?),
        (_, vendor) => (of_chat(vendor), named(&OF_OPENAI)?),
    };
    let path = match dialect {
        Dialect::Gemini if whole == path && uploads.is_none() => format!("/v1beta{path}"),
        Dialect::Gemini => whole.to_owned(),
        _ => path.to_owned(),
    };
    let is_plain = |segment: &str| {
        let plain = |one: u8| one.is_ascii_alphanumeric() || b"-._~:@".contains(&one);
        !segment.is_empty() && segment.bytes().all(plain) && !segment.bytes().all(|one| one == b'.')
    };
    // Whatever could lead elsewhere at a vendor is no part of its API.
    let goes_on = path.strip_prefix('/')?.split('/').all(is_plain);
    goes_on.then_some(Route::Other {
        dialect,
        part,
        path,
    })
}

/// The address without a slash at its end.
pub(crate) fn without_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") => "/",
        Some(shorter) => shorter,
        None => path,
    }
}

/// The address without the version in front.
pub(crate) fn unversioned(path: &str) -> &str {
    ["/v1beta", "/v1"]
        .iter()
        .find_map(|version| {
            path.strip_prefix(version)
                .filter(|rest| rest.starts_with('/'))
        })
        .unwrap_or(path)
}

fn vendor(dialect: Dialect) -> Route {
    Route::Vendor {
        dialect,
        operation: ModelOperation::Generate { stream: false },
        model: None,
    }
}

fn count(dialect: Dialect) -> Route {
    Route::Vendor {
        dialect,
        operation: ModelOperation::CountTokens,
        model: None,
    }
}

/// The model and the operation of an address of Gemini.
fn gemini_call(path: &str) -> Option<(&str, ModelOperation)> {
    let (model, operation) = path.strip_prefix("/models/")?.rsplit_once(':')?;
    let operation = match operation {
        "generateContent" => ModelOperation::Generate { stream: false },
        "streamGenerateContent" => ModelOperation::Generate { stream: true },
        "countTokens" => ModelOperation::CountTokens,
        _ => return None,
    };
    Some((model, operation))
}

/// A part of an address with its escapes undone; `None` where there is nothing, or they are wrong or
/// hide a control character.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(dialect: Dialect, stream: bool, model: Option<&str>) -> Route {
        Route::Vendor {
            dialect,
            operation: ModelOperation::Generate { stream },
            model: model.map(str::to_owned),
        }
    }

    fn check(cases: impl IntoIterator<Item = (Method, &'static str, Route)>) {
        for (method, path, expected) in cases {
            assert_eq!(Route::of(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn vendors_addresses_bare_and_prefixed() {
        check([
            (
                Method::POST,
                "/v1/chat/completions",
                generate(Dialect::OpenAi, false, None),
            ),
            (
                Method::POST,
                "/chat/completions",
                generate(Dialect::OpenAi, false, None),
            ),
            (
                Method::POST,
                "/openai/v1/chat/completions/",
                generate(Dialect::OpenAi, false, None),
            ),
            (
                Method::POST,
                "/v1/responses",
                generate(Dialect::Codex, false, None),
            ),
            (
                Method::POST,
                "/anthropic/v1/messages",
                generate(Dialect::Claude, false, None),
            ),
            (
                Method::POST,
                "/messages",
                generate(Dialect::Claude, false, None),
            ),
            (
                Method::POST,
                "/v1/messages/count_tokens",
                count(Dialect::Claude),
            ),
            (
                Method::POST,
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
                generate(Dialect::Gemini, true, Some("gemini-2.5-pro")),
            ),
            (
                Method::POST,
                "/genai/v1/models/a%2Fb:generateContent",
                generate(Dialect::Gemini, false, Some("a/b")),
            ),
        ]);
    }

    #[test]
    fn other_addresses_and_none() {
        let stored = |action| Route::Stored {
            id: "resp_1".to_owned(),
            action,
        };
        let models = |vendor, name: Option<&str>| Route::Models {
            vendor,
            name: name.map(str::to_owned),
        };
        check([
            (
                Method::GET,
                "/v1/responses/resp_1",
                stored(StoredAction::Get),
            ),
            (
                Method::DELETE,
                "/v1/responses/resp_1",
                stored(StoredAction::Delete),
            ),
            (
                Method::POST,
                "/v1/responses/resp_1/cancel",
                stored(StoredAction::Cancel),
            ),
            (
                Method::GET,
                "/v1/responses/resp_1/input_items",
                stored(StoredAction::InputItems),
            ),
            (Method::GET, "/v1/models", models(None, None)),
            (
                Method::GET,
                "/v1beta/models",
                models(Some(Dialect::Gemini), None),
            ),
            (
                Method::GET,
                "/genai/v1/models",
                models(Some(Dialect::Gemini), None),
            ),
            (
                Method::GET,
                "/anthropic/v1/models/x",
                models(Some(Dialect::Claude), Some("x")),
            ),
            (
                Method::GET,
                "/v1/models/gpt-4o",
                models(None, Some("gpt-4o")),
            ),
            (
                Method::GET,
                "/v1/receipts/x",
                Route::Receipt("x".to_owned()),
            ),
            (Method::HEAD, "/", Route::Root),
            (Method::GET, "/v1/messages", Route::WrongMethod),
            (Method::DELETE, "/v1/chat/completions", Route::WrongMethod),
            (
                Method::POST,
                "/v1/models/x:unknownThing",
                Route::WrongMethod,
            ),
            (Method::GET, "/etc/passwd", Route::Nothing),
            (Method::GET, "/v1/models/a%00b", Route::Nothing),
        ]);
    }

    #[test]
    fn parts_of_apis_that_are_passed_on() {
        let other = |dialect, part, path: &str| Route::Other {
            dialect,
            part,
            path: path.to_owned(),
        };
        check([
            (
                Method::POST,
                "/v1/embeddings",
                other(Dialect::OpenAi, "embeddings", "/embeddings"),
            ),
            (
                Method::GET,
                "/openai/v1/batches/batch_1",
                other(Dialect::OpenAi, "batches", "/batches/batch_1"),
            ),
            (
                Method::POST,
                "/kimi/v1/files",
                other(Dialect::Kimi, "files", "/files"),
            ),
            (
                Method::GET,
                "/v1/messages/batches/b",
                other(Dialect::Claude, "batches", "/messages/batches/b"),
            ),
            (
                Method::GET,
                "/anthropic/v1/files/f/content",
                other(Dialect::Claude, "files", "/files/f/content"),
            ),
            (
                Method::POST,
                "/v1beta/models/x:embedContent",
                other(
                    Dialect::Gemini,
                    "embeddings",
                    "/v1beta/models/x:embedContent",
                ),
            ),
            (
                Method::POST,
                "/upload/v1beta/files",
                other(Dialect::Gemini, "files", "/upload/v1beta/files"),
            ),
            (
                Method::POST,
                "/kimi/v1/chat/completions",
                generate(Dialect::Kimi, false, None),
            ),
            (
                Method::POST,
                "/copilot/chat/completions",
                generate(Dialect::Copilot, false, None),
            ),
            (Method::GET, "/v1/files/../models", Route::Nothing),
            (Method::GET, "/v1/files/%2e%2e/models", Route::Nothing),
            (Method::GET, "/v1/files//x", Route::Nothing),
        ]);
    }
}
