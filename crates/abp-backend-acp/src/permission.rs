//! Answers to permission requests.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome,
};

/// The decision of the run's gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateDecision {
    Allowed,
    Denied,
    /// The run is over.
    Stopped,
}

/// The answer to a request: the option for this one use, chosen by its kind and never by its place. Where the
/// agent offers only a lasting option it is taken for a denial, and for an allowance as well: every further
/// call is announced and judged all the same. Without a fitting option the request counts as cancelled.
pub(crate) fn answer(
    options: &[PermissionOption],
    decision: GateDecision,
) -> RequestPermissionOutcome {
    let kinds = match decision {
        GateDecision::Allowed => [
            PermissionOptionKind::AllowOnce,
            PermissionOptionKind::AllowAlways,
        ],
        GateDecision::Denied => [
            PermissionOptionKind::RejectOnce,
            PermissionOptionKind::RejectAlways,
        ],
        GateDecision::Stopped => return RequestPermissionOutcome::Cancelled,
    };
    let fitting = kinds
        .iter()
        .find_map(|kind| options.iter().find(|option| option.kind == *kind));
    match fitting {
        Some(option) => {
            let chosen = SelectedPermissionOutcome::new(option.option_id.clone());
            RequestPermissionOutcome::Selected(chosen)
        }
        None => RequestPermissionOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_chosen_by_its_kind() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let all = [AllowAlways, RejectAlways, AllowOnce, RejectOnce];
        let cases = [
            (&all[..], GateDecision::Allowed, Some("AllowOnce")),
            (&all[..], GateDecision::Denied, Some("RejectOnce")),
            (&all[..], GateDecision::Stopped, None),
            (&[AllowAlways], GateDecision::Allowed, Some("AllowAlways")),
            (&[AllowAlways], GateDecision::Denied, None),
            (&[RejectAlways], GateDecision::Denied, Some("RejectAlways")),
            (&[RejectOnce], GateDecision::Allowed, None),
            (&[], GateDecision::Denied, None),
        ];
        for (kinds, decision, expected) in cases {
            let options = kinds.iter();
            let options = options.map(|kind| {
                let id = format!("{kind:?}");
                PermissionOption::new(id, "words", *kind)
            });
            let options: Vec<_> = options.collect();
            let chosen = match answer(&options, decision) {
                RequestPermissionOutcome::Selected(chosen) => Some(chosen.option_id.to_string()),
                _ => None,
            };
            assert_eq!(chosen.as_deref(), expected, "{kinds:?} {decision:?}");
        }
    }
}
