//! The way of a run's agent to models: an address and a key that are there as long as the run is.

use std::fmt::Debug;
use std::time::Duration;

use abp_core::{AgentEventKind, MicroUsd, RunExchange, UsageNormalized};
use abp_error::{AbpError, ErrorCode};
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{BoxFuture, Completion, Emission, OpenSpec, RunEnd};

/// The lifetime of a run's key where nothing revokes it.
const KEY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A gateway that gives each run a key of its own.
pub trait ModelGateway: Debug + Send + Sync {
    /// Makes the key of a run.
    fn open(&self, grant: ModelGrant) -> BoxFuture<'_, Result<RunModels, AbpError>>;
}

/// The limits of a run's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelGrant {
    /// The run.
    pub run_id: Uuid,
    /// The most that its exchanges may cost together; `None` is no limit.
    pub budget: Option<MicroUsd>,
    /// The time after which the key is refused, even where nothing revoked it.
    pub lifetime: Duration,
}

impl ModelGrant {
    /// The limits of the run that a backend is opened for.
    #[must_use]
    pub fn of(spec: &OpenSpec) -> Self {
        Self {
            run_id: spec.run_id,
            budget: spec.budget,
            lifetime: KEY_LIFETIME,
        }
    }
}

/// The models of a run under way. Dropping it revokes the key.
#[derive(Debug)]
pub struct RunModels {
    /// The gateway's address, without a path.
    pub url: String,
    /// The key of the run.
    pub key: SecretString,
    /// The exchanges of the key, each when it ended.
    pub exchanges: mpsc::UnboundedReceiver<MeasuredExchange>,
    /// Revokes the key when it is dropped; `exchanges` ends then.
    pub revoke: oneshot::Sender<()>,
}

/// An exchange that the gateway carried for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredExchange {
    /// The exchange as a receipt lists it.
    pub exchange: RunExchange,
    /// The usage that the gateway read from the upstream's answer.
    pub usage: UsageNormalized,
    /// The error code of an exchange that the gateway refused or could not carry.
    pub error_code: Option<String>,
}

impl RunModels {
    /// Revokes the key, and returns the exchanges that were not taken yet.
    pub async fn close(self) -> Vec<MeasuredExchange> {
        let Self {
            mut exchanges,
            revoke,
            ..
        } = self;
        drop(revoke);
        let mut rest = Vec::new();
        while let Some(exchange) = exchanges.recv().await {
            rest.push(exchange);
        }
        rest
    }
}

/// The exchanges of a run's key so far, and what they add up to.
#[derive(Debug, Default)]
pub struct MeasuredModels {
    exchanges: Vec<RunExchange>,
    usage: UsageNormalized,
    model: Option<String>,
    is_answered: bool,
    /// The error of the last request that was not answered.
    last_error: Option<String>,
}

impl MeasuredModels {
    /// Whether there was no exchange yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Takes an exchange into account.
    ///
    /// # Errors
    /// Fails where the budget did not allow the exchange: the run is to end.
    pub fn add(&mut self, measured: MeasuredExchange) -> Result<(), AbpError> {
        let MeasuredExchange {
            exchange,
            usage,
            error_code,
        } = measured;
        let is_success = exchange
            .status
            .is_some_and(|status| (200..300).contains(&status));
        let is_over_budget = error_code.as_deref() == Some(ErrorCode::BudgetExceeded.as_str());
        match error_code {
            None if is_success => self.is_answered = true,
            None => self.last_error = exchange.status.map(|status| format!("status {status}")),
            Some(code) => self.last_error = Some(code),
        }
        self.add_usage(&usage);
        self.model = exchange.model.clone().or(self.model.take());
        self.exchanges.push(exchange);
        if is_over_budget {
            let message =
                "the gateway refused a request: what is left of the run's budget does not cover it";
            return Err(AbpError::new(ErrorCode::BudgetExceeded, message));
        }
        Ok(())
    }

    fn add_usage(&mut self, usage: &UsageNormalized) {
        let add = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        };
        let total = &mut self.usage;
        add(&mut total.input_tokens, usage.input_tokens);
        add(&mut total.output_tokens, usage.output_tokens);
        add(&mut total.cache_read_tokens, usage.cache_read_tokens);
        add(&mut total.cache_write_tokens, usage.cache_write_tokens);
        add(&mut total.request_units, usage.request_units);
    }

    /// The event that tells of the usage so far.
    #[must_use]
    pub fn event(&self) -> Emission {
        let model = self.model.as_ref();
        Emission {
            kind: AgentEventKind::UsageUpdated {
                usage: self.usage.clone(),
            },
            ext: model.map(|model| [("model".to_owned(), json!(model))].into()),
        }
    }

    /// The end of the run with what was measured. An agent none of whose requests was answered did not do its
    /// work: some say they did all the same.
    #[must_use]
    pub fn complete(self, end: RunEnd) -> RunEnd {
        let result = match end.result {
            Ok(Completion::Whole) => self.check().map(|()| Completion::Whole),
            other => other,
        };
        RunEnd {
            result,
            model: self.model,
            exchanges: self.exchanges,
            ..end
        }
    }

    fn check(&self) -> Result<(), AbpError> {
        let Some(last) = self.last_error.as_deref().filter(|_| !self.is_answered) else {
            return Ok(());
        };
        let count = self.exchanges.len();
        let code = last.parse().unwrap_or(ErrorCode::BackendBrokenAnswer);
        let message = format!(
            "none of the agent's {count} requests to a model was answered; the last ended with {last}"
        );
        Err(AbpError::new(code, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(status: u16, code: Option<ErrorCode>) -> MeasuredExchange {
        MeasuredExchange {
            exchange: RunExchange {
                id: None,
                upstream: "vendor".to_owned(),
                model: Some("m".to_owned()),
                request_sha256: "00".to_owned(),
                response_sha256: None,
                status: Some(status),
                fidelity: None,
            },
            usage: UsageNormalized {
                input_tokens: Some(3),
                ..UsageNormalized::default()
            },
            error_code: code.map(|code| code.as_str().to_owned()),
        }
    }

    fn ended(exchanges: &[MeasuredExchange]) -> RunEnd {
        let mut models = MeasuredModels::default();
        for exchange in exchanges {
            drop(models.add(exchange.clone()));
        }
        models.complete(RunEnd::completed())
    }

    #[test]
    fn an_agent_without_an_answer_did_not_do_its_work() {
        let refused = exchange(503, Some(ErrorCode::BackendUnavailable));
        let cases: [(&[MeasuredExchange], Option<ErrorCode>); 4] = [
            (&[], None),
            (&[exchange(200, None)], None),
            (
                std::slice::from_ref(&refused),
                Some(ErrorCode::BackendUnavailable),
            ),
            (&[exchange(500, None)], Some(ErrorCode::BackendBrokenAnswer)),
        ];
        for (exchanges, expected) in cases {
            let end = ended(exchanges);
            assert_eq!(end.result.err().map(|error| error.code()), expected);
            assert_eq!(end.exchanges.len(), exchanges.len());
        }
        let end = ended(&[exchange(200, None), refused]);
        assert!(matches!(end.result, Ok(Completion::Whole)), "{end:?}");
    }

    #[test]
    fn a_refusal_for_the_budget_ends_the_run_and_usage_adds_up() {
        let mut models = MeasuredModels::default();
        models.add(exchange(200, None)).unwrap();
        models.add(exchange(200, None)).unwrap();
        let AgentEventKind::UsageUpdated { usage } = models.event().kind else {
            panic!("an event of usage");
        };
        assert_eq!(usage.input_tokens, Some(6));
        let refused = models.add(exchange(402, Some(ErrorCode::BudgetExceeded)));
        assert_eq!(refused.unwrap_err().code(), ErrorCode::BudgetExceeded);
    }
}
