//! Going on with an agent's session.

use abp_backend_core::{AgentSession, SessionUse};
use abp_core::{AgentEventKind, Outcome, PolicyProfile, Receipt};
use abp_error::ErrorCode;
use abp_runtime::RunOptions;
use uuid::Uuid;

use crate::lab::Lab;

fn session_of(receipt: &Receipt) -> String {
    let mut events = receipt.trace.iter();
    let id = events.find_map(|event| match &event.kind {
        AgentEventKind::SessionStarted { session_id } => Some(session_id.clone()),
        _ => None,
    });
    id.unwrap()
}

async fn go_on(lab: &Lab, run_id: Uuid, session_id: &str, usage: SessionUse) -> Receipt {
    let options = RunOptions {
        session: Some(AgentSession {
            run_id,
            session_id: session_id.to_owned(),
            usage,
        }),
        ..RunOptions::default()
    };
    lab.run_with(lab.order(PolicyProfile::default()), options)
        .await
}

#[tokio::test]
async fn a_later_run_goes_on_with_a_copy_of_the_agents_directory() {
    let lab = Lab::new("good");
    let first = lab.run(PolicyProfile::default()).await;
    let (id, session) = (first.meta.run_id, session_of(&first));
    std::fs::write(lab.homes().join(id.to_string()).join("memory"), "m").unwrap();
    let second = go_on(&lab, id, &session, SessionUse::Continue).await;
    assert_eq!(second.outcome, Outcome::Complete, "{:?}", second.error);
    assert_eq!(session_of(&second), session);
    let copy = lab
        .homes()
        .join(second.meta.run_id.to_string())
        .join("memory");
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "m");
    // Replayed updates of the earlier run are no part of this one.
    let text = serde_json::to_string(&second.trace).unwrap();
    assert!(!text.contains("of an earlier run"), "{text}");
}

#[tokio::test]
async fn what_an_agent_cannot_do_is_refused_before_it_gets_its_task() {
    let lab = Lab::new("good");
    let first = lab.run(PolicyProfile::default()).await;
    let id = first.meta.run_id;
    let forked = go_on(&lab, id, "s", SessionUse::Fork).await;
    let code = forked.error.as_ref().map(|error| error.code);
    assert_eq!(code, Some(ErrorCode::CapabilityUnsupported));
    let gone = go_on(&lab, Uuid::new_v4(), "s", SessionUse::Continue).await;
    let code = gone.error.as_ref().map(|error| error.code);
    assert_eq!(code, Some(ErrorCode::ValidationFailed));
}
