//! Signatures, held against those that botocore 1.43 computes for the same requests. The vectors are made
//! up for this test.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    access_key_id: String,
    secret_access_key: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    method: String,
    host: String,
    path: String,
    query: String,
    body: String,
    region: String,
    service: String,
    session_token: Option<String>,
    time: String,
    authorization: String,
}

fn signed(vectors: &Vectors, case: &Case) -> Vec<(HeaderName, HeaderValue)> {
    let keys = AwsKeys {
        access_key_id: vectors.access_key_id.clone(),
        secret_access_key: vectors.secret_access_key.clone().into(),
        session_token: case.session_token.clone().map(Into::into),
    };
    let request = SignedRequest {
        method: &case.method.parse().unwrap(),
        path: &case.path,
        query: &case.query,
        host: &case.host.parse().unwrap(),
        body: &case.body.clone().into(),
    };
    let scope = SigningScope {
        region: case.region.clone(),
        service: case.service.clone(),
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", &case.time).unwrap();
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    sign(&request, &keys, &scope, time.timestamp()).unwrap()
}

#[test]
fn signatures_are_those_of_another_implementation() {
    let vectors: Vectors = serde_json::from_str(include_str!("vectors.json")).unwrap();
    assert!(vectors.cases.len() >= 5);
    for case in &vectors.cases {
        let headers = signed(&vectors, case);
        let of = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        let name = &case.name;
        assert_eq!(
            of("authorization").as_ref(),
            Some(&case.authorization),
            "{name}"
        );
        assert_eq!(of("x-amz-date").as_ref(), Some(&case.time), "{name}");
        assert_eq!(of("x-amz-security-token"), case.session_token, "{name}");
        // No debug output shows a credential.
        let shown = format!("{headers:?}");
        assert!(!shown.contains("Signature="), "{name}: {shown}");
    }
}
