//! Whether each backend could be opened. None is.

use abp_control::{BackendHealth, ControlPlane};

use super::{Check, Status};

pub(super) fn checks(plane: &ControlPlane) -> Vec<Check> {
    plane.check_backends().into_iter().map(check).collect()
}

fn check(health: BackendHealth) -> Check {
    let BackendHealth {
        name,
        is_default,
        reached_by,
        problem,
    } = health;
    let (status, detail) = match problem {
        None => (Status::Ok, reached_by),
        // Runs that name no backend fail.
        Some(problem) if is_default => (
            Status::Failed,
            format!("{problem}; it is the default backend"),
        ),
        Some(problem) => (Status::Warning, problem),
    };
    Check::new(format!("backend {name}"), status, detail)
}
