//! Uploaded workspaces: content-addressed, by principal, and hostile.

use abp_store::KeyScope;
use serde_json::{Value, json};

use crate::lab::{KEY, Lab, Reply, sha256};

const JSON: &str = "content-type: application/json\r\n";

fn manifest(files: &[(&str, &str)]) -> Value {
    let entries: Vec<_> = files
        .iter()
        .map(|(path, content)| {
            json!({
                "kind": "file",
                "path": path,
                "sha256": sha256(content.as_bytes()),
                "size": content.len(),
            })
        })
        .collect();
    json!({ "entries": entries })
}

fn announce(lab: &Lab, key: &str, manifest: &Value) -> Reply {
    let body = manifest.to_string();
    lab.call("POST", key, "/v1/workspaces", JSON, body.as_bytes())
}

fn put(lab: &Lab, key: &str, hash: &str, content: &[u8]) -> Reply {
    lab.call("PUT", key, &format!("/v1/blobs/{hash}"), "", content)
}

fn missing(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let missing = reply.json()["missing"].clone();
    serde_json::from_value(missing).expect("hashes")
}

#[test]
fn only_what_is_missing_is_uploaded_and_a_run_works_on_it() {
    let lab = Lab::start(&[]);
    let files = [
        ("src/a.txt", "alpha"),
        ("src/b.txt", "beta"),
        ("c.txt", "alpha"),
    ];
    let first = announce(&lab, KEY, &manifest(&files));
    // The same content under two names is one blob.
    assert_eq!(missing(&first).len(), 2);
    let id = first.json()["workspace_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let submit = |id: &str| {
        let body = json!({ "order": { "task": "say hello" }, "workspace": { "uploaded": id } });
        lab.call(
            "POST",
            KEY,
            "/v1/runs?wait=60",
            JSON,
            body.to_string().as_bytes(),
        )
    };
    let early = submit(&id);
    assert_eq!(early.status, 409, "{}", early.text());
    assert_eq!(early.json()["error"]["code"], "BLOBS_MISSING");
    for content in ["alpha", "beta"] {
        let reply = put(&lab, KEY, &sha256(content.as_bytes()), content.as_bytes());
        assert_eq!(reply.status, 201, "{}", reply.text());
        assert_eq!(reply.json()["size"], content.len());
    }
    assert_eq!(
        missing(&announce(&lab, KEY, &manifest(&files))),
        Vec::<String>::new()
    );
    let run = submit(&id);
    assert_eq!(run.status, 200, "{}", run.text());
    assert_eq!(run.json()["receipt"]["outcome"], "complete");
    // A change of one file is one blob.
    let changed = [
        ("src/a.txt", "alpha"),
        ("src/b.txt", "gamma"),
        ("c.txt", "alpha"),
    ];
    let second = announce(&lab, KEY, &manifest(&changed));
    assert_eq!(missing(&second), [sha256(b"gamma")]);
    assert_ne!(second.json()["workspace_id"], id.as_str());
}

/// Knowing the hash of a file of somebody else gives neither the file nor the knowledge that it is there.
#[test]
fn uploads_of_principals_are_apart() {
    let lab = Lab::start(&[]);
    let scopes = [KeyScope::Upload, KeyScope::RunsWrite, KeyScope::RunsRead];
    let (owner, other) = (lab.key("owner", &scopes), lab.key("other", &scopes));
    let files = manifest(&[("secret.txt", "the secret")]);
    let hash = sha256(b"the secret");
    let announced = announce(&lab, &owner, &files);
    assert_eq!(put(&lab, &owner, &hash, b"the secret").status, 201);
    assert_eq!(
        missing(&announce(&lab, &owner, &files)),
        Vec::<String>::new()
    );
    let id = announced.json()["workspace_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let body = json!({ "order": { "task": "x" }, "workspace": { "uploaded": id } }).to_string();
    let foreign = lab.call("POST", &other, "/v1/runs", JSON, body.as_bytes());
    assert_eq!(foreign.status, 404, "{}", foreign.text());
    assert_eq!(missing(&announce(&lab, &other, &files)), [hash]);
    let foreign = lab.call("POST", &other, "/v1/runs", JSON, body.as_bytes());
    assert_eq!(foreign.status, 409, "{}", foreign.text());
}

#[test]
fn a_blob_that_is_not_what_its_address_says_is_not_kept() {
    let lab = Lab::start_with(&[], |config, _| {
        config.server.max_blob_mb = 1;
        config.server.max_uploads_mb = 2;
    });
    let hash = sha256(b"right");
    let wrong = put(&lab, KEY, &hash, b"wrong");
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    assert_eq!(wrong.json()["error"]["code"], "BLOB_HASH_MISMATCH");
    assert_eq!(
        missing(&announce(&lab, KEY, &manifest(&[("a", "right")]))),
        [hash.as_str()]
    );
    for address in ["x", "..%2f..%2fetc", &hash.to_uppercase()] {
        assert_eq!(put(&lab, KEY, address, b"right").status, 400, "{address}");
    }
    // Too large, announced and not.
    let large = vec![b'x'; (1 << 20) + 1];
    assert_eq!(put(&lab, KEY, &sha256(&large), &large).status, 413);
    let chunked = chunked(&lab, &sha256(&large), &large);
    assert_eq!(chunked.status, 413, "{}", chunked.head);
    // All blobs of a key together.
    for letter in [b'a', b'b'] {
        let content = vec![letter; 1 << 20];
        assert_eq!(put(&lab, KEY, &sha256(&content), &content).status, 201);
    }
    let full = put(&lab, KEY, &sha256(b"one more"), b"one more");
    assert_eq!(full.status, 429, "{}", full.text());
    assert_eq!(full.json()["error"]["context"]["full"], "uploads");
    // Nothing of what was refused is left.
    let left = lab.files("stages.uploads").into_iter();
    let left: Vec<_> = left.filter(|path| path.contains("/incoming/")).collect();
    assert_eq!(left, Vec::<String>::new());
}

fn chunked(lab: &Lab, hash: &str, content: &[u8]) -> Reply {
    let head = format!(
        "PUT /v1/blobs/{hash} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         transfer-encoding: chunked\r\nconnection: close\r\n\r\n{:x}\r\n",
        content.len()
    );
    let mut raw = head.into_bytes();
    raw.extend_from_slice(content);
    raw.extend_from_slice(b"\r\n0\r\n\r\n");
    lab.raw(&raw)
}

/// Paths that lead elsewhere are refused before anything is written.
#[test]
fn path_tricks_in_manifests_are_refused() {
    let lab = Lab::start(&[]);
    for path in [
        "../evil",
        "/etc/passwd",
        "a/../../b",
        ".git/hooks/post-checkout",
        "a//b",
        "",
    ] {
        let reply = announce(&lab, KEY, &manifest(&[(path, "x")]));
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(reply.json()["error"]["place"], "/entries/0/path", "{path}");
    }
    for target in ["/etc/passwd", "../outside", ""] {
        let entries = json!({ "entries": [{ "kind": "link", "path": "l", "target": target }] });
        let reply = announce(&lab, KEY, &entries);
        assert_eq!(reply.status, 400, "{target}: {}", reply.text());
    }
    let through = json!({ "entries": [
        { "kind": "link", "path": "d", "target": "e" },
        { "kind": "file", "path": "d/f", "sha256": sha256(b"x"), "size": 1 },
    ] });
    assert_eq!(announce(&lab, KEY, &through).status, 400);
    assert_eq!(lab.files("stages.uploads"), Vec::<String>::new());
}

/// An order may name a directory only below the configured roots, however it is written.
#[test]
fn a_root_lies_below_the_configured_ones() {
    let outside = tempfile::tempdir().expect("a directory");
    let inside = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(inside.path().join("project")).expect("a project");
    std::fs::write(inside.path().join("project/a.txt"), "a").expect("a file");
    std::os::unix::fs::symlink(outside.path(), inside.path().join("link")).expect("a link");
    let root = inside.path().to_owned();
    let lab = Lab::start_with(&[], |config, _| config.server.roots = vec![root]);
    let submit = |root: &std::path::Path| {
        let order = json!({ "task": "say hello", "workspace": { "root": root } });
        lab.call(
            "POST",
            KEY,
            "/v1/runs?wait=60",
            JSON,
            order.to_string().as_bytes(),
        )
    };
    let good = submit(&inside.path().join("project"));
    assert_eq!(good.status, 200, "{}", good.text());
    for bad in [
        outside.path().to_owned(),
        inside.path().join("link"),
        inside.path().join("project/../link"),
        inside.path().join(".."),
        inside.path().join("nothing"),
        inside.path().join("project/a.txt"),
    ] {
        let reply = submit(&bad);
        assert_eq!(reply.status, 400, "{}: {}", bad.display(), reply.text());
    }
}

/// Many small files come in one request; a wrong one is refused, and those before it stay.
#[test]
fn small_files_are_uploaded_together() {
    let lab = Lab::start(&[]);
    let key = lab.key("own", &[KeyScope::Upload]);
    let frame = |text: &str, hash: &str| format!("{hash} {}\n{text}", text.len());
    let hash = |text: &str| sha256(text.as_bytes());
    let send = |body: &str| {
        let headers = "content-type: application/octet-stream\r\n";
        lab.call("POST", &key, "/v1/blobs", headers, body.as_bytes())
    };
    let good = frame("one", &hash("one")) + &frame("", &hash(""));
    let stored = send(&good);
    assert_eq!(stored.status, 201, "{}", stored.text());
    assert_eq!(stored.json(), json!({ "count": 2, "bytes": 3 }));
    let wrong = frame("two", &hash("two")) + &frame("three", &hash("two"));
    assert_eq!(send(&wrong).status, 422, "a hash of other bytes");
    assert_eq!(send("x").status, 400);
    let files = ["one", "two", "three"].map(|text| (text, text));
    let view = announce(&lab, &key, &manifest(&files));
    assert_eq!(missing(&view), [hash("three")]);
}
