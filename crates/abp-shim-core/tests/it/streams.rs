//! However a stream ends, the caller learns how.

use std::fmt;
use std::time::Duration;

use abp_shim_core::{
    AbpInfo, ApiCall, ApiError, ApiStream, Dialect, Error, FidelityLevel, HttpForm, KeyHeader,
    ModelOperation, StreamReader, StreamStep, Transport, Unreadable, read_json,
};
use abp_testkit::{Cut, ExchangeEnd, FakeVendor, Reply};
use http::StatusCode;
use serde::Deserialize;

pub(crate) const FORM: HttpForm = HttpForm {
    version: "/v1",
    key_header: KeyHeader::Plain("x-api-key"),
    base_url_variable: "ABP_SHIM_TEST_URL",
    key_variable: "ABP_SHIM_TEST_KEY",
};

/// Events are numbers; 0 is the last one, and an object is an error.
#[derive(Default)]
pub(crate) struct Numbers;

#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) trouble: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.trouble)
    }
}

impl StreamReader for Numbers {
    type Event = u64;
    type ErrorBody = Trouble;

    fn read(&mut self, data: &str) -> Result<StreamStep<u64, Trouble>, Unreadable> {
        match read_json(data) {
            Ok(0) => Ok(StreamStep::End(Some(0))),
            Ok(number) => Ok(StreamStep::More(number)),
            Err(_) => Ok(StreamStep::Failed(None, read_json(data)?)),
        }
    }

    fn may_end(&self) -> bool {
        false
    }
}

fn call() -> ApiCall {
    let operation = ModelOperation::Generate { stream: true };
    ApiCall::post(Dialect::Claude, operation, "/numbers", &()).expect("a call")
}

async fn open(vendor: &FakeVendor) -> Result<ApiStream<Numbers>, Error<Trouble>> {
    let transport = Transport::http(&FORM, &vendor.url(""), "key").expect("a transport");
    transport.stream(call(), Numbers).await
}

/// All pieces, and the words of the error at the end.
async fn followed(reply: Reply) -> (Vec<u64>, Option<String>) {
    let vendor = FakeVendor::start(reply).expect("a vendor");
    let mut stream = match open(&vendor).await {
        Ok(stream) => stream,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let mut pieces = Vec::new();
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(number) => pieces.push(number),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (pieces, Some(error.to_string()));
            }
        }
    }
    (pieces, None)
}

#[tokio::test]
async fn a_stream_ends_well_only_where_it_says_so() {
    let events = |text: &'static str| Reply::events(text);
    let cases = [
        (events("data: 1\n\n: ping\n\ndata: 0\n\n"), vec![1, 0], None),
        (events("data: 1\n\ndata: 0"), vec![1, 0], None),
        (
            events("data: 0\n\ndata: rest is not read\n\n"),
            vec![0],
            None,
        ),
        (events("data: 1\n\n"), vec![1], Some("it has no end")),
        (events(""), vec![], Some("it has no end")),
        (events("data: 1\n\ndata: {\"tro"), vec![1], Some("cut off")),
        (
            events("data: 1\n\ndata: {\"trouble\":\"late\"}\n\n"),
            vec![1],
            Some("late"),
        ),
        (
            events("data: word\n\ndata: 0\n\n"),
            vec![],
            Some("cannot be read"),
        ),
        (
            Reply::events(&b"data: 1\n\ndata: \xff\n\ndata: 0\n\n"[..]),
            vec![1],
            Some("not UTF-8"),
        ),
        (
            events("data: 1\n\ndata: 0\n\n").in_chunks(1),
            vec![1, 0],
            None,
        ),
        (
            events("data: 1\n\ndata: 0\n\n").cut_at(9, Cut::Reset),
            vec![1],
            Some("broke off"),
        ),
        (
            events("data: 1\n\ndata: 0\n\n").cut_at(9, Cut::Eof),
            vec![1],
            Some("broke off"),
        ),
        // What comes after the end does not matter.
        (
            events("data: 0\n\ndata: 2\n\n").cut_at(9, Cut::Reset),
            vec![0],
            None,
        ),
        (
            Reply::json(r#"{"trouble":"early"}"#).status(503),
            vec![],
            Some("status 503: early"),
        ),
        (Reply::html().status(502), vec![], Some("Please sign in")),
        (
            Reply::redirect("http://127.0.0.1:1/"),
            vec![],
            Some("status 307"),
        ),
    ];
    for (reply, expected, problem) in cases {
        let case = format!("{reply:?}");
        let (pieces, error) = followed(reply).await;
        assert_eq!(pieces, expected, "{case}");
        match (problem, &error) {
            (None, None) => {}
            (Some(problem), Some(error)) if error.contains(problem) => {}
            _ => panic!("{case}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn an_error_tells_whatever_is_known_of_it() {
    let reply = Reply::json(r#"{"trouble":"busy"}"#).status(429);
    let reply = reply
        .header("retry-after", "2")
        .header("x-request-id", "req_1");
    let vendor = FakeVendor::start(reply).expect("a vendor");
    let Err(Error::Api(error)) = open(&vendor).await else {
        panic!("no error");
    };
    let expected = ApiError {
        status: Some(StatusCode::TOO_MANY_REQUESTS),
        body: Trouble {
            trouble: "busy".to_owned(),
        },
        request_id: Some("req_1".to_owned()),
        retry_after: Some(Duration::from_secs(2)),
        abp: AbpInfo::default(),
    };
    assert_eq!(*error, expected);
}

#[tokio::test]
async fn what_became_of_the_answer_is_heard_at_its_end() {
    let events = "data: 1\n\ndata: 0\n\n: x-abp-fidelity: lossy;n=2\n\n";
    for chunk in [1, 12, events.len()] {
        let reply = Reply::events(events)
            .header("x-abp-mode", "mapped")
            .header("x-abp-fidelity", "lossless")
            .in_chunks(chunk);
        let vendor = FakeVendor::start(reply).expect("a vendor");
        let mut stream = open(&vendor).await.expect("a stream");
        assert_eq!(stream.abp().fidelity, Some(FidelityLevel::Lossless));
        while stream.next().await.is_some() {}
        let told = (stream.abp().fidelity, stream.abp().losses);
        assert_eq!(told, (Some(FidelityLevel::LossyLabeled), 2), "{chunk}");
    }
}

#[tokio::test]
async fn connections_are_used_again_after_a_stream() {
    let vendor = FakeVendor::start(Reply::events("data: 0\n\n").in_chunks(9)).expect("a vendor");
    let transport = Transport::http(&FORM, &vendor.url("/v1/"), "key").expect("a transport");
    for _ in 0..3 {
        let mut stream = transport.stream(call(), Numbers).await.expect("a stream");
        while stream.next().await.is_some() {}
    }
    assert_eq!(vendor.connections(), 1);
    let request = vendor.requests().remove(0);
    assert_eq!(request.path, "/v1/numbers");
    assert_eq!(request.header("x-api-key"), Some("key"));
    assert!(!format!("{transport:?}").contains("key\""), "{transport:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lets_go_ends_the_exchange() {
    let aborted = |vendor: &FakeVendor| {
        vendor.wait_until(|requests| {
            matches!(requests, [request] if matches!(request.end, ExchangeEnd::Aborted { .. }))
        })
    };
    let vendor = FakeVendor::start(Reply::events("data: 1\n\n").stall_at(9)).expect("a vendor");
    let mut stream = open(&vendor).await.expect("a stream");
    assert_eq!(stream.next().await.and_then(Result::ok), Some(1));
    drop(stream);
    assert!(aborted(&vendor), "{:?}", vendor.requests());

    let vendor = FakeVendor::start(Reply::silence()).expect("a vendor");
    let waited = tokio::time::timeout(Duration::from_millis(100), open(&vendor)).await;
    assert!(waited.is_err());
    assert!(aborted(&vendor), "{:?}", vendor.requests());
}
