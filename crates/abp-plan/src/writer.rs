//! Writing the request of a run for a model.
//!
//! The plan writes it once, to know that it can be written and what is lost. Files of the order's
//! context are read when the run is under way, and an answer may have to be asked for again; the
//! session then has the request written anew with what it knows. Writing is a pure function each time.

use std::sync::Arc;

use abp_core::ir::IrConversation;
use abp_core::{Capability, EmulationReport, Loss, WorkOrder};
use abp_dialect::{Dialect, TargetProfile};
use abp_emulation::EmulationEngine;
use abp_json::Limits;
use abp_translate::{
    ContextFile, Options, Translation, read_request, translate_request_with, write_request,
};

use crate::lower::{judge, loss, tell_of_stops};
use crate::output::{AnswerForm, ask_again, written_schema};
use crate::plan::OnLoss;
use crate::source::Source;
use crate::{Payload, PlanError};

/// Everything that decides what a model is sent.
#[derive(Debug, Clone)]
pub(crate) struct RequestWriter {
    pub(crate) order: Arc<WorkOrder>,
    pub(crate) source: Source,
    pub(crate) backend: String,
    /// The dialect that is written.
    pub(crate) dialect: Dialect,
    pub(crate) profile: TargetProfile,
    /// The model, as the backend's vendor names it.
    pub(crate) model: Option<String>,
    pub(crate) engine: EmulationEngine,
    pub(crate) emulations: Vec<Capability>,
    pub(crate) form: AnswerForm,
    pub(crate) on_loss: OnLoss,
}

/// What is known only when the run is under way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Additions<'a> {
    /// The files of the order's context that could be read.
    pub(crate) files: &'a [ContextFile],
    /// An answer that cannot be used, and why.
    pub(crate) unusable: Option<(&'a str, &'a str)>,
}

/// A written request, and what it took.
pub(crate) struct Written {
    pub(crate) payload: Payload,
    pub(crate) emulation: EmulationReport,
    pub(crate) losses: Vec<Loss>,
}

impl RequestWriter {
    /// Writes the request.
    ///
    /// # Errors
    /// Fails where the model's dialect cannot carry what the order holds.
    pub(crate) fn write(&self, additions: Additions<'_>) -> Result<Written, PlanError> {
        let mut emulation = EmulationReport::default();
        let change = |conversation: &mut IrConversation| {
            emulation = self.engine.apply(&self.emulations, conversation);
            self.form.apply(conversation);
            if let Some((answer, problem)) = additions.unusable {
                ask_again(conversation, answer, problem);
            }
        };
        let done = self.translate(additions.files, change)?;
        tell_of_stops(&done.exchange, &mut emulation);
        judge(self.on_loss, &self.backend, &done.ledger)?;
        let mut losses: Vec<_> = done.ledger.entries().iter().filter_map(loss).collect();
        losses.extend(self.check_schema(&done.output)?);
        Ok(Written {
            payload: Payload::Lowered {
                dialect: self.dialect,
                request: done.output,
                exchange: Box::new(done.exchange),
            },
            emulation,
            losses,
        })
    }

    fn translate(
        &self,
        files: &[ContextFile],
        mut change: impl FnMut(&mut IrConversation),
    ) -> Result<Translation, PlanError> {
        let to = self.dialect;
        let done = match &self.source {
            Source::Vendor { dialect, request } => {
                let mut options = Options {
                    profile: self.profile.clone(),
                    cut_stops: true,
                    ..Options::default()
                };
                // A request in its own dialect is copied member by member unless its model changes,
                // and a new setting would be left out.
                let named = self.source.model();
                if named != self.model || self.form != AnswerForm::Free {
                    options.profile.model.clone_from(&self.model);
                }
                translate_request_with(request.as_bytes(), *dialect, to, &options, change)
            }
            Source::Order | Source::Verbatim { .. } => {
                let mut conversation = self.source.conversation(&self.order, files)?;
                conversation.settings.model = self.model.as_deref().map(Into::into);
                change(&mut conversation);
                write_request(conversation, to, &self.profile)
            }
        };
        done.map_err(|error| PlanError::Lossy {
            backend: self.backend.clone(),
            problem: error.to_string(),
            code: abp_error::AbpError::from(error).code(),
        })
    }

    /// Reads the request back: a schema that was dropped on the way would hold the answer to nothing.
    fn check_schema(&self, request: &str) -> Result<Option<Loss>, PlanError> {
        let AnswerForm::Native(schema) = &self.form else {
            return Ok(None);
        };
        let refused = |problem: String| PlanError::Lossy {
            backend: self.backend.clone(),
            problem,
            code: abp_error::ErrorCode::MappingUnsupportedCapability,
        };
        let written = read_request(request.as_bytes(), self.dialect, &Limits::default());
        let written = written.map_err(|error| refused(error.to_string()))?;
        written_schema(schema, &written).map_err(|problem| refused(problem.to_owned()))
    }
}
