//! The OpenAPI document and the page that shows it, both made from the rows.

use abp_error::ErrorBody;
use http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api::{SocketCommand, SocketMessage};
use crate::table::{AnswerDoc, RequestDoc, RouteRow, SchemaOf};

/// The OpenAPI 3.1 document of the rows.
pub(crate) fn document(rows: &[RouteRow]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = reference::<ErrorBody>(&mut generator);
    // Messages of WebSockets have no place among the paths; their schemas are among the components.
    reference::<SocketCommand>(&mut generator);
    reference::<SocketMessage>(&mut generator);
    let mut paths: Map<String, Value> = Map::new();
    for row in rows {
        let path = paths
            .entry(format!("/v1{}", row.path))
            .or_insert_with(|| json!({}));
        path[row.method.as_str().to_ascii_lowercase()] = operation(row, &error, &mut generator);
    }
    let schemas = generator.take_definitions(true);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agent Backplane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs, events, approvals, receipts and keys of an Agent Backplane. The model \
                            endpoints of the vendors are listed by GET /protocol.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of `abp keys create`, or the operator's.",
                },
            },
        },
    });
    simplify(&mut document);
    document
}

/// Writes schemas in the form that generators of clients know: that of anything as `{}` and not as `true`,
/// and a choice of words as one list.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(words) = members.get("oneOf").and_then(choice_of_words) {
                members.remove("oneOf");
                members.insert("type".to_owned(), json!("string"));
                members.insert("enum".to_owned(), Value::Array(words));
            }
            for (key, member) in members.iter_mut() {
                if let ("properties", Value::Object(properties)) = (key.as_str(), &mut *member) {
                    let any = properties.values_mut().filter(|schema| **schema == true);
                    any.for_each(|schema| *schema = json!({}));
                }
                if key == "items" && *member == true {
                    *member = json!({});
                }
                simplify(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The words of a choice in which every alternative is one, or several, written out.
fn choice_of_words(choice: &Value) -> Option<Vec<Value>> {
    let mut words = Vec::new();
    for alternative in choice.as_array()? {
        match (alternative.get("const"), alternative.get("enum")) {
            (Some(word), None) => words.push(word.clone()),
            (None, Some(Value::Array(several))) => words.extend(several.iter().cloned()),
            _ => return None,
        }
    }
    words.iter().all(Value::is_string).then_some(words)
}

fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn operation(row: &RouteRow, error: &Value, generator: &mut SchemaGenerator) -> Value {
    let mut operation = Map::new();
    let mut set = |name: &str, value: Value| drop(operation.insert(name.to_owned(), value));
    set("operationId", json!(row.id));
    set("summary", json!(row.summary));
    if row.is_open() {
        set("description", json!("Needs no key."));
        set("security", json!([]));
    } else {
        let description = format!("Needs the scope `{}`.", row.scope);
        set("description", json!(description));
        set("x-abp-scope", json!(row.scope.as_str()));
    }
    let mut parameters = path_parameters(row.path);
    if let Some(query) = row.query {
        parameters.extend(query_parameters(query));
    }
    for (name, about) in &row.headers {
        parameters.push(json!({
            "name": name,
            "in": "header",
            "required": false,
            "description": about,
            "schema": { "type": "string" },
        }));
    }
    if !parameters.is_empty() {
        set("parameters", Value::Array(parameters));
    }
    let content = match row.request {
        RequestDoc::Nothing | RequestDoc::Upgrade => None,
        RequestDoc::Json(schema) => {
            let schema = schema(generator).to_value();
            Some(json!({ "application/json": { "schema": schema } }))
        }
        RequestDoc::Bytes(limit) => {
            set("x-abp-max-bytes", json!(limit));
            Some(json!({ "application/octet-stream": { "schema": {} } }))
        }
    };
    if let Some(content) = content {
        set(
            "requestBody",
            json!({ "required": true, "content": content }),
        );
    }
    let mut responses = Map::new();
    for answer in &row.answers {
        let status = answer.status.as_str().to_owned();
        responses.insert(status, response(answer, generator));
    }
    let problem = json!({ "application/json": { "schema": error } });
    let description = "an error: its code says what is wrong, its hint what to do";
    responses.insert(
        "default".to_owned(),
        json!({ "description": description, "content": problem }),
    );
    set("responses", Value::Object(responses));
    Value::Object(operation)
}

fn response(answer: &AnswerDoc, generator: &mut SchemaGenerator) -> Value {
    let mut response = Map::new();
    response.insert("description".to_owned(), json!(answer.description));
    let mut content = Map::new();
    for (media_type, schema) in &answer.content {
        let schema = schema(generator).to_value();
        content.insert((*media_type).to_owned(), json!({ "schema": schema }));
    }
    if !content.is_empty() {
        response.insert("content".to_owned(), Value::Object(content));
    }
    if answer.status == StatusCode::ACCEPTED {
        let location = json!({ "description": "the run", "schema": { "type": "string" } });
        response.insert("headers".to_owned(), json!({ "Location": location }));
    }
    Value::Object(response)
}

/// The named segments of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?;
        name.strip_suffix('}')
    });
    names
        .map(|name| {
            let schema = match name {
                "run_id" | "approval_id" | "receipt_id" => {
                    json!({ "type": "string", "format": "uuid" })
                }
                "sha256" => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
                _ => json!({ "type": "string", "minLength": 1 }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect()
}

/// The members of a query's type, each a parameter.
fn query_parameters(query: SchemaOf) -> Vec<Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = query(&mut settings.into_generator()).to_value();
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    properties
        .iter()
        .map(|(name, property)| {
            let mut property = property.clone();
            let mut description = Value::Null;
            if let Some(object) = property.as_object_mut() {
                description = object.remove("description").unwrap_or_default();
                object.remove("default");
            }
            json!({
                "name": name,
                "in": "query",
                "required": is_required(name),
                "description": description,
                "schema": without_null(property),
            })
        })
        .collect()
}

/// A query has no null: what may be absent is not required.
fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type")
        && let Some(several) = kinds.as_array_mut()
    {
        several.retain(|kind| kind != "null");
        if let [only] = several.as_slice() {
            *kinds = only.clone();
        }
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.retain(|choice| choice["type"] != "null");
        if let [only] = choices.as_slice() {
            return only.clone();
        }
    }
    schema
}

/// A page that lists every operation. It loads nothing from anywhere.
pub(crate) fn docs_page(document: &Value) -> String {
    let mut rows = String::new();
    let empty = Map::new();
    for (path, methods) in document["paths"].as_object().unwrap_or(&empty) {
        for (method, operation) in methods.as_object().unwrap_or(&empty) {
            let text = |key: &str| escape(operation[key].as_str().unwrap_or_default());
            rows.push_str(&format!(
                "<tr id=\"{id}\"><td><code>{method}</code></td><td><code>{path}</code></td>\
                 <td><code>{scope}</code></td><td>{summary}<br>{parameters}</td></tr>\n",
                id = text("operationId"),
                method = escape(&method.to_ascii_uppercase()),
                path = escape(path),
                scope = text("x-abp-scope"),
                summary = text("summary"),
                parameters = parameter_list(operation),
            ));
        }
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Agent Backplane: HTTP interface</title><style>\
         body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}}\
         table{{border-collapse:collapse;width:100%}}td,th{{border-bottom:1px solid #ccc;padding:.4rem;\
         text-align:left;vertical-align:top}}small{{color:#555}}</style></head><body>\
         <h1>Agent Backplane: HTTP interface</h1>\
         <p>Send a key as <code>authorization: Bearer KEY</code>. The machine-readable form of this page is \
         <a href=\"/openapi.json\">/openapi.json</a> (OpenAPI 3.1).</p>\
         <table><thead><tr><th>Method</th><th>Path</th><th>Scope</th><th>Purpose</th></tr></thead><tbody>\n\
         {rows}</tbody></table></body></html>\n"
    )
}

fn parameter_list(operation: &Value) -> String {
    let parameters = operation["parameters"].as_array();
    let mut text = String::new();
    for parameter in parameters.into_iter().flatten() {
        let member = |key: &str| escape(parameter[key].as_str().unwrap_or_default());
        text.push_str(&format!(
            "<small><code>{}</code> ({}): {}</small><br>",
            member("name"),
            member("in"),
            member("description"),
        ));
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
