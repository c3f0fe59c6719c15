//! Values of environment variables, among which keys are.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of an environment variable that a program is given. It is not shown in passing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EnvValue(String);

impl EnvValue {
    /// The value itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Variables as a program gets them.
    #[must_use]
    pub fn exposed(variables: &BTreeMap<String, Self>) -> BTreeMap<String, String> {
        let exposed = |(name, value): (&String, &Self)| (name.clone(), value.0.clone());
        variables.iter().map(exposed).collect()
    }
}

impl From<String> for EnvValue {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
