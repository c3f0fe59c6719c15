//! Every control route as its callers and its enemies meet it, taken from the OpenAPI document itself.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::lab::{KEY, Lab, Reply};

/// An operation of the document: method, path with example values, and scope.
struct Operation {
    method: String,
    path: String,
    pattern: String,
    scope: String,
    takes_json: bool,
}

fn document(lab: &Lab) -> Value {
    let reply = lab.call("GET", "", "/openapi.json", "", b"");
    assert_eq!(reply.status, 200, "{}", reply.head);
    reply.json()
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (pattern, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let path = pattern
                .replace("{run_id}", "00000000-0000-7000-8000-000000000000")
                .replace("{approval_id}", "00000000-0000-7000-8000-000000000000")
                .replace("{receipt_id}", "00000000-0000-7000-8000-000000000000")
                .replace("{sha256}", &"0".repeat(64))
                .replace("{key_id}", "key_none")
                .replace("{name}", "work_order");
            assert!(!path.contains('{'), "{path} has a name without an example");
            // The one address for callers without a key: they show a code that a caller with one made.
            if operation["security"] == serde_json::json!([]) {
                assert_eq!(pattern, "/v1/codes/redeem");
                continue;
            }
            found.push(Operation {
                method: method.to_uppercase(),
                path,
                pattern: pattern.clone(),
                scope: operation["x-abp-scope"]
                    .as_str()
                    .expect("a scope")
                    .to_owned(),
                takes_json: operation["requestBody"]["content"]["application/json"].is_object(),
            });
        }
    }
    found
}

fn ask(lab: &Lab, operation: &Operation, key: &str) -> Reply {
    let (headers, body) = match operation.takes_json {
        true => ("content-type: application/json\r\n", "{}"),
        false => ("", ""),
    };
    lab.call(
        &operation.method,
        key,
        &operation.path,
        headers,
        body.as_bytes(),
    )
}

#[test]
fn the_document_is_complete_and_its_references_resolve() {
    let lab = Lab::start(&[]);
    let document = document(&lab);
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().expect("paths").values() {
        for operation in methods.as_object().expect("methods").values() {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "{id} is named twice");
            assert!(operation["responses"]["default"].is_object(), "{id}");
        }
    }
    for route in [
        "submit_run",
        "list_runs",
        "list_run_events",
        "apply_run",
        "answer_approval",
    ] {
        assert!(ids.contains(route), "{route} is missing");
    }
    check_references(&document, &document);
    let page = lab.call("GET", "", "/docs", "", b"");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("submit_run"));
    // Nothing is loaded from anywhere else.
    assert!(!page.text().contains("src="), "{}", page.text());
    assert!(!page.text().contains("http://") && !page.text().contains("https://"));
}

fn check_references(value: &Value, root: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').expect("a local reference");
                assert!(root.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            members
                .values()
                .for_each(|member| check_references(member, root));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(item, root)),
        _ => {}
    }
}

/// A1, A8: without a key, and with a wrong one, nothing is said about what exists.
#[test]
fn a1_every_route_wants_a_key() {
    let lab = Lab::start(&[]);
    let operations = operations(&document(&lab));
    assert!(operations.len() > 25, "{} operations", operations.len());
    for operation in &operations {
        let reply = ask(&lab, operation, "");
        let place = format!("{} {}: {}", operation.method, operation.path, reply.head);
        assert_eq!(reply.status, 401, "{place}");
        assert_eq!(reply.json()["error"]["code"], "UNAUTHENTICATED", "{place}");
        assert!(reply.json()["error"]["hint"].is_string(), "{place}");
    }
}

/// A10: a key does what its scopes say and nothing else, on every route.
#[test]
fn a10_every_route_wants_its_scope() {
    let lab = Lab::start(&[]);
    let none = lab.key("none", &[]);
    for operation in operations(&document(&lab)) {
        let place = format!("{} {}", operation.method, operation.path);
        let refused = ask(&lab, &operation, &none);
        assert_eq!(refused.status, 403, "{place}: {}", refused.text());
        let context = refused.json()["error"]["context"]["scope"].clone();
        assert_eq!(context, operation.scope.as_str(), "{place}");
        let scope = abp_store::KeyScope::from_name(&operation.scope).expect("a scope");
        let able = lab.key("able", &[scope]);
        let reply = ask(&lab, &operation, &able);
        assert_ne!(reply.status, 403, "{place}: {}", reply.text());
        assert_ne!(reply.status, 401, "{place}: {}", reply.text());
        assert!(reply.status < 500, "{place}: {}", reply.text());
    }
}

/// A9: the run of another principal is as unknown as one that does not exist, on every route that names
/// a run.
#[test]
fn a9_runs_of_others_are_unknown_everywhere() {
    let lab = Lab::start(&[]);
    let scopes = abp_store::KeyScope::ALL;
    let scopes: Vec<_> = scopes
        .into_iter()
        .filter(|scope| *scope != abp_store::KeyScope::Admin)
        .collect();
    let owner = lab.key("owner", &scopes);
    let other = lab.key("other", &scopes);
    let run = lab.submit(&owner, r#"{"task":"say hello"}"#);
    lab.wait_for_end(&owner, &run);
    let mut checked = 0;
    for mut operation in operations(&document(&lab)) {
        if !operation.pattern.contains("{run_id}") && !operation.pattern.contains("{receipt_id}") {
            continue;
        }
        let unknown = ask(&lab, &operation, &other);
        operation.path = operation
            .path
            .replace("00000000-0000-7000-8000-000000000000", &run);
        let foreign = ask(&lab, &operation, &other);
        let place = format!("{} {}", operation.method, operation.path);
        assert_eq!(foreign.status, 404, "{place}: {}", foreign.text());
        assert_eq!(foreign.status, unknown.status, "{place}");
        let code = |reply: &Reply| reply.json()["error"]["code"].clone();
        assert_eq!(code(&foreign), code(&unknown), "{place}");
        checked += 1;
    }
    assert!(checked >= 10, "{checked} routes");
    let listed = |key: &str| lab.call("GET", key, "/v1/runs", "", b"").json()["runs"].clone();
    assert_eq!(listed(&owner).as_array().map(Vec::len), Some(1));
    assert_eq!(listed(&other).as_array().map(Vec::len), Some(0));
    assert_eq!(listed(KEY).as_array().map(Vec::len), Some(1));
    let asked = lab.call("GET", &other, "/v1/runs?principal=operator", "", b"");
    assert_eq!(asked.status, 403);
    let proof = format!("/v1/log/proof?run_id={run}");
    assert_eq!(lab.call("GET", &other, &proof, "", b"").status, 404);
    let receipts = lab.call("GET", &other, "/v1/receipts", "", b"").json();
    assert_eq!(receipts["receipts"].as_array().map(Vec::len), Some(0));
}

/// Method, address, body, and the status and place of the refusal.
type WrongRequest = (&'static str, &'static str, &'static str, u16, &'static str);

/// An id that no run has stands for `RUN`.
const WRONG: &[WrongRequest] = &[
    ("GET", "/v1/runs?limit=0", "", 400, "limit"),
    ("GET", "/v1/runs?limit=x", "", 400, "limit"),
    ("GET", "/v1/runs?other=1", "", 400, "other"),
    ("GET", "/v1/runs?state=asleep", "", 400, "state"),
    ("GET", "/v1/runs?cursor=RUN", "", 400, "cursor"),
    ("GET", "/v1/runs?cursor=1", "", 400, "cursor"),
    ("GET", "/v1/exchanges?cursor=%27", "", 400, "cursor"),
    ("GET", "/v1/exchanges?cursor=RUN", "", 400, "cursor"),
    ("GET", "/v1/approvals?cursor=x", "", 400, "cursor"),
    ("GET", "/v1/runs/not-an-id", "", 404, "run_id"),
    ("GET", "/v1/log/consistency?from=99", "", 400, "from"),
    ("POST", "/v1/runs", "{}", 400, ""),
    (
        "POST",
        "/v1/runs",
        r#"{"order":{"task":1}}"#,
        400,
        "/order/task",
    ),
    ("POST", "/v1/runs", TOO_SHORT, 400, "/options/timeout_secs"),
    ("POST", "/v1/runs", ELSEWHERE, 400, "/order/workspace/root"),
    ("POST", "/v1/runs", NO_UPLOAD, 404, "/workspace/uploaded"),
    ("POST", "/v1/keys", r#"{"name":""}"#, 400, "/name"),
    (
        "POST",
        "/v1/keys",
        r#"{"name":"x","scopes":["root"]}"#,
        400,
        "/scopes/0",
    ),
    (
        "POST",
        "/v1/keys",
        r#"{"name":"x","expires_in_secs":0}"#,
        400,
        "/expires_in_secs",
    ),
    ("POST", "/v1/runs?wait=999", r#"{"task":"x"}"#, 400, "wait"),
];
const TOO_SHORT: &str = r#"{"order":{"task":"x"},"options":{"timeout_secs":0}}"#;
const ELSEWHERE: &str = r#"{"order":{"task":"x","workspace":{"root":"/etc"}}}"#;
const NO_UPLOAD: &str = r#"{"order":{"task":"x"},"workspace":{"uploaded":"../../etc"}}"#;

/// Queries and bodies that are wrong are refused with the place.
#[test]
fn wrong_requests_are_refused_with_their_place() {
    let lab = Lab::start(&[]);
    for (method, path, body, status, place) in WRONG {
        let path = path.replace("RUN", "00000000-0000-7000-8000-000000000000");
        let headers = match *body {
            "" => "",
            _ => "content-type: application/json\r\n",
        };
        let reply = lab.call(method, KEY, &path, headers, body.as_bytes());
        let told = reply.text();
        assert_eq!(reply.status, *status, "{method} {path} {body}: {told}");
        let found = reply.json()["error"]["place"].clone();
        assert_eq!(found, *place, "{method} {path} {body}: {told}");
    }
    let wrong = lab.call("PATCH", KEY, "/v1/runs", "", b"");
    assert_eq!(wrong.status, 405);
    assert_eq!(wrong.header("allow"), Some("POST, GET"));
    // An address that is written out is not taken for a name.
    let wrong = lab.call("GET", KEY, "/v1/receipts/verify", "", b"");
    assert_eq!(wrong.status, 405);
    assert_eq!(wrong.header("allow"), Some("POST"));
}

/// A7: nothing that a caller without `admin` sends reaches an environment, and nobody names a command.
#[test]
fn a7_orders_of_keys_set_no_environment_and_name_no_command() {
    let lab = Lab::start(&[]);
    let key = lab.key("caller", &[abp_store::KeyScope::RunsWrite]);
    for (body, status) in [
        (
            r#"{"order":{"task":"x","config":{"env":{"LD_PRELOAD":"/tmp/x.so"}}}}"#,
            403,
        ),
        (r#"{"order":{"task":"x","lane":"workspace_first"}}"#, 403),
        (
            r#"{"order":{"task":"x","workspace":{"mode":"pass_through"}}}"#,
            403,
        ),
        (r#"{"order":{"task":"x"},"backend":{"command":"sh"}}"#, 400),
        (r#"{"order":{"task":"x"},"command":"sh"}"#, 400),
        (r#"{"order":{"task":"x"},"options":{"approve":["*"]}}"#, 403),
        (
            r#"{"order":{"task":"x"},"options":{"notify":["nobody"]}}"#,
            400,
        ),
    ] {
        let headers = "content-type: application/json\r\n";
        let reply = lab.call("POST", &key, "/v1/runs", headers, body.as_bytes());
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
    }
}

#[test]
fn the_server_says_what_it_is_made_of() {
    let lab = Lab::start(&[]);
    let get = |path: &str| {
        let reply = lab.call("GET", KEY, path, "", b"");
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    };
    let backends = get("/v1/backends");
    let names = backends["backends"].as_array().expect("backends");
    assert!(names.iter().any(|backend| backend["name"] == "mock"));
    assert!(get("/v1/capabilities")["backends"].is_array());
    assert!(get("/v1/config")["config"]["server"].is_object());
    assert_eq!(get("/v1/schemas/receipt")["title"], "Receipt");
    assert!(get("/v1/usage")["keys"].is_array());
    assert!(get("/v1/keys")["keys"].is_array());
    let validate = |body: &str| {
        let headers = "content-type: application/json\r\n";
        let reply = lab.call("POST", KEY, "/v1/validate", headers, body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["is_valid"].clone()
    };
    assert_eq!(
        validate(r#"{"kind":"work_order","document":{"task":"x"}}"#),
        true
    );
    assert_eq!(
        validate(r#"{"kind":"work_order","document":{"task":""}}"#),
        false
    );
    assert_eq!(validate(r#"{"kind":"receipt","document":{}}"#), false);
    assert_eq!(
        validate(r#"{"kind":"policy","document":{"deny_read":["["]}}"#),
        false
    );
}
