//! The table of control routes.
//!
//! A [`RouteRow`] names everything about one address: method, path, scope, the types of its query, body and
//! answers, and its handler. The server is made from the rows, and so is the OpenAPI document: the types
//! that are documented are the types that the handler takes and returns.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use abp_gateway::Refusal;
use abp_gateway_http::{BodyRule, ExtraCall, ExtraRoute, HttpReply};
use abp_store::KeyScope;
use http::{HeaderMap, Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, json_reply};
use crate::face::Face;
use crate::query::NoQuery;

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<HttpReply, Refusal>> + Send>>;
type KeyedHandler = Arc<dyn Fn(Call) -> HandlerFuture + Send + Sync>;

/// Answers a request.
enum Handler {
    /// For callers with a key.
    Keyed(KeyedHandler),
    /// For everybody: the headers are all it gets.
    Open(fn(Arc<Face>, HeaderMap) -> HandlerFuture),
}

/// One address of the control plane.
pub(crate) struct RouteRow {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) scope: KeyScope,
    /// The name of the operation in generated clients.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaOf>,
    /// Request headers with a meaning of their own: name and description.
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) request: RequestDoc,
    pub(crate) answers: Vec<AnswerDoc>,
    handler: Handler,
}

/// The body that a route takes.
#[derive(Clone, Copy)]
pub(crate) enum RequestDoc {
    Nothing,
    Json(SchemaOf),
    /// Bytes, at most so many.
    Bytes(u64),
    /// The connection becomes a WebSocket.
    Upgrade,
}

/// An answer that a route may give, errors aside.
pub(crate) struct AnswerDoc {
    pub(crate) status: StatusCode,
    pub(crate) description: &'static str,
    /// Media types with the schemas of their content.
    pub(crate) content: Vec<(&'static str, SchemaOf)>,
}

/// Makes the schema of a type by its definition.
pub(crate) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of a text, such as a patch or a stream of events.
pub(crate) fn text_schema(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<String>()
}

impl RouteRow {
    fn new(
        method: Method,
        path: &'static str,
        scope: KeyScope,
        id: &'static str,
        summary: &'static str,
        handler: KeyedHandler,
    ) -> Self {
        Self {
            method,
            path,
            scope,
            id,
            summary,
            query: None,
            headers: Vec::new(),
            request: RequestDoc::Nothing,
            answers: Vec::new(),
            handler: Handler::Keyed(handler),
        }
    }

    /// A GET with a typed query and a typed JSON answer.
    pub(crate) fn get<Q, R, F>(
        path: &'static str,
        scope: KeyScope,
        id: &'static str,
        summary: &'static str,
        handler: fn(Call, Q) -> F,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema,
        F: Future<Output = Result<R, Refusal>> + Send + 'static,
    {
        let answered: KeyedHandler = Arc::new(move |call: Call| {
            let query = call.query::<Q>();
            Box::pin(async move { json_reply(StatusCode::OK, &handler(call, query?).await?) })
        });
        let mut row = Self::new(Method::GET, path, scope, id, summary, answered);
        row.query = Some(schema_of::<Q>);
        row.answers_json::<R>(StatusCode::OK, "the answer")
    }

    /// A request with a typed JSON body and a typed JSON answer.
    pub(crate) fn post<B, R, F>(
        path: &'static str,
        scope: KeyScope,
        id: &'static str,
        summary: &'static str,
        handler: fn(Call, B) -> F,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema,
        F: Future<Output = Result<R, Refusal>> + Send + 'static,
    {
        let answered: KeyedHandler = Arc::new(move |call: Call| {
            let body = call.query::<NoQuery>().and_then(|_| call.body::<B>());
            Box::pin(async move { json_reply(StatusCode::OK, &handler(call, body?).await?) })
        });
        let mut row = Self::new(Method::POST, path, scope, id, summary, answered);
        row.request = RequestDoc::Json(schema_of::<B>);
        row.answers_json::<R>(StatusCode::OK, "the answer")
    }

    /// A DELETE with a typed JSON answer.
    pub(crate) fn delete<R, F>(
        path: &'static str,
        scope: KeyScope,
        id: &'static str,
        summary: &'static str,
        handler: fn(Call, NoQuery) -> F,
    ) -> Self
    where
        R: Serialize + JsonSchema,
        F: Future<Output = Result<R, Refusal>> + Send + 'static,
    {
        let mut row = Self::get::<NoQuery, R, F>(path, scope, id, summary, handler);
        row.method = Method::DELETE;
        row
    }

    /// A request whose handler makes the answer itself; the row says what it takes and gives.
    pub(crate) fn raw<F>(
        method: Method,
        path: &'static str,
        scope: KeyScope,
        id: &'static str,
        summary: &'static str,
        handler: fn(Call) -> F,
    ) -> Self
    where
        F: Future<Output = Result<HttpReply, Refusal>> + Send + 'static,
    {
        let answered: KeyedHandler = Arc::new(move |call: Call| Box::pin(handler(call)));
        Self::new(method, path, scope, id, summary, answered)
    }

    /// Lets callers without a key ask. The handler has to find another reason to trust them.
    pub(crate) fn open(mut self, handler: fn(Arc<Face>, HeaderMap) -> HandlerFuture) -> Self {
        self.handler = Handler::Open(handler);
        self
    }

    /// Whether callers without a key may ask.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.handler, Handler::Open(_))
    }

    pub(crate) fn takes_query<Q: JsonSchema>(mut self) -> Self {
        self.query = Some(schema_of::<Q>);
        self
    }

    pub(crate) fn takes_header(mut self, name: &'static str, about: &'static str) -> Self {
        self.headers.push((name, about));
        self
    }

    pub(crate) fn takes(mut self, request: RequestDoc) -> Self {
        self.request = request;
        self
    }

    pub(crate) fn answers_json<T: JsonSchema>(
        self,
        status: StatusCode,
        description: &'static str,
    ) -> Self {
        self.answers(status, description, "application/json", schema_of::<T>)
    }

    /// Documents an answer; a second media type of the same status joins the first.
    pub(crate) fn answers(
        mut self,
        status: StatusCode,
        description: &'static str,
        media_type: &'static str,
        schema: SchemaOf,
    ) -> Self {
        match self.answers.iter_mut().find(|known| known.status == status) {
            Some(known) => known.content.push((media_type, schema)),
            None => self.answers.push(AnswerDoc {
                status,
                description,
                content: vec![(media_type, schema)],
            }),
        }
        self
    }

    /// Documents an answer without a body.
    pub(crate) fn answers_nothing(mut self, status: StatusCode, description: &'static str) -> Self {
        let content = Vec::new();
        self.answers.push(AnswerDoc {
            status,
            description,
            content,
        });
        self
    }

    /// The row of the server: checks the scope, then calls the handler.
    pub(crate) fn serve(self, face: &Arc<Face>) -> ExtraRoute {
        let body = match self.request {
            RequestDoc::Nothing => BodyRule::Nothing,
            RequestDoc::Json(_) => BodyRule::Json,
            RequestDoc::Bytes(limit) => BodyRule::Upload(limit),
            RequestDoc::Upgrade => BodyRule::Upgrade,
        };
        let face = Arc::clone(face);
        let Self { scope, handler, .. } = self;
        let handler = match handler {
            Handler::Keyed(handler) => handler,
            Handler::Open(handler) => {
                let methods = methods(&self.method);
                return ExtraRoute::open(self.path, methods, move |headers| {
                    handler(Arc::clone(&face), headers)
                });
            }
        };
        ExtraRoute::new(
            self.path,
            methods(&self.method),
            body,
            move |call: ExtraCall| {
                let call = Call::new(Arc::clone(&face), call);
                let answered = call.caller.require(scope).map(|()| handler(call));
                Box::pin(async move { answered?.await })
            },
        )
    }
}

/// A list that lives as long as the program, for one of the methods that rows have.
fn methods(method: &Method) -> &'static [Method] {
    match *method {
        Method::POST => &[Method::POST],
        Method::PUT => &[Method::PUT],
        Method::DELETE => &[Method::DELETE],
        _ => &[Method::GET],
    }
}
