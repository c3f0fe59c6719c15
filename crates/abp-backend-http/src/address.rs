//! Where a vendor is: the base URL, read once, and the address of each operation below it.

use abp_backend_core::{ModelCall, ModelOperation, StoredAction, UpstreamError};
use abp_dialect::{Dialect, WireFamily};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

/// Everything but RFC 3986's unreserved characters.
pub(crate) const OUTSIDE_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The part of a base URL that names a project of Vertex AI, whose models are right below it.
const PROJECTS: &str = "/projects/";

/// Versions of an API that a base URL may end in.
const VERSIONS: [&str; 2] = ["/v1", "/v1beta"];

/// A checked base URL. Host header, TLS and connection all use the one host it names.
#[derive(Debug)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    /// The path, without a slash at its end.
    path: String,
    /// How much of the path is left without a version at its end.
    unversioned: usize,
}

impl Address {
    /// Reads a base URL.
    ///
    /// # Errors
    /// Says what is wrong with it, without repeating it: it may hold a password.
    pub(crate) fn parse(base_url: &str) -> Result<Self, &'static str> {
        // Parsers disagree about these, or drop them silently.
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
        if base_url.contains(odd) {
            return Err("holds white space, a control character or a backslash");
        }
        let url = Url::parse(base_url).map_err(|_| "is no URL")?;
        let scheme = match url.scheme() {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return Err("must begin with http:// or https://"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("holds a user name or a password; configure a key instead");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("holds a query or a fragment");
        }
        let (_, after_scheme) = base_url.split_once("://").ok_or("is no URL")?;
        if after_scheme.starts_with('/') {
            return Err("names no host");
        }
        let host = url.host_str().ok_or("names no host")?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let authority = Authority::try_from(authority).map_err(|_| "names no usable host")?;
        let path = url.path().trim_end_matches('/').to_owned();
        let version = VERSIONS.iter().find(|version| path.ends_with(**version));
        let unversioned = path.len() - version.map_or(0, |version| version.len());
        Ok(Self {
            scheme,
            authority,
            path,
            unversioned,
        })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The address without its path.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The host and the port that are connected to, as rules of a policy are judged on.
    pub(crate) fn host_and_port(&self) -> String {
        let usual = if self.is_https() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(usual);
        format!("{}:{port}", self.authority.host())
    }

    /// The value of the Host header.
    pub(crate) fn host(&self) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
        HeaderValue::from_str(self.authority.as_str())
    }

    /// The path that everything is below, without a slash at its end.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the host is this machine, by its address.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.authority.host().trim_matches(['[', ']']);
        let address = host.parse::<std::net::IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    }

    /// The path below the origin, which is never empty.
    pub(crate) fn request_path(&self) -> &str {
        if self.path.is_empty() {
            "/"
        } else {
            &self.path
        }
    }

    /// The method and the path below the origin of a call, with its query.
    ///
    /// # Errors
    /// Fails where the vendor has no such operation, or a name cannot be part of an address.
    pub(crate) fn route(
        &self,
        call: &ModelCall,
        query: Option<&str>,
    ) -> Result<(Method, Uri), UpstreamError> {
        let mut path = String::with_capacity(96);
        let method = self.push_path(&mut path, call)?;
        if let Some(query) = query {
            path.push('?');
            path.push_str(query);
        }
        let unusable = |_| UpstreamError::Unaskable("the address cannot be written".to_owned());
        let path = PathAndQuery::try_from(path).map_err(unusable)?;
        Ok((method, Uri::from(path)))
    }

    fn push_path(&self, path: &mut String, call: &ModelCall) -> Result<Method, UpstreamError> {
        let unversioned = self.path.get(..self.unversioned).unwrap_or_default();
        if let ModelOperation::Other(other) = &call.operation {
            match call.dialect.family() {
                WireFamily::Messages => path.extend([unversioned, "/v1"]),
                WireFamily::GenerateContent if self.path.contains(PROJECTS) => {
                    return Err(not_offered(call.dialect));
                }
                WireFamily::GenerateContent => path.push_str(unversioned),
                _ => path.push_str(&self.path),
            }
            path.push_str(&other.path);
            return Ok(other.method.clone());
        }
        match (call.dialect.family(), &call.operation) {
            (WireFamily::Chat, ModelOperation::Generate { .. }) => {
                path.extend([self.path.as_str(), "/chat/completions"]);
            }
            (WireFamily::Responses, operation) => {
                path.extend([self.path.as_str(), "/responses"]);
                return push_response(path, operation);
            }
            (WireFamily::Messages, ModelOperation::Generate { .. }) => {
                path.extend([unversioned, "/v1/messages"]);
            }
            (WireFamily::Messages, ModelOperation::CountTokens) => {
                path.extend([unversioned, "/v1/messages/count_tokens"]);
            }
            (WireFamily::GenerateContent, ModelOperation::Generate { stream }) => {
                self.push_gemini_base(path);
                push_model(path, &call.model)?;
                path.push_str(if *stream {
                    ":streamGenerateContent"
                } else {
                    ":generateContent"
                });
            }
            (WireFamily::GenerateContent, ModelOperation::CountTokens) => {
                self.push_gemini_base(path);
                push_model(path, &call.model)?;
                path.push_str(":countTokens");
            }
            _ => return Err(not_offered(call.dialect)),
        }
        Ok(Method::POST)
    }

    /// Everything in front of `/models`: the version of the API, or a project of Vertex AI, which comes
    /// after its version.
    fn push_gemini_base(&self, path: &mut String) {
        if self.path.contains(PROJECTS) {
            path.push_str(&self.path);
        } else {
            path.push_str(self.path.get(..self.unversioned).unwrap_or_default());
            path.push_str("/v1beta");
        }
    }
}

fn not_offered(dialect: Dialect) -> UpstreamError {
    UpstreamError::Unaskable(format!("{} has no such operation", dialect.label()))
}

fn push_response(path: &mut String, operation: &ModelOperation) -> Result<Method, UpstreamError> {
    Ok(match operation {
        ModelOperation::Generate { .. } => Method::POST,
        ModelOperation::CountTokens => {
            path.push_str("/input_tokens");
            Method::POST
        }
        ModelOperation::Stored { id, action } => {
            push_segment(path, id)?;
            match action {
                StoredAction::Get => Method::GET,
                StoredAction::Delete => Method::DELETE,
                StoredAction::Cancel => {
                    path.push_str("/cancel");
                    Method::POST
                }
                StoredAction::InputItems => {
                    path.push_str("/input_items");
                    Method::GET
                }
            }
        }
        ModelOperation::Other(_) => return Err(not_offered(Dialect::Codex)),
    })
}

/// A model is one segment below `/models`, unless its name is a path of its own, such as
/// `publishers/x/models/y`.
fn push_model(path: &mut String, model: &str) -> Result<(), UpstreamError> {
    if !model.contains('/') {
        path.push_str("/models");
    }
    model
        .split('/')
        .try_for_each(|segment| push_segment(path, segment))
}

/// Whatever the segment holds, it stays one segment.
fn push_segment(path: &mut String, segment: &str) -> Result<(), UpstreamError> {
    // Servers take these for a step up or for nothing, even where they are encoded.
    if matches!(segment, "" | "." | "..") {
        let problem = "a model or an id whose name cannot be part of an address";
        return Err(UpstreamError::Unaskable(problem.to_owned()));
    }
    path.push('/');
    path.extend(utf8_percent_encode(segment, OUTSIDE_SEGMENT));
    Ok(())
}

#[cfg(test)]
mod tests;
