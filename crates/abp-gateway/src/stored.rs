//! Answers that are kept, and can be asked for again.

use std::sync::Arc;

use abp_backend_core::{ModelCall, ModelOperation, StoredAction};
use abp_dialect::Dialect;
use abp_error::{AbpError, ErrorCode};
use abp_store::KeptAnswer;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::ask::{Answer, AnswerBody};
use crate::gateway::{Gateway, Shared};
use crate::listing::list;
use crate::{Admission, Principal, Refusal, headers};

/// The longest that a vendor may say about an answer it keeps.
const LONGEST: usize = 64 << 20;

impl Gateway {
    /// What a caller wants to know of, or do with, an answer that is kept.
    pub async fn stored(
        &self,
        admitted: &Admission,
        id: &str,
        action: StoredAction,
        query: Option<String>,
    ) -> Answer {
        self.shared
            .stored(admitted.principal(), id, action, query)
            .await
            .unwrap_or_else(|problem| problem.answer(Dialect::Codex))
    }
}

impl Shared {
    async fn stored(
        self: &Arc<Self>,
        principal: &Principal,
        id: &str,
        action: StoredAction,
        query: Option<String>,
    ) -> Result<Answer, Refusal> {
        let kept = self.kept_answer(&principal.id, id).await?;
        let Some(kept) = kept else {
            let message = format!("Response with id '{id}' not found.");
            return Err(Refusal::new(ErrorCode::NotFound, message));
        };
        if kept.native {
            return self.ask_vendor(principal, &kept, action, query).await;
        }
        let body = match action {
            StoredAction::Get => kept.answer,
            StoredAction::Delete => {
                self.store.forget_answer(&principal.id, id).await?;
                self.forget_pending(&principal.id, id);
                deleted(id)
            }
            StoredAction::InputItems => list(id, &kept.input_items, query.as_deref())
                .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?,
            StoredAction::Cancel => {
                let message = "Cannot cancel a synchronous response.";
                return Err(Refusal::new(ErrorCode::ValidationFailed, message));
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers::insert(&mut headers, headers::BACKEND, &kept.upstream);
        headers.insert(headers::MODE, HeaderValue::from_static("mapped"));
        Ok(Answer {
            status: StatusCode::OK,
            headers,
            body: AnswerBody::Whole(Bytes::from(body)),
        })
    }

    /// Asks the vendor that keeps the answer itself.
    async fn ask_vendor(
        &self,
        principal: &Principal,
        kept: &KeptAnswer,
        action: StoredAction,
        query: Option<String>,
    ) -> Result<Answer, Refusal> {
        let routes = self.routes();
        let member = routes
            .members
            .iter()
            .find(|member| member.name() == kept.upstream)
            .ok_or_else(|| {
                let message = format!("upstream {} is not configured any more", kept.upstream);
                Refusal::new(ErrorCode::BackendNotFound, message)
            })?;
        let call = ModelCall {
            dialect: Dialect::Codex,
            operation: ModelOperation::Stored {
                id: kept.id.clone(),
                action,
            },
            model: kept.model.clone(),
            query,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let reply = member.upstream.send(call).await.map_err(AbpError::from)?;
        let body = reply.body.collect(LONGEST).await.map_err(AbpError::from)?;
        if action == StoredAction::Delete && reply.status.is_success() {
            self.store.forget_answer(&principal.id, &kept.id).await?;
            self.forget_pending(&principal.id, &kept.id);
        }
        let mut headers = headers::returned(&reply.headers, false);
        headers::insert(&mut headers, headers::BACKEND, &kept.upstream);
        headers.insert(headers::MODE, HeaderValue::from_static("passthrough"));
        Ok(Answer {
            status: reply.status,
            headers,
            body: AnswerBody::Whole(body),
        })
    }
}

fn deleted(id: &str) -> String {
    json!({ "id": id, "object": "response", "deleted": true }).to_string()
}
