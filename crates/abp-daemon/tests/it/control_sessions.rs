//! Sessions of agents over HTTP: listed, gone on with, forked, and not steered.

use abp_config::BackendConfig;
use abp_store::KeyScope;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{Lab, Reply};

const JSON: &str = "content-type: application/json\r\n";

/// A daemon with an agent that can resume sessions, one that can fork them too, one that can do neither,
/// and one that takes its time.
fn stage() -> (Lab, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let session = json!({ "do": "session", "id": "s1" });
    let cases = [
        (
            "resumes",
            json!({ "session_resume": "native" }),
            json!([session]),
        ),
        (
            "forks",
            json!({ "session_resume": "native", "session_fork": "native" }),
            json!([session]),
        ),
        ("forgets", json!({}), json!([session])),
        (
            "sleeps",
            json!({}),
            json!([{ "do": "sleep", "ms": 60_000 }]),
        ),
    ];
    let mut backends = Vec::new();
    for (name, manifest, steps) in cases {
        let mut manifest = manifest;
        manifest["streaming"] = json!("native");
        let script = dir.path().join(format!("{name}.json"));
        let content = json!({ "name": name, "manifest": manifest, "steps": steps });
        std::fs::write(&script, content.to_string()).expect("a script");
        backends.push((name.to_owned(), script));
    }
    let lab = Lab::start_with(&[], |config, _| {
        for (name, script) in backends {
            let mock = BackendConfig::Mock {
                script: Some(script),
                priority: None,
            };
            config.backends.insert(name, mock);
        }
    });
    (lab, dir)
}

fn post(lab: &Lab, key: &str, path: &str, body: &Value) -> Reply {
    lab.call("POST", key, path, JSON, body.to_string().as_bytes())
}

fn sessions(lab: &Lab, key: &str, run: &str) -> Vec<String> {
    let page = lab
        .call("GET", key, &format!("/v1/runs/{run}/events"), "", b"")
        .json();
    let events = page["events"].as_array().expect("events").iter();
    let ids = events.filter_map(|one| one["event"]["session_id"].as_str());
    ids.map(str::to_owned).collect()
}

#[test]
fn a_session_goes_on_where_its_backend_can() {
    let (lab, _dir) = stage();
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite];
    let (own, other) = (lab.key("own", &scopes), lab.key("other", &scopes));
    let earlier = |backend: &str| {
        let run = lab.submit(
            &own,
            &json!({ "order": { "task": "t" }, "backend": backend }).to_string(),
        );
        lab.wait_for_end(&own, &run);
        run
    };
    let order = json!({ "order": { "task": "more" } });
    for (backend, goes_on, forks) in [
        ("resumes", true, false),
        ("forks", true, true),
        ("forgets", false, false),
    ] {
        let run = earlier(backend);
        let mut continued = order.clone();
        continued["continue_from"] = json!(run);
        let fork = format!("/v1/runs/{run}/fork");
        for (path, body, can) in [("/v1/runs", &continued, goes_on), (&fork, &order, forks)] {
            let reply = post(&lab, &own, path, body);
            let text = reply.text();
            if !can {
                assert_eq!(reply.status, 422, "{backend} {path}: {text}");
                assert_eq!(reply.json()["error"]["code"], "CAPABILITY_UNSUPPORTED");
                continue;
            }
            assert_eq!(reply.status, 202, "{backend} {path}: {text}");
            let next = reply.json()["run_id"].as_str().expect("a run").to_owned();
            lab.wait_for_end(&own, &next);
            assert_eq!(sessions(&lab, &own, &next), ["s1"]);
            let view = lab
                .call("GET", &own, &format!("/v1/runs/{next}"), "", b"")
                .json();
            assert_eq!(
                view["backend"], backend,
                "the backend is that of the session"
            );
            // The session of another principal's run is none.
            assert_eq!(
                post(&lab, &other, path, body).status,
                404,
                "{backend} {path}"
            );
            let mut elsewhere = body.clone();
            elsewhere["backend"] = json!("forgets");
            assert_eq!(post(&lab, &own, path, &elsewhere).status, 400);
        }
    }
    let listed = |key: &str| lab.call("GET", key, "/v1/sessions", "", b"").json();
    let own_sessions = listed(&own);
    let rows = own_sessions["sessions"].as_array().expect("sessions");
    assert_eq!(rows.len(), 6, "{own_sessions}");
    assert!(
        rows.iter()
            .all(|row| row["session_id"] == "s1" && row["is_resumable"] == true)
    );
    assert_eq!(listed(&other)["sessions"], json!([]));
}

#[test]
fn a_run_that_goes_on_is_neither_continued_nor_steered() {
    let (lab, _dir) = stage();
    let own = lab.key("own", &[KeyScope::RunsRead, KeyScope::RunsWrite]);
    let other = lab.key("other", &[KeyScope::RunsRead, KeyScope::RunsWrite]);
    let run = lab.submit(&own, r#"{"order":{"task":"t"},"backend":"sleeps"}"#);
    let steer = format!("/v1/runs/{run}/steer");
    let message = json!({ "message": "faster" });
    let refused = post(&lab, &own, &steer, &message);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("sleeps"), "{}", refused.text());
    assert_eq!(post(&lab, &other, &steer, &message).status, 404);
    assert_eq!(post(&lab, &own, &steer, &json!({})).status, 400);
    let body = json!({ "order": { "task": "more" }, "continue_from": run });
    assert_eq!(post(&lab, &own, "/v1/runs", &body).status, 409);
    post(&lab, &own, &format!("/v1/runs/{run}/cancel"), &json!({}));
    lab.wait_for_end(&own, &run);
    assert_eq!(post(&lab, &own, &steer, &message).status, 400);
}
