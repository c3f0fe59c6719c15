//! The life of a run: one pure state machine.
//!
//! ```text
//!            claim              ask
//!  queued ─────────► running ─────────► awaiting_approval
//!    ▲  ▲             │ │ ▲  ◄───────── │ │
//!    │  └─ give back ─┘ │ │    settle   │ │
//!    └──── give back ───┼─┼─────────────┘ │
//!                       │ └── take over ──┘
//!                finish ▼                 ▼ finish
//!            complete │ partial │ failed │ cancelled
//! ```
//!
//! The transactions of the store ask it before they write, so a step that it does not have cannot be
//! stored. It knows nothing of time or of processes: [`RunStanding`] adds who holds the lease.

use crate::RunState;

/// Something that changes the state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LifecycleStep {
    /// A process begins to carry it out.
    Claim,
    /// It asks a person and waits.
    Ask,
    /// The question has its answer, and the run goes on.
    Settle,
    /// Its process gives it back, so that another attempt is made.
    GiveBack,
    /// Another process takes it over, because its own is gone or let the lease end.
    TakeOver,
    /// It ends, with its receipt.
    Finish(Ending),
}

/// The final states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// All of the work is done.
    Complete,
    /// Some of the work is done.
    Partial,
    /// The work failed.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

impl Ending {
    /// Every ending.
    pub const ALL: [Self; 4] = [Self::Complete, Self::Partial, Self::Failed, Self::Cancelled];

    /// The state of a run that ended so.
    #[must_use]
    pub const fn state(self) -> RunState {
        match self {
            Self::Complete => RunState::Complete,
            Self::Partial => RunState::Partial,
            Self::Failed => RunState::Failed,
            Self::Cancelled => RunState::Cancelled,
        }
    }

    /// The ending that a receipt names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|ending| ending.state().as_str() == name)
    }
}

impl LifecycleStep {
    /// Every step.
    pub const ALL: [Self; 9] = [
        Self::Claim,
        Self::Ask,
        Self::Settle,
        Self::GiveBack,
        Self::TakeOver,
        Self::Finish(Ending::Complete),
        Self::Finish(Ending::Partial),
        Self::Finish(Ending::Failed),
        Self::Finish(Ending::Cancelled),
    ];

    /// Whether it makes a new lease, which ends all earlier ones.
    #[must_use]
    pub const fn takes_lease(self) -> bool {
        match self {
            Self::Claim | Self::TakeOver => true,
            Self::Ask | Self::Settle | Self::GiveBack | Self::Finish(_) => false,
        }
    }
}

/// The state after a step; `None` where a run in that state cannot take it.
#[must_use]
pub const fn after(state: RunState, step: LifecycleStep) -> Option<RunState> {
    use LifecycleStep as Step;
    use RunState as State;
    match (state, step) {
        (State::Queued, Step::Claim) => Some(State::Running),
        (
            State::Queued,
            Step::Ask | Step::Settle | Step::GiveBack | Step::TakeOver | Step::Finish(_),
        ) => None,
        // A run may ask again before its process has settled an answer that another attempt was given.
        (State::Running | State::AwaitingApproval, Step::Ask) => Some(State::AwaitingApproval),
        (State::Running | State::AwaitingApproval, Step::Settle | Step::TakeOver) => {
            Some(State::Running)
        }
        (State::Running | State::AwaitingApproval, Step::GiveBack) => Some(State::Queued),
        (State::Running | State::AwaitingApproval, Step::Finish(ending)) => Some(ending.state()),
        (State::Running | State::AwaitingApproval, Step::Claim) => None,
        (State::Complete | State::Partial | State::Failed | State::Cancelled, _) => None,
    }
}

/// What decides whether a write for a run is taken: its state, and who holds its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStanding {
    /// The state.
    pub state: RunState,
    /// Counts the leases; the newest is the one that counts.
    pub epoch: u64,
}

/// Why a step is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRefused {
    /// The run has ended.
    Ended,
    /// Another lease is newer, or nobody holds one.
    Fenced,
    /// The run is not in a state in which it could be done.
    NotNow,
}

impl RunStanding {
    /// The standing of a run that was submitted.
    pub const QUEUED: Self = Self {
        state: RunState::Queued,
        epoch: 0,
    };

    /// Takes a step, for the holder of the lease with that epoch where the step is not one that makes a
    /// lease.
    ///
    /// # Errors
    /// Says why it is refused; nothing is changed then.
    pub const fn step(self, step: LifecycleStep, epoch: u64) -> Result<Self, StepRefused> {
        if self.state.is_final() {
            return Err(StepRefused::Ended);
        }
        if !step.takes_lease() && (epoch != self.epoch || matches!(self.state, RunState::Queued)) {
            return Err(StepRefused::Fenced);
        }
        let Some(state) = after(self.state, step) else {
            return Err(StepRefused::NotNow);
        };
        Ok(Self {
            state,
            epoch: if step.takes_lease() {
                self.epoch + 1
            } else {
                self.epoch
            },
        })
    }
}

/// What becomes of a run that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Another attempt is made.
    GiveBack,
    /// It ends with a receipt that says so.
    End,
}

impl Recovery {
    /// Decides by the attempts that were made and may be made, whether what the run was submitted with is
    /// stored, and whether somebody cancelled it.
    #[must_use]
    pub const fn decide(
        attempt: u32,
        max_attempts: u32,
        has_submission: bool,
        is_cancelled: bool,
    ) -> Self {
        if has_submission && attempt < max_attempts && !is_cancelled {
            Self::GiveBack
        } else {
            Self::End
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Final states are final, every other state can reach the end, and only `queued` waits.
    #[test]
    fn every_run_can_end_and_stays_ended() {
        for state in RunState::ALL {
            let next: Vec<RunState> = LifecycleStep::ALL
                .into_iter()
                .filter_map(|step| after(state, step))
                .collect();
            assert_eq!(next.is_empty(), state.is_final(), "{state}");
            let ends = |state: RunState| {
                LifecycleStep::ALL
                    .into_iter()
                    .filter_map(move |step| after(state, step))
                    .any(RunState::is_final)
            };
            let reaches_end = state.is_final() || ends(state) || next.iter().any(|one| ends(*one));
            assert!(reaches_end, "{state}");
        }
    }

    proptest! {
        /// Whatever is tried by whomever: epochs never fall, a smaller epoch changes nothing, a run ends at
        /// most once, and only steps that make a lease make one.
        #[test]
        fn a_smaller_epoch_changes_nothing(
            tries in prop::collection::vec((0..LifecycleStep::ALL.len(), 0_u64..6), 0..60)
        ) {
            let mut standing = RunStanding::QUEUED;
            let mut endings = 0;
            for (step, epoch) in tries {
                let step = LifecycleStep::ALL[step];
                match standing.step(step, epoch) {
                    Ok(next) => {
                        prop_assert!(step.takes_lease() || epoch == standing.epoch);
                        prop_assert_eq!(next.epoch, standing.epoch + u64::from(step.takes_lease()));
                        prop_assert!(!standing.state.is_final());
                        endings += u32::from(next.state.is_final());
                        standing = next;
                    }
                    Err(refused) => {
                        prop_assert_eq!(refused == StepRefused::Ended, standing.state.is_final());
                    }
                }
            }
            prop_assert!(endings <= 1);
        }
    }
}
