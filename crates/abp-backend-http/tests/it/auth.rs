//! The ways in which an upstream is asked with a credential, against a vendor that shows what it got.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{ModelCall, Upstream as _, UpstreamError};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, KeyCommand, UpstreamAuth};
use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply, Script};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::support::{KEY, call, spec};

/// A key made for this test; no account has it.
const RSA_KEY: &str = include_str!("service_account.pem");

fn vendor() -> FakeVendor {
    FakeVendor::start(Reply::json("{}")).unwrap()
}

fn of(vendor: &FakeVendor, change: impl FnOnce(&mut HttpUpstreamSpec)) -> HttpUpstream {
    let mut spec = spec(vendor.url("/v1"));
    change(&mut spec);
    HttpUpstream::new(spec).unwrap()
}

async fn ask(upstream: &HttpUpstream) -> Result<Bytes, UpstreamError> {
    ask_with(upstream, call(Dialect::OpenAi, "{}")).await
}

async fn ask_with(upstream: &HttpUpstream, call: ModelCall) -> Result<Bytes, UpstreamError> {
    let body = upstream.send(call).await?.body.collect(1 << 20).await?;
    Ok(upstream.without_key(body))
}

#[tokio::test]
async fn a_key_goes_where_the_vendor_wants_it_and_nowhere_else() {
    let vendor = vendor();
    let header = HeaderName::from_static("api-key");
    let kinds = [
        (
            UpstreamAuth::Dialect,
            Some(("authorization", format!("Bearer {KEY}"))),
            None,
        ),
        (
            UpstreamAuth::Bearer,
            Some(("authorization", format!("Bearer {KEY}"))),
            None,
        ),
        (
            UpstreamAuth::Header(header),
            Some(("api-key", KEY.to_owned())),
            None,
        ),
        (
            UpstreamAuth::Query("token".to_owned()),
            None,
            Some(format!("token={KEY}")),
        ),
    ];
    for (auth, header, query) in kinds {
        let upstream = of(&vendor, |spec| spec.auth = auth.clone());
        ask(&upstream).await.unwrap();
        let request = vendor.requests().pop().unwrap();
        for name in ["authorization", "api-key", "x-api-key", "x-goog-api-key"] {
            let expected = header.as_ref().filter(|(known, _)| *known == name);
            let expected = expected.map(|(_, value)| value.as_str());
            assert_eq!(request.header(name), expected, "{auth:?}: {name}");
        }
        assert_eq!(request.query, query, "{auth:?}");
        assert!(!format!("{upstream:?}").contains(KEY));
    }
}

#[tokio::test]
async fn extra_headers_and_parameters_stand_over_the_callers() {
    let vendor = vendor();
    let upstream = of(&vendor, |spec| {
        spec.headers = vec![
            (
                HeaderName::from_static("x-title"),
                HeaderValue::from_static("ours"),
            ),
            (
                HeaderName::from_static("user-agent"),
                HeaderValue::from_static("us"),
            ),
        ];
        spec.query = Some("api-version=1".to_owned());
        spec.auth = UpstreamAuth::Query("key".to_owned());
    });
    let mut call = call(Dialect::OpenAi, "{}");
    call.headers
        .insert("x-title", HeaderValue::from_static("theirs"));
    call.query = Some("api-version=2&other=3&key=theirs".to_owned());
    ask_with(&upstream, call).await.unwrap();
    let request = vendor.requests().pop().unwrap();
    let titles: Vec<_> = request.headers.get_all("x-title").iter().collect();
    assert_eq!(titles, ["ours"]);
    assert_eq!(request.header("user-agent"), Some("us"));
    let query = request.query.as_deref();
    assert_eq!(
        query,
        Some(format!("other=3&api-version=1&key={KEY}").as_str())
    );

    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        let mut spec = spec(vendor.url("/v1"));
        spec.headers = vec![(name.parse().unwrap(), HeaderValue::from_static("1"))];
        let error = HttpUpstream::new(spec).unwrap_err();
        assert!(error.message().contains(name), "{error:?}");
    }
}

/// A program that prints `canary-N`, where N counts how often it was started.
fn counting_program(directory: &Path) -> KeyCommand {
    let (script, count) = (directory.join("print.sh"), directory.join("count"));
    let count = count.display();
    let text =
        format!("echo x >> {count}; echo canary-$(wc -l < {count} | tr -d ' '); echo rest\n");
    std::fs::write(&script, text).unwrap();
    KeyCommand {
        program: "sh".to_owned(),
        args: vec![script.display().to_string()],
        lifetime: Duration::from_secs(300),
    }
}

#[tokio::test]
async fn a_command_prints_the_token_once_until_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = Reply::json(r#"{"error":"no such token: canary-1"}"#).status(401);
    let vendor = FakeVendor::start(Script::InOrder(vec![
        Reply::json("{}"),
        refusal,
        Reply::json("{}"),
    ]))
    .unwrap();
    let command = counting_program(directory.path());
    let upstream = of(&vendor, |spec| {
        spec.key = None;
        spec.key_command = Some(command.clone());
        spec.auth = UpstreamAuth::Vertex;
    });
    assert_eq!(ask(&upstream).await.unwrap(), "{}");
    // The vendor repeats the token it refuses; nobody else sees it.
    let told = ask(&upstream).await.unwrap();
    assert!(!told.windows(8).any(|part| part == b"canary-1"), "{told:?}");
    assert_eq!(ask(&upstream).await.unwrap(), "{}");
    let tokens: Vec<_> = vendor
        .requests()
        .iter()
        .map(|request| {
            request
                .header("authorization")
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(
        tokens,
        ["Bearer canary-1", "Bearer canary-1", "Bearer canary-2"]
    );

    // Many at once start it once.
    let vendor = self::vendor();
    let directory = tempfile::tempdir().unwrap();
    let command = counting_program(directory.path());
    let upstream = Arc::new(of(&vendor, |spec| spec.key_command = Some(command)));
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let upstream = Arc::clone(&upstream);
            tokio::spawn(async move { ask(&upstream).await })
        })
        .collect();
    for one in asked {
        one.await.unwrap().unwrap();
    }
    let count = std::fs::read_to_string(directory.path().join("count")).unwrap();
    assert_eq!(count.lines().count(), 1);
}

#[tokio::test]
async fn a_command_that_fails_sends_nothing_and_shows_nothing() {
    let vendor = vendor();
    let cases = [
        ("echo canary; exit 3", "exit status: 3"),
        ("exit 0", "printed nothing"),
        ("head -c 100000 /dev/zero | tr '\\0' x", "more than"),
        ("printf 'canary\\001'", "no header can carry"),
    ];
    for (script, words) in cases {
        let upstream = of(&vendor, |spec| {
            spec.key_command = Some(KeyCommand {
                program: "sh".to_owned(),
                args: vec!["-c".to_owned(), script.to_owned()],
                lifetime: Duration::from_secs(1),
            });
        });
        let error = ask(&upstream).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words), "{script}: {text}");
        assert!(!text.contains("canary"), "{script}: {text}");
        assert!(!error.is_of_vendor(), "{script}");
    }
    assert!(vendor.requests().is_empty());
}

fn service_account(token_uri: &str) -> String {
    json!({
        "type": "service_account",
        "client_email": "robot@project.example",
        "private_key_id": "key-1",
        "private_key": RSA_KEY,
        "token_uri": token_uri,
    })
    .to_string()
}

#[tokio::test]
async fn a_service_account_asks_google_for_a_token() {
    let (vendor, google) = (
        vendor(),
        FakeVendor::start(Reply::json(
            r#"{"access_token":"ya29.canary","expires_in":3600,"token_type":"Bearer"}"#,
        ))
        .unwrap(),
    );
    let token_uri = google.url("/token");
    let upstream = of(&vendor, |spec| {
        spec.auth = UpstreamAuth::Vertex;
        spec.key = Some(service_account(&token_uri).into());
    });
    for _ in 0..3 {
        ask(&upstream).await.unwrap();
    }
    let asked = google.requests();
    assert_eq!(asked.len(), 1, "one token for all three");
    let body = String::from_utf8(asked[0].body.to_vec()).unwrap();
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
    let statement = body.strip_prefix(grant).unwrap();
    let (signed, signature) = statement.rsplit_once('.').unwrap();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let key = PrivatePkcs8KeyDer::from_pem_slice(RSA_KEY.as_bytes()).unwrap();
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key());
    public
        .verify(signed.as_bytes(), &decode(signature))
        .unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let read = |text: &str| serde_json::from_slice::<Value>(&decode(text)).unwrap();
    assert_eq!(
        read(header),
        json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"})
    );
    let claims = read(claims);
    assert_eq!(claims["iss"], "robot@project.example");
    assert_eq!(claims["aud"], token_uri.as_str());
    let lifetime = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(lifetime, 3600);
    for request in vendor.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer ya29.canary"));
    }
}

#[tokio::test]
async fn a_service_account_that_is_none_is_refused() {
    let refuse = |text: &str, words: &str| {
        let spec = HttpUpstreamSpec {
            auth: UpstreamAuth::Vertex,
            key: Some(text.into()),
            ..spec("https://h.example")
        };
        let error = HttpUpstream::new(spec).unwrap_err();
        assert!(error.message().contains(words), "{error:?}");
        assert!(!error.message().contains("canary"), "{error:?}");
    };
    refuse("canary", "not the JSON file");
    refuse(&service_account("http://far.example/token"), "not https");
    let wrong = service_account("https://h.example").replace("BEGIN PRIVATE", "BEGIN OTHER");
    refuse(&wrong, "PKCS #8");

    let google = FakeVendor::start(Reply::json(r#"{"error":"canary"}"#).status(400)).unwrap();
    let vendor = vendor();
    let upstream = of(&vendor, |spec| {
        spec.auth = UpstreamAuth::Vertex;
        spec.key = Some(service_account(&google.url("/token")).into());
    });
    let error = ask(&upstream).await.unwrap_err().to_string();
    assert!(
        error.contains("400") && !error.contains("canary"),
        "{error}"
    );
    assert!(vendor.requests().is_empty());
}

#[tokio::test]
async fn requests_to_bedrock_are_signed_and_show_no_secret() {
    let vendor = vendor();
    let keys = r#"{"Version":1,"AccessKeyId":"AKID","SecretAccessKey":"canary-secret","SessionToken":"session"}"#;
    let upstream = of(&vendor, |spec| {
        spec.auth = UpstreamAuth::Bedrock {
            region: "eu-west-1".to_owned(),
            service: "bedrock".to_owned(),
        };
        spec.key = Some(keys.into());
    });
    ask(&upstream).await.unwrap();
    let request = vendor.requests().pop().unwrap();
    let authorization = request.header("authorization").unwrap();
    let date = request.header("x-amz-date").unwrap();
    let scope = format!(
        "Credential=AKID/{}/eu-west-1/bedrock/aws4_request, ",
        &date[..8]
    );
    assert!(authorization.contains(&scope), "{authorization}");
    assert_eq!(request.header("x-amz-security-token"), Some("session"));
    assert!(!format!("{:?}", request.headers).contains("canary"));

    for wrong in ["canary", "{}", r#"{"AccessKeyId":"canary"}"#] {
        let error = HttpUpstream::new(HttpUpstreamSpec {
            auth: UpstreamAuth::Bedrock {
                region: "r".to_owned(),
                service: "s".to_owned(),
            },
            key: Some(wrong.into()),
            ..spec(vendor.url("/v1"))
        });
        let error = error.unwrap_err();
        assert!(error.message().contains("AccessKeyId"), "{error:?}");
        assert!(!error.message().contains("canary"), "{error:?}");
    }
}
