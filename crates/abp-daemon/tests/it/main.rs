//! The daemon as its callers and its enemies meet it.

#[cfg(test)]
mod assist;
#[cfg(test)]
mod attempts;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod control_approvals;
#[cfg(test)]
mod control_routes;
#[cfg(test)]
mod control_runs;
#[cfg(test)]
mod control_sessions;
#[cfg(test)]
mod control_uploads;
#[cfg(test)]
mod control_webhooks;
#[cfg(test)]
mod control_ws;
#[cfg(test)]
mod emulation;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod other;
#[cfg(test)]
mod passthrough;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod sampling;
#[cfg(test)]
mod secluded;
#[cfg(test)]
mod spending;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod truth;
