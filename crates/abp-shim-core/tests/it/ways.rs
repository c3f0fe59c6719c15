//! Two ways, the same answers.

use std::time::Duration;

use abp_core::ExecutionMode;
use abp_shim_core::{
    AbpInfo, ApiCall, ApiReply, Dialect, Error, FidelityLevel, ModelOperation, OnLoss, Principal,
    Transport, TransportError,
};
use abp_testkit::{ExchangeEnd, FakeVendor, Reply};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::streams::FORM;

impl Daemon {
    fn ways(&self) -> [Transport; 2] {
        [
            Transport::in_process(self.gateway.clone(), Principal::operator()),
            Transport::http(&FORM, &self.url, &self.key).expect("a transport"),
        ]
    }
}

fn call(model: &str, settings: &Value) -> ApiCall {
    let mut request = settings.clone();
    request["model"] = model.into();
    request["messages"] = json!([{ "role": "user", "content": "hello" }]);
    let operation = ModelOperation::Generate { stream: false };
    ApiCall::post(Dialect::OpenAi, operation, "/chat/completions", &request).expect("a call")
}

async fn ask(way: &Transport, call: ApiCall) -> Result<ApiReply<Value>, Error<Value>> {
    way.call(call).await
}

#[tokio::test]
async fn both_ways_answer_alike() {
    let daemon = Daemon::start().await;
    let mut answers = Vec::new();
    for way in daemon.ways() {
        let answer = ask(&way, call("mock", &json!({})))
            .await
            .expect("an answer");
        let expected = AbpInfo {
            run_id: answer.abp().run_id,
            backend: Some("mock".to_owned()),
            mode: Some(ExecutionMode::Passthrough),
            fidelity: Some(FidelityLevel::Lossless),
            ..AbpInfo::default()
        };
        assert!(expected.run_id.is_some());
        assert_eq!(*answer.abp(), expected);
        let error = ask(&way, call("mock-error-403", &json!({}))).await;
        let Err(Error::Api(error)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.status.map(|status| status.as_u16()), Some(403));
        answers.push((answer.into_inner(), error.body));
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test]
async fn losses_are_told_or_refused_on_both_ways() {
    let vendor = FakeVendor::start(Reply::fixture("claude/response_text.json").expect("a file"));
    let vendor = vendor.expect("a vendor");
    let daemon = Daemon::with_upstream("claude", &vendor.url("")).await;
    for way in daemon.ways() {
        let asked = call("claude-sonnet-4-5", &json!({ "seed": 7, "max_tokens": 9 }));
        let answer = ask(&way, asked.clone()).await.expect("an answer");
        let abp = answer.abp();
        assert_eq!(abp.mode, Some(ExecutionMode::Mapped));
        assert_eq!(abp.fidelity, Some(FidelityLevel::LossyLabeled));
        assert!(abp.losses > 0, "{abp:?}");
        let error = ask(&way.on_loss(OnLoss::Reject), asked).await;
        let Err(Error::Api(error)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(
            error.abp.error_code.as_deref(),
            Some("MAPPING_LOSSY_CONVERSION")
        );
    }
    assert_eq!(vendor.requests().len(), 2, "what was refused was not sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lets_go_in_process_ends_the_exchange_with_the_upstream() {
    let vendor = FakeVendor::start(Reply::silence()).expect("a vendor");
    let daemon = Daemon::with_upstream("openai", &vendor.url("/v1")).await;
    let [in_process, _] = daemon.ways();
    let asking = ask(&in_process, call("gpt-4o", &json!({})));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), asking)
            .await
            .is_err()
    );
    assert!(vendor.wait_until(|requests| {
        matches!(requests, [request] if matches!(request.end, ExchangeEnd::Aborted { .. }))
    }));
}

#[tokio::test]
async fn a_daemon_that_is_not_there_or_does_not_know_the_key() {
    let daemon = Daemon::start().await;
    let stranger = Transport::http(&FORM, &daemon.url, "abp_wrong").expect("a transport");
    let error = ask(&stranger, call("mock", &json!({})))
        .await
        .expect_err("no key");
    assert_eq!(error.status().map(|status| status.as_u16()), Some(401));
    let nobody = Transport::http(&FORM, "http://127.0.0.1:1", "key").expect("a transport");
    let error = ask(&nobody, call("mock", &json!({}))).await;
    assert!(
        matches!(error, Err(Error::Transport(TransportError::NoAnswer(_)))),
        "{error:?}"
    );
    let nowhere = Transport::from_env(&FORM).expect_err("no variable");
    assert!(
        nowhere.to_string().contains("ABP_SHIM_TEST_URL"),
        "{nowhere}"
    );
}
