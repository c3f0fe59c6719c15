//! What a kept answer was an answer to, as the vendor of Responses lists it.

use std::borrow::Cow;

use abp_json::{JsonError, Kind, Limits, Tape, View, Writer};

/// How many items a caller gets that does not say how many, and how many it gets at most.
const USUAL: usize = 20;
const MOST: usize = 100;

/// Which of the items a caller wants: the last come first unless it says otherwise.
struct Wanted<'q> {
    ascending: bool,
    limit: usize,
    after: Option<&'q str>,
}

impl<'q> Wanted<'q> {
    fn of(query: Option<&'q str>) -> Self {
        let value = |name: &str| {
            let mut pairs = query?.split('&');
            pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let limit = value("limit").and_then(|limit| limit.parse().ok());
        Self {
            ascending: value("order") == Some("asc"),
            limit: limit.unwrap_or(USUAL).clamp(1, MOST),
            after: value("after"),
        }
    }
}

/// A page of the items that `response` was an answer to.
pub(crate) fn list(response: &str, items: &str, query: Option<&str>) -> Result<String, JsonError> {
    let tape = Tape::parse_str(items, &Limits::default())?;
    let wanted = Wanted::of(query);
    let items = tape.root().items().enumerate();
    let mut page: Vec<_> = items
        .map(|(at, item)| (id(response, at, item), item))
        .collect();
    if !wanted.ascending {
        page.reverse();
    }
    let after = page.iter().position(|(id, _)| wanted.after == Some(id));
    page.drain(..after.map_or(0, |at| at + 1));
    let has_more = page.len() > wanted.limit;
    page.truncate(wanted.limit);
    Ok(written(&page, has_more))
}

fn written(page: &[(String, View<'_>)], has_more: bool) -> String {
    let mut out = Writer::default();
    out.begin_object();
    put(&mut out, "object", "list");
    out.key("data");
    out.begin_array();
    for (id, item) in page {
        put_item(id, *item, &mut out);
    }
    out.end_array();
    for (name, end) in [("first_id", page.first()), ("last_id", page.last())] {
        match end {
            Some((id, _)) => put(&mut out, name, id),
            None => {
                out.key(name);
                out.raw("null");
            }
        }
    }
    out.key("has_more");
    out.raw(if has_more { "true" } else { "false" });
    out.end_object();
    out.into_text()
}

/// The item in the form that answers have: named, typed, and with its text as a part.
fn put_item(id: &str, item: View<'_>, out: &mut Writer) {
    out.begin_object();
    put(out, "id", id);
    put(out, "type", &kind(item));
    for (key, value) in item.entries() {
        match key.as_str().as_deref() {
            None | Some("id" | "type") => {}
            Some("content") if value.kind() == Kind::String => put_text(item, value, out),
            Some(name) => {
                out.key(name);
                out.raw(value.raw());
            }
        }
    }
    if item.get("status").is_none() && kind(item) != "reasoning" {
        put(out, "status", "completed");
    }
    out.end_object();
}

fn put_text(message: View<'_>, text: View<'_>, out: &mut Writer) {
    let is_answer = message.get("role").and_then(View::as_str).as_deref() == Some("assistant");
    out.key("content");
    out.begin_array();
    out.begin_object();
    if is_answer {
        put(out, "type", "output_text");
        out.key("annotations");
        out.raw("[]");
    } else {
        put(out, "type", "input_text");
    }
    out.key("text");
    out.raw(text.raw());
    out.end_object();
    out.end_array();
}

fn put(out: &mut Writer, name: &str, value: &str) {
    out.key(name);
    out.string(value);
}

/// Callers need not say that a message is one.
fn kind(item: View<'_>) -> Cow<'_, str> {
    let given = item.get("type").and_then(View::as_str);
    given.unwrap_or(Cow::Borrowed("message"))
}

/// The item's own id, or one that it has in every list of this answer.
fn id(response: &str, at: usize, item: View<'_>) -> String {
    if let Some(id) = item.get("id").and_then(View::as_str) {
        return id.into_owned();
    }
    let prefix = match kind(item).as_ref() {
        "message" => "msg",
        "function_call" => "fc",
        _ => "item",
    };
    format!("{prefix}_{response}_{at}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ITEMS: &str = r#"[
        {"role":"user","content":"Tell \u00e9"},
        {"type":"message","role":"assistant","content":"No."},
        {"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"incomplete"},
        {"type":"function_call_output","call_id":"c","output":"1"}
    ]"#;

    fn listed(query: &str) -> Value {
        let text = list("resp_1", ITEMS, Some(query)).expect("a list");
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn items_have_the_form_of_the_vendors_lists() {
        let expected = json!({
            "object": "list",
            "data": [
                { "id": "msg_resp_1_0", "type": "message", "role": "user", "status": "completed",
                  "content": [{ "type": "input_text", "text": "Tell é" }] },
                { "id": "msg_resp_1_1", "type": "message", "role": "assistant", "status": "completed",
                  "content": [{ "type": "output_text", "annotations": [], "text": "No." }] },
                { "id": "fc_1", "type": "function_call", "call_id": "c", "name": "f",
                  "arguments": "{}", "status": "incomplete" },
                { "id": "item_resp_1_3", "type": "function_call_output", "call_id": "c",
                  "output": "1", "status": "completed" },
            ],
            "first_id": "msg_resp_1_0",
            "last_id": "item_resp_1_3",
            "has_more": false,
        });
        assert_eq!(listed("order=asc"), expected);
    }

    #[test]
    fn pages_follow_each_other_in_the_order_asked_for() {
        let cases = [
            ("", "item_resp_1_3 fc_1 msg_resp_1_1 msg_resp_1_0", false),
            ("limit=2", "item_resp_1_3 fc_1", true),
            ("limit=2&after=fc_1", "msg_resp_1_1 msg_resp_1_0", false),
            ("order=asc&after=msg_resp_1_1&limit=1", "fc_1", true),
            ("order=asc&after=item_resp_1_3", "", false),
        ];
        for (query, ids, has_more) in cases {
            let page = listed(query);
            let items = page["data"].as_array().expect("items").iter();
            let found: Vec<_> = items.filter_map(|item| item["id"].as_str()).collect();
            let found = (found.join(" "), page["has_more"] == has_more);
            assert_eq!(found, (ids.to_owned(), true), "{query}");
        }
    }
}
