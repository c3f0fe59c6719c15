//! The settings of a session: which backend works, and how its changes reach the directory.

use abp_backend_acp::protocol::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode,
    SessionModeState,
};
use abp_control::ControlPlane;
use abp_core::ExecutionLane;

/// The id of the option that chooses the backend.
pub(crate) const BACKEND: &str = "backend";
/// The id of the option that chooses the lane; the modes of a session are its values.
pub(crate) const LANE: &str = "lane";
/// The backend that is chosen for each run.
const AUTO: &str = "auto";

/// The choices of the person at the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionSettings {
    pub(crate) backend: String,
    pub(crate) lane: ExecutionLane,
}

impl SessionSettings {
    /// The lane as a session mode.
    pub(crate) fn modes(&self) -> SessionModeState {
        let modes = LANES.map(|lane| {
            SessionMode::new(lane_id(lane), lane_name(lane))
                .description(lane_meaning(lane).to_owned())
        });
        SessionModeState::new(lane_id(self.lane), modes.to_vec())
    }

    /// Everything that can be chosen.
    pub(crate) fn options(&self, plane: &ControlPlane) -> Vec<SessionConfigOption> {
        let backends = backend_names(plane).into_iter();
        let backends: Vec<_> = backends
            .map(|name| SessionConfigSelectOption::new(name.clone(), name))
            .collect();
        let lanes = LANES.map(|lane| {
            SessionConfigSelectOption::new(lane_id(lane), lane_name(lane))
                .description(lane_meaning(lane).to_owned())
        });
        vec![
            SessionConfigOption::select(BACKEND, "Backend", self.backend.clone(), backends)
                .description("The agent or model that carries out the next prompt".to_owned()),
            SessionConfigOption::select(LANE, "Changes", lane_id(self.lane), lanes.to_vec())
                .description("How the changes of a run reach the directory".to_owned())
                .category(SessionConfigOptionCategory::Mode),
        ]
    }

    /// Takes another value for an option.
    ///
    /// # Errors
    /// Says which values there are.
    pub(crate) fn set(
        &mut self,
        option: &str,
        value: &str,
        plane: &ControlPlane,
    ) -> Result<(), String> {
        match option {
            BACKEND => {
                let names = backend_names(plane);
                if !names.iter().any(|name| name == value) {
                    let names = names.join(", ");
                    return Err(format!("no backend is named {value:?}; there are {names}"));
                }
                value.clone_into(&mut self.backend);
                Ok(())
            }
            LANE => {
                self.lane = lane(value).ok_or_else(|| {
                    let ids = LANES.map(lane_id).join(", ");
                    format!("no mode is named {value:?}; there are {ids}")
                })?;
                Ok(())
            }
            other => Err(format!(
                "no option is named {other:?}; there are {BACKEND}, {LANE}"
            )),
        }
    }
}

fn backend_names(plane: &ControlPlane) -> Vec<String> {
    let registered = plane.registry().backends();
    let registered = registered.map(|backend| backend.descriptor().name.clone());
    std::iter::once(AUTO.to_owned()).chain(registered).collect()
}

const LANES: [ExecutionLane; 2] = [ExecutionLane::PatchFirst, ExecutionLane::WorkspaceFirst];

fn lane(id: &str) -> Option<ExecutionLane> {
    LANES.into_iter().find(|lane| lane_id(*lane) == id)
}

fn lane_id(lane: ExecutionLane) -> &'static str {
    match lane {
        ExecutionLane::PatchFirst => "patch-first",
        ExecutionLane::WorkspaceFirst => "workspace-first",
    }
}

fn lane_name(lane: ExecutionLane) -> &'static str {
    match lane {
        ExecutionLane::PatchFirst => "Ask before applying",
        ExecutionLane::WorkspaceFirst => "Apply on success",
    }
}

fn lane_meaning(lane: ExecutionLane) -> &'static str {
    match lane {
        ExecutionLane::PatchFirst => {
            "The agent works on a stage; its changes are shown, and written when you allow it"
        }
        ExecutionLane::WorkspaceFirst => {
            "The agent works on a stage; its changes are written when the run succeeded"
        }
    }
}
