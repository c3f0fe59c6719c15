//! Credentials: how a request proves who asks.

use std::sync::Arc;

use abp_backend_core::UpstreamError;
use abp_error::{AbpError, ErrorCode};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::HttpUpstreamSpec;
use crate::connect::Connector;
use crate::service_account::ServiceAccount;
use crate::sigv4::{AwsKeys, SigningScope};
use crate::token::{CredentialCache, CredentialMaker};

/// The way in which requests to an upstream are authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UpstreamAuth {
    /// As the dialect's own vendor wants it: `x-api-key`, `x-goog-api-key`, or a bearer token.
    #[default]
    Dialect,
    /// A bearer token, whatever the dialect.
    Bearer,
    /// A header of this name that holds the key and nothing else.
    Header(HeaderName),
    /// A parameter of the address.
    Query(String),
    /// A token that Google gives to a service account, whose JSON file is the key. A key that a command
    /// prints is such a token itself.
    Vertex,
    /// AWS Signature Version 4. The key is JSON as AWS's `credential_process` has it.
    Bedrock {
        /// The region that is asked.
        region: String,
        /// The service that the signature is for.
        service: String,
    },
}

/// A credential, in every form it is sent in.
pub(crate) struct Credential {
    secret: SecretString,
    /// `Bearer` and the secret.
    pub(crate) bearer: HeaderValue,
    /// The secret alone.
    pub(crate) plain: HeaderValue,
    /// The keys that requests are signed with, instead of showing one.
    pub(crate) aws: Option<AwsKeys>,
    /// When it stops being valid, where that is known.
    pub(crate) expires: Option<Timestamp>,
}

impl Credential {
    /// A key or a token.
    ///
    /// # Errors
    /// Fails where it is empty or holds what no header can carry.
    pub(crate) fn new(secret: &str) -> Result<Self, String> {
        if secret.is_empty() {
            return Err("the key is empty".to_owned());
        }
        let value = |text: &str| {
            let unusable = "the key holds characters that no header can carry";
            let mut value = HeaderValue::from_str(text).map_err(|_| unusable.to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        Ok(Self {
            bearer: value(&format!("Bearer {secret}"))?,
            plain: value(secret)?,
            secret: secret.into(),
            aws: None,
            expires: None,
        })
    }

    /// Keys of AWS, as `credential_process` prints them.
    ///
    /// # Errors
    /// Fails where the text is none.
    pub(crate) fn of_aws(text: &str) -> Result<Self, String> {
        let keys: PrintedKeys = serde_json::from_str(text).map_err(|_| {
            "the key of an upstream with auth = \"bedrock\" is JSON with AccessKeyId and \
             SecretAccessKey, as `aws configure export-credentials` prints it"
                .to_owned()
        })?;
        let mut credential = Self::new(&keys.secret_access_key)?;
        credential.expires = keys.expiration;
        credential.aws = Some(AwsKeys {
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key.into(),
            session_token: keys.session_token.map(Into::into),
        });
        Ok(credential)
    }

    /// Everything in it that nobody may see.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let session = self.aws.as_ref().and_then(|aws| aws.session_token.clone());
        std::iter::once(self.secret.clone())
            .chain(session)
            .collect()
    }

    /// The key as a parameter of an address.
    pub(crate) fn exposed(&self) -> &str {
        self.secret.expose_secret()
    }
}

/// The form of `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<Timestamp>,
}

/// The credentials of an upstream, and how they are used.
pub(crate) struct Authenticator {
    pub(crate) kind: UpstreamAuth,
    source: CredentialSource,
}

enum CredentialSource {
    /// It is asked without any.
    Open,
    Fixed(Arc<Credential>),
    Made(Box<CredentialCache>),
}

impl Authenticator {
    /// # Errors
    /// Fails where the key is not one of this kind.
    pub(crate) fn new(
        spec: &HttpUpstreamSpec,
        connector: impl FnOnce(bool) -> Result<Connector, AbpError>,
    ) -> Result<Self, AbpError> {
        let invalid = |problem: String| AbpError::new(ErrorCode::ConfigInvalid, problem);
        let read: fn(&str) -> Result<Credential, String> = match &spec.auth {
            UpstreamAuth::Bedrock { .. } => Credential::of_aws,
            _ => Credential::new,
        };
        let source = match (&spec.key_command, &spec.key) {
            (Some(command), _) => {
                let command = command.clone();
                let maker = CredentialMaker::Command { command, read };
                CredentialSource::Made(Box::new(CredentialCache::new(maker)))
            }
            (None, Some(key)) if spec.auth == UpstreamAuth::Vertex => {
                let account = ServiceAccount::read(key, connector)?;
                let maker = CredentialMaker::ServiceAccount(Box::new(account));
                CredentialSource::Made(Box::new(CredentialCache::new(maker)))
            }
            (None, Some(key)) => {
                let credential = read(key.expose_secret()).map_err(invalid)?;
                CredentialSource::Fixed(Arc::new(credential))
            }
            (None, None) => CredentialSource::Open,
        };
        Ok(Self {
            kind: spec.auth.clone(),
            source,
        })
    }

    /// The scope of signatures, where requests are signed.
    pub(crate) fn signing_scope(&self) -> Option<SigningScope> {
        match &self.kind {
            UpstreamAuth::Bedrock { region, service } => Some(SigningScope {
                region: region.clone(),
                service: service.clone(),
            }),
            _ => None,
        }
    }

    /// The credential of the moment, where there is one.
    ///
    /// # Errors
    /// Fails where one is needed and cannot be had.
    pub(crate) async fn credential(&self) -> Result<Option<Arc<Credential>>, UpstreamError> {
        match &self.source {
            CredentialSource::Open => Ok(None),
            CredentialSource::Fixed(credential) => Ok(Some(Arc::clone(credential))),
            CredentialSource::Made(cache) => cache.get().await.map(Some),
        }
    }

    /// Takes note that the vendor refused a credential.
    pub(crate) fn refused(&self, credential: Option<&Arc<Credential>>) {
        if let (CredentialSource::Made(cache), Some(credential)) = (&self.source, credential) {
            cache.forget(credential);
        }
    }

    /// The secrets that a vendor may repeat in an error.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let credentials = match &self.source {
            CredentialSource::Open => Vec::new(),
            CredentialSource::Fixed(credential) => vec![Arc::clone(credential)],
            CredentialSource::Made(cache) => cache.last(),
        };
        let secrets = credentials.iter().flat_map(|one| one.secrets());
        secrets.collect()
    }
}
