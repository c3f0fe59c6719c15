//! The values that a sidecar was given in secret.

use abp_error::{AbpError, AbpErrorDto};
use abp_stream::Redactor;
use secrecy::{ExposeSecret as _, SecretString};

/// Values that no error and no record may hold.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    values: Vec<SecretString>,
}

impl Secrets {
    /// These values.
    #[must_use]
    pub fn new(values: Vec<SecretString>) -> Self {
        Self { values }
    }

    /// All of them.
    #[must_use]
    pub fn to_vec(&self) -> Vec<SecretString> {
        self.values.clone()
    }

    /// Adds a value.
    pub fn add(&mut self, value: &str) {
        self.values.push(value.to_owned().into());
    }

    /// The error without them, in its message, context and causes.
    #[must_use]
    pub fn redact(&self, error: AbpError) -> AbpError {
        let redactor = Redactor::new(self.values.iter().map(SecretString::expose_secret));
        let Ok(mut value) = serde_json::to_value(error.to_dto()) else {
            return AbpError::new(error.code(), "the sidecar failed");
        };
        if !redactor.redact_value(&mut value) {
            return error;
        }
        match serde_json::from_value::<AbpErrorDto>(value) {
            Ok(redacted) => redacted.into(),
            // Only texts changed, so it reads back; were it not so, nothing of it may pass.
            Err(_) => AbpError::new(error.code(), "the sidecar failed"),
        }
    }
}
