//! `abp acp`, as an editor uses it.

mod editor;
mod itself;

use std::time::{Duration, Instant};

use abp_testkit::{FakeVendor, Reply};
use serde_json::{Value, json};

use self::editor::{Editor, text_prompt};
use crate::desk::{Desk, Ran, text};

/// A desk with a scripted backend named `scripted`.
fn desk(steps: &Value) -> Desk {
    let desk = Desk::new();
    let script = json!({ "name": "scripted", "steps": steps });
    desk.write("s.json", script.to_string());
    desk.write("ask.json", r#"{"require_approval_for": ["Write"]}"#);
    desk
}

const SCRIPTED: [&str; 4] = ["--backend", "scripted", "--mock-script", "s.json"];

fn write_step(path: &str) -> Value {
    json!({"do": "write", "path": path, "content": "written\n"})
}

/// A prompt is a run: its events come in order, its changes when they are allowed, and the answer names it.
#[test]
fn a_prompt_is_a_run_in_the_editors_directory() {
    let plan =
        json!({"type": "plan_updated", "entries": [{"content": "greet", "status": "in_progress"}]});
    let desk = desk(&json!([
        {"do": "think", "text": "hm"},
        {"do": "emit", "event": plan},
        {"do": "write", "path": "new.txt", "content": "written\n"},
        {"do": "say", "text": "done"},
    ]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    let answer = editor.prompt(&session, &text_prompt("say hello"));
    let result = &answer["result"];
    assert_eq!(result["stopReason"], "end_turn", "{answer:#}");
    let report = &result["_meta"]["abp"];
    assert_eq!(report["outcome"], "complete", "{answer:#}");
    assert_eq!(report["changes"], "applied", "{answer:#}");
    let written = std::fs::read_to_string(desk.path("new.txt")).unwrap();
    assert_eq!(written, "written\n");

    let kinds = editor.update_kinds();
    let expected = [
        "agent_thought_chunk",
        "plan",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
    ];
    assert_eq!(kinds, expected, "{:#?}", editor.updates);
    let numbers: Vec<u64> = editor
        .updates
        .iter()
        .filter_map(editor::event_number)
        .collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let call = &editor.updates[2]["update"];
    let root = desk.path("").canonicalize().unwrap();
    let path = root.join("new.txt");
    assert_eq!(call["kind"], "edit", "{call:#}");
    assert_eq!(call["locations"][0]["path"], json!(path), "{call:#}");
    // The question about the changes shows them.
    let [question] = &editor.questions[..] else {
        panic!("{:#?}", editor.questions);
    };
    assert_eq!(question["options"][0]["kind"], "allow_once");
    let shown = &editor.updates[5]["update"]["content"][0];
    assert_eq!(shown["type"], "diff", "{shown:#}");
    assert_eq!(shown["newText"], "written\n", "{shown:#}");
    assert_eq!(shown["path"], json!(path), "{shown:#}");

    // The receipt is the one that the answer names.
    let receipt = std::fs::read(desk.receipts().pop().unwrap()).unwrap();
    let receipt: Value = serde_json::from_slice(&receipt).unwrap();
    assert_eq!(receipt["receipt_sha256"], report["receipt_sha256"]);
    assert_eq!(receipt["meta"]["run_id"], report["run_id"]);
}

/// What is not allowed stays in the stage, and the editor is told the command that applies it.
#[test]
fn rejected_changes_stay_in_the_stage() {
    let desk = desk(&json!([write_step("new.txt")]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    editor.choices = vec!["reject_once"];
    let session = editor.new_session(&desk);
    let answer = editor.prompt(&session, &text_prompt("write"));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
    assert_eq!(answer["result"]["_meta"]["abp"]["changes"], "staged");
    assert!(!desk.path("new.txt").exists());
    let said = editor.said();
    let command = said.split('`').nth(1).unwrap_or_default();
    assert!(command.starts_with("abp apply "), "{said}");
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let applied = desk.abp(&arguments);
    assert_eq!(applied.status, 0, "{}", applied.stderr);
    assert!(desk.path("new.txt").exists());
}

/// In the lane that applies on success nobody is asked; a file that somebody saved meanwhile is not written over.
#[test]
fn the_lane_decides_whether_the_editor_is_asked() {
    let desk = desk(&json!([write_step("readme.txt"), {"do": "sleep", "ms": 1}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    let set = editor.ask(
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "workspace-first" }),
    );
    assert!(set.get("result").is_some(), "{set:#}");
    let answer = editor.prompt(&session, &text_prompt("write"));
    assert_eq!(
        answer["result"]["_meta"]["abp"]["changes"], "applied",
        "{answer:#}"
    );
    assert!(editor.questions.is_empty());

    let option = json!({ "sessionId": session, "configId": "lane", "value": "patch-first" });
    let set = editor.ask("session/set_config_option", &option);
    assert_eq!(
        set["result"]["configOptions"][1]["currentValue"], "patch-first",
        "{set:#}"
    );
    desk.write("readme.txt", "before\n");
    let saved = desk.path("readme.txt");
    editor.on_question = Some(Box::new(move || std::fs::write(&saved, "saved\n").unwrap()));
    let answer = editor.prompt(&session, &text_prompt("write again"));
    assert_eq!(
        answer["result"]["_meta"]["abp"]["changes"], "staged",
        "{answer:#}"
    );
    let content = std::fs::read_to_string(desk.path("readme.txt")).unwrap();
    assert_eq!(content, "saved\n");
}

/// A question of the gate is answered in the editor, and the answer is the stored one.
#[test]
fn the_gates_questions_are_asked_in_the_editor() {
    for (choice, is_written) in [("allow_once", true), ("reject_once", false)] {
        let desk = desk(&json!([write_step("new.txt"), {"do": "say", "text": "done"}]));
        let more = [&SCRIPTED[..], &["--policy", "ask.json"]].concat();
        let mut editor = Editor::start(&desk, &more);
        editor.choices = vec![choice, "allow_once"];
        let session = editor.new_session(&desk);
        let answer = editor.prompt(&session, &text_prompt("write"));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
        assert_eq!(desk.path("new.txt").exists(), is_written, "{choice}");
        let question = &editor.questions[0];
        assert!(
            question["toolCall"]["title"]
                .as_str()
                .unwrap()
                .contains("Write")
        );
        // The call waits while it is asked about, and is settled after.
        let id = &question["toolCall"]["toolCallId"];
        let statuses: Vec<&str> = editor.statuses(id);
        let expected: &[&str] = match is_written {
            true => &["in_progress", "pending", "completed"],
            false => &["in_progress", "pending", "failed"],
        };
        assert_eq!(statuses, expected, "{:#?}", editor.updates);
        let logs = desk.abp(&["logs", "last", "--json"]).stdout;
        let events = logs.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut events = events.map(|line: Value| line["event"].clone());
        let resolved = events.find(|event| event["type"] == "permission_resolved");
        assert_eq!(resolved.unwrap()["decided_via"], "acp");
    }
}

/// A cancelled prompt ends within two seconds, as cancelled, and so does its run.
#[test]
fn a_prompt_is_cancelled_within_two_seconds() {
    let desk = desk(&json!([{"do": "say", "text": "working"}, {"do": "sleep", "ms": 600_000}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    let id = editor.send_prompt(&session, &text_prompt("work"));
    editor.wait_for(|update| update["update"]["sessionUpdate"] == "agent_message_chunk");
    // The session is busy meanwhile.
    let refused = editor.prompt(&session, &text_prompt("another"));
    assert_eq!(refused["error"]["code"], -32600, "{refused:#}");
    let asked = Instant::now();
    editor.notify("session/cancel", &json!({ "sessionId": session }));
    let answer = editor.answer_to(id);
    let took = asked.elapsed();
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer:#}");
    assert_eq!(answer["result"]["_meta"]["abp"]["outcome"], "cancelled");
    assert!(took < Duration::from_secs(2), "{took:?}");
    // And the session goes on.
    let id = editor.send_prompt(&session, &text_prompt("again"));
    editor.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(editor.answer_to(id)["result"]["stopReason"], "cancelled");
}

/// Sessions are in the store: another process lists them, tells them again and goes on with them.
#[test]
fn a_session_is_loaded_from_the_store() {
    let desk = desk(&json!([write_step("new.txt"), {"do": "say", "text": "done"}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    for task in ["the first task", "the second task"] {
        editor.prompt(&session, &text_prompt(task));
    }
    let told = editor.said();
    assert!(told.contains("starts without the earlier ones"), "{told}");
    editor.close();
    desk.abp(&["run", "--task", "from the terminal"]);

    let mut editor = Editor::start(&desk, &SCRIPTED);
    let listed = editor.ask("session/list", &json!({ "cwd": desk.path("") }));
    let sessions = listed["result"]["sessions"].as_array().unwrap();
    let titles: Vec<&str> = sessions
        .iter()
        .map(|one| one["title"].as_str().unwrap())
        .collect();
    assert_eq!(
        titles,
        ["from the terminal", "the first task"],
        "{listed:#}"
    );
    assert_eq!(sessions[1]["sessionId"], json!(session));
    let load = json!({ "sessionId": session, "cwd": desk.path(""), "mcpServers": [] });
    let loaded = editor.ask("session/load", &load);
    assert!(loaded.get("result").is_some(), "{loaded:#}");
    let expected = [
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ];
    assert_eq!(
        editor.update_kinds(),
        expected.repeat(2),
        "{:#?}",
        editor.updates
    );
    let ids: std::collections::BTreeSet<_> = editor
        .updates
        .iter()
        .filter(|update| update["update"]["sessionUpdate"] == "tool_call")
        .map(|update| update["update"]["toolCallId"].to_string())
        .collect();
    assert_eq!(ids.len(), 2, "ids of calls are unique in a session");
    let answer = editor.prompt(&session, &text_prompt("the third task"));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");

    // The run of the terminal is a session as well.
    let id = sessions[0]["sessionId"].as_str().unwrap();
    let resume = json!({ "sessionId": id, "cwd": desk.path(""), "mcpServers": [] });
    let resumed = editor.ask("session/resume", &resume);
    assert!(resumed.get("result").is_some(), "{resumed:#}");
    assert_eq!(
        editor.prompt(id, &text_prompt("go on"))["result"]["stopReason"],
        "end_turn"
    );
    // Another directory is another project.
    let elsewhere = Desk::new();
    let load = json!({ "sessionId": session, "cwd": elsewhere.path(""), "mcpServers": [] });
    let refused = editor.ask("session/load", &load);
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
}

/// Everything that cannot be used is refused by name, and the connection goes on.
#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let desk = desk(&json!([{"do": "say", "text": "done"}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    for garbage in ["this is no message", "{\"broken\":", "[1, 2]"] {
        editor.send_line(garbage);
        let refused = editor.next_answer();
        assert!(
            refused["error"]["code"].is_number(),
            "{garbage}: {refused:#}"
        );
    }
    let prompt = |block: Value| json!({ "sessionId": session, "prompt": [block] });
    let nobody = "00000000-0000-7000-8000-000000000000";
    let cwd = desk.path("");
    let cases = [
        (
            "session/unheard_of",
            json!({}),
            -32601,
            "session/unheard_of",
        ),
        (
            "session/prompt",
            json!({ "sessionId": "x", "prompt": [] }),
            -32002,
            "there is no session",
        ),
        (
            "session/prompt",
            json!({ "sessionId": nobody, "prompt": [] }),
            -32002,
            nobody,
        ),
        (
            "session/prompt",
            json!({ "sessionId": session }),
            -32602,
            "prompt",
        ),
        (
            "session/prompt",
            prompt(json!({"type": "image", "data": "", "mimeType": "image/png"})),
            -32602,
            "image/png",
        ),
        (
            "session/prompt",
            prompt(json!({"type": "text", "text": ""})),
            -32602,
            "no text",
        ),
        (
            "session/load",
            json!({ "sessionId": nobody, "cwd": cwd, "mcpServers": [] }),
            -32002,
            nobody,
        ),
        (
            "session/new",
            json!({ "cwd": "relative", "mcpServers": [] }),
            -32602,
            "relative",
        ),
        (
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "fast" }),
            -32602,
            "patch-first",
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "backend", "value": "none" }),
            -32602,
            "scripted",
        ),
        ("session/list", json!({ "cursor": "x" }), -32602, "cursor"),
    ];
    for (method, params, code, word) in cases {
        let refused = editor.ask(method, &params);
        assert_eq!(refused["error"]["code"], code, "{method}: {refused:#}");
        assert!(refused.to_string().contains(word), "{method}: {refused:#}");
    }
    let huge = "x".repeat(5 * 1024 * 1024);
    let refused = editor.prompt(&session, &text_prompt(&huge));
    assert_eq!(refused["error"]["code"], -32602);
    let answer = editor.prompt(&session, &text_prompt("say hello"));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
}

/// A message that does not end is not waited for: the connection ends, and the exit status says why.
#[test]
fn a_line_without_an_end_ends_the_connection() {
    let desk = Desk::new();
    let mut editor = Editor::start(&desk, &[]);
    editor.send_endless_line(17 << 20);
    assert_eq!(editor.close(), 2);
}

/// A run that fails is an error with the code of the run; servers that are not passed on are named.
#[test]
fn a_failed_run_is_an_error_that_names_it() {
    let desk = desk(&json!([{"do": "fail", "code": "BACKEND_CRASHED", "message": "it broke"}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let servers = json!([{ "name": "files", "command": "/bin/false", "args": [], "env": [] }]);
    let opened = editor.ask(
        "session/new",
        &json!({ "cwd": desk.path(""), "mcpServers": servers }),
    );
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let answer = editor.prompt(&session, &text_prompt("break"));
    assert_eq!(
        answer["error"]["data"]["code"], "BACKEND_CRASHED",
        "{answer:#}"
    );
    assert!(
        answer["error"]["data"]["abp"]["run_id"].is_string(),
        "{answer:#}"
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("it broke")
    );
    assert!(editor.said().contains("files"), "{:#?}", editor.updates);
}

/// A client that sets a provider gets the requests to models, with its own key, until it is gone.
#[test]
fn a_client_routes_requests_to_models_through_its_own_address() {
    let vendor = FakeVendor::start(Reply::fixture("openai/stream_text.sse").unwrap()).unwrap();
    let desk = Desk::new();
    let mut editor = Editor::start(&desk, &["--model", "m"]);
    let listed = editor.ask("providers/list", &json!({}));
    let providers = &listed["result"]["providers"];
    assert_eq!(providers[0]["providerId"], "editor", "{listed:#}");
    assert_eq!(providers[0]["current"], Value::Null, "{listed:#}");
    let provider = json!({
        "providerId": "editor", "apiType": "openai", "baseUrl": vendor.url("/v1"),
        "headers": { "Authorization": "Bearer of-the-editor" },
    });
    let set = editor.ask("providers/set", &provider);
    assert!(set.get("result").is_some(), "{set:#}");
    let session = editor.new_session(&desk);
    let option = json!({ "sessionId": session, "configId": "backend", "value": "upstream:editor" });
    let chosen = editor.ask("session/set_config_option", &option);
    assert!(chosen.get("result").is_some(), "{chosen:#}");
    let answer = editor.prompt(&session, &text_prompt("say hello"));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
    let requests = vendor.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer of-the-editor")
    );
    let off = editor.ask("providers/disable", &json!({ "providerId": "editor" }));
    assert!(off.get("result").is_some(), "{off:#}");
    let refused = editor.prompt(&session, &text_prompt("say hello"));
    assert!(refused.get("error").is_some(), "{refused:#}");
    assert_eq!(vendor.requests().len(), 1);
    // Nothing of the key is in the state directory.
    editor.close();
    let home = desk.home();
    let mut grep = desk.program("grep", &["-rl", "of-the-editor", text(&home)]);
    assert_eq!(Ran::new(grep.output().unwrap()).stdout, "");
}

/// A client that is gone leaves a cancelled run with a receipt; one that is told to stop as well.
#[test]
fn a_client_that_vanishes_cancels_its_runs() {
    let desk = desk(&json!([{"do": "say", "text": "working"}, {"do": "sleep", "ms": 600_000}]));
    let mut editor = Editor::start(&desk, &SCRIPTED);
    let session = editor.new_session(&desk);
    editor.send_prompt(&session, &text_prompt("work"));
    editor.wait_for(|update| update["update"]["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(editor.close(), 0);
    let receipt = std::fs::read(desk.receipts().pop().unwrap()).unwrap();
    let receipt: Value = serde_json::from_slice(&receipt).unwrap();
    assert_eq!(receipt["outcome"], "cancelled");
    assert_eq!(receipt["cancel_reason"], "disconnect");
}
