//! Upstreams that the client sets, for as long as it is connected.
//!
//! The operator's upstreams are providers under their names: a client may point one elsewhere or switch it off.
//! Besides them there is `editor`, which is nobody's until the client sets it. While it is set all requests to
//! models go there, because a client that routes its traffic wants to see all of it.

use std::collections::{BTreeMap, HashMap};

use abp_backend_acp::protocol::schema::{
    ListProvidersResponse, LlmProtocol, ProviderCurrentConfig, ProviderInfo, SetProviderRequest,
};
use abp_config::{EnvValue, UpstreamConfig};
use abp_dialect::Dialect;

/// The provider that only a client sets.
const EDITOR: &str = "editor";
/// Headers that carry a key.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// The operator's upstreams, and what the client changed about them.
#[derive(Debug, Clone)]
pub(crate) struct Providers {
    configured: BTreeMap<String, UpstreamConfig>,
    /// `None` is one that was switched off.
    changed: BTreeMap<String, Option<UpstreamConfig>>,
}

impl Providers {
    pub(crate) fn new(configured: BTreeMap<String, UpstreamConfig>) -> Self {
        Self {
            configured,
            changed: BTreeMap::new(),
        }
    }

    /// The upstreams that requests go to.
    pub(crate) fn upstreams(&self) -> BTreeMap<String, UpstreamConfig> {
        if let Some(Some(editor)) = self.changed.get(EDITOR) {
            return BTreeMap::from([(EDITOR.to_owned(), editor.clone())]);
        }
        let mut upstreams = self.configured.clone();
        for (id, change) in &self.changed {
            match change {
                Some(upstream) => drop(upstreams.insert(id.clone(), upstream.clone())),
                None => drop(upstreams.remove(id)),
            }
        }
        let names: Vec<String> = upstreams.keys().cloned().collect();
        for upstream in upstreams.values_mut() {
            upstream.fallback.retain(|name| names.contains(name));
        }
        upstreams
    }

    pub(crate) fn list(&self) -> ListProvidersResponse {
        let used = self.upstreams();
        let ids = self.configured.keys().map(String::as_str);
        let infos = ids.filter(|id| *id != EDITOR).chain([EDITOR]).map(|id| {
            let current = used.get(id).map(|upstream| {
                ProviderCurrentConfig::new(protocol(upstream.dialect), &*upstream.base_url)
            });
            let supported = Dialect::ALL.iter().map(|dialect| protocol(*dialect));
            ProviderInfo::new(id.to_owned(), supported.collect::<Vec<_>>(), false, current)
        });
        ListProvidersResponse::new(infos.collect())
    }

    /// Points a provider at an address.
    ///
    /// # Errors
    /// Says what cannot be used.
    pub(crate) fn set(&mut self, request: SetProviderRequest) -> Result<(), String> {
        let id = self.known(&request.provider_id.0)?;
        let dialects = Dialect::ALL.iter().copied();
        let mut dialects = dialects.filter(|dialect| protocol(*dialect) == request.api_type);
        let dialect = dialects
            .next()
            .ok_or_else(|| format!("the protocol {:?} is not supported", request.api_type))?;
        let mut upstream = match self.configured.get(&id) {
            Some(configured) => configured.clone(),
            None => UpstreamConfig::new(dialect, String::new()),
        };
        upstream.dialect = dialect;
        upstream.base_url = request.base_url;
        (upstream.api_key_env, upstream.api_key_file) = (None, None);
        upstream.given_key = key(&request.headers)?.map(EnvValue::from);
        self.changed.insert(id, Some(upstream));
        Ok(())
    }

    /// Switches a provider off.
    ///
    /// # Errors
    /// Says which there are.
    pub(crate) fn disable(&mut self, id: &str) -> Result<(), String> {
        let id = self.known(id)?;
        self.changed.insert(id, None);
        Ok(())
    }

    fn known(&self, id: &str) -> Result<String, String> {
        if id == EDITOR || self.configured.contains_key(id) {
            return Ok(id.to_owned());
        }
        let names = self.configured.keys().map(String::as_str);
        let names: Vec<&str> = names.chain([EDITOR]).collect();
        Err(format!(
            "no provider is named {id:?}; there are {}",
            names.join(", ")
        ))
    }
}

/// The key in the headers of a provider.
fn key(headers: &HashMap<String, String>) -> Result<Option<String>, String> {
    let mut key = None;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if !KEY_HEADERS.contains(&name.as_str()) || key.is_some() {
            return Err(format!(
                "the header {name:?} cannot be sent to an upstream; one key can, as authorization or x-api-key"
            ));
        }
        let value = value.trim();
        key = Some(value.strip_prefix("Bearer ").unwrap_or(value).to_owned());
    }
    Ok(key)
}

/// A dialect as the protocol names it. Names that begin with `_` are free to be used.
fn protocol(dialect: Dialect) -> LlmProtocol {
    match dialect {
        Dialect::OpenAi => LlmProtocol::OpenAi,
        Dialect::Claude => LlmProtocol::Anthropic,
        other => LlmProtocol::Other(format!("_{other}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn providers() -> Providers {
        let mut main = UpstreamConfig::new(Dialect::Claude, "https://example.org".to_owned());
        main.api_key_env = Some("KEY".to_owned());
        main.fallback = vec!["other".to_owned()];
        let other = UpstreamConfig::new(Dialect::Gemini, "https://example.com".to_owned());
        Providers::new(BTreeMap::from([
            ("main".to_owned(), main),
            ("other".to_owned(), other),
        ]))
    }

    fn set(providers: &mut Providers, request: Value) -> Result<(), String> {
        providers.set(serde_json::from_value(request).unwrap())
    }

    #[test]
    fn a_provider_is_pointed_elsewhere_without_the_operators_key() {
        let mut providers = providers();
        let request = json!({
            "providerId": "main", "apiType": "openai", "baseUrl": "https://gateway.example.org/v1",
            "headers": {"Authorization": "Bearer secret"},
        });
        set(&mut providers, request).unwrap();
        providers.disable("other").unwrap();
        let used = providers.upstreams();
        let main = &used["main"];
        assert_eq!(main.base_url, "https://gateway.example.org/v1");
        assert_eq!((main.dialect, &main.api_key_env), (Dialect::OpenAi, &None));
        assert_eq!(main.given_key, Some(EnvValue::from("secret".to_owned())));
        assert!(main.fallback.is_empty() && used.len() == 1);
        let listed = serde_json::to_value(providers.list()).unwrap();
        assert!(!listed.to_string().contains("secret"), "{listed}");
        let current: Vec<&Value> = listed["providers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|provider| &provider["current"]["baseUrl"])
            .collect();
        let expected = [
            json!("https://gateway.example.org/v1"),
            Value::Null,
            Value::Null,
        ];
        assert_eq!(current, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_a_provider_cannot_be_is_refused_by_name() {
        let cases = [
            (json!({"providerId": "nobody"}), "nobody"),
            (json!({"apiType": "bedrock"}), "Bedrock"),
            (json!({"headers": {"x-team": "a"}}), "x-team"),
            (
                json!({"headers": {"x-api-key": "a", "api-key": "b"}}),
                "api-key",
            ),
        ];
        for (change, word) in cases {
            let mut request = json!({
                "providerId": "editor", "apiType": "_gemini", "baseUrl": "https://example.org",
            });
            for (name, value) in change.as_object().unwrap() {
                request[name] = value.clone();
            }
            let refused = set(&mut providers(), request).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        assert!(providers().disable("nobody").is_err());
    }
}
