//! Benchmarks by name, one module each.

mod console;
mod control;
mod egress;
mod gateway;
mod growth;
mod json;
mod mcp;
mod present;
mod run;
mod run_start;
mod sidecar;
mod staging;
mod store;
mod translate;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::output::say;

/// A new benchmark is a module of this one and a line here.
const BENCHES: &[Bench] = &[
    Bench {
        name: "console",
        run: console::run,
    },
    Bench {
        name: "control",
        run: control::run,
    },
    Bench {
        name: "egress",
        run: egress::run,
    },
    Bench {
        name: "gateway",
        run: gateway::run,
    },
    Bench {
        name: "growth",
        run: growth::run,
    },
    Bench {
        name: "json",
        run: json::run,
    },
    Bench {
        name: "mcp",
        run: mcp::run,
    },
    Bench {
        name: "present",
        run: present::run,
    },
    Bench {
        name: "run",
        run: run::run,
    },
    Bench {
        name: "run-start",
        run: run_start::run,
    },
    Bench {
        name: "sidecar",
        run: sidecar::run,
    },
    Bench {
        name: "staging",
        run: staging::run,
    },
    Bench {
        name: "store",
        run: store::run,
    },
    Bench {
        name: "translate",
        run: translate::run,
    },
];

struct Bench {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// Plays a part in a benchmark where this process was started for it.
pub(crate) fn run_if_role() -> Option<ExitCode> {
    sidecar::run_if_sidecar()
        .or_else(gateway::run_if_role)
        .or_else(translate::run_if_role)
}

pub(crate) fn start(name: &str) -> Result<()> {
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("no benchmark is named {name}; known: {}", known.join(", "));
    };
    if cfg!(debug_assertions) {
        say(format_args!(
            "warning: not optimised, the figures mean nothing; use `cargo run --release -p xtask -- bench {name}`"
        ));
    }
    (bench.run)()
}
