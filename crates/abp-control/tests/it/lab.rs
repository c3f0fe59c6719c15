//! A control plane over directories of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use abp_control::{ControlPlane, OrderDraft, PolicyChoice, Principal, Submission};
use abp_core::Receipt;
use abp_runtime::{Decider, StartedRun};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Lab {
    pub(crate) home: TempDir,
    pub(crate) plane: ControlPlane,
}

impl Lab {
    /// A plane with a backend `writer` that writes these files, and with what `config` says.
    pub(crate) fn new(files: &[&str], config: Value) -> Self {
        let home = TempDir::new().unwrap();
        std::fs::create_dir(home.path().join("source")).unwrap();
        let state = home.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut all = config;
        all["state_dir"] = json!(state);
        all["stages_dir"] = json!(home.path().join("stages"));
        let steps: Vec<_> = files
            .iter()
            .map(|path| json!({"do": "write", "path": path, "content": "new\n"}))
            .collect();
        let script = json!({"name": "writer", "steps": steps});
        let script = serde_json::from_value(script).unwrap();
        let plane = ControlPlane::open(serde_json::from_value(all).unwrap(), &[script]).unwrap();
        Self { home, plane }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.home.path().join("source")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// Runs the writer on the source, to its end.
    pub(crate) async fn run(&self, policy: Value) -> Receipt {
        let root = self.source().to_str().unwrap().to_owned();
        let order = OrderDraft::new("write")
            .policy(PolicyChoice::Also(serde_json::from_value(policy).unwrap()))
            .with(|order| order.workspace.root = root)
            .build(&self.plane)
            .unwrap();
        let submission = Submission {
            backend: Some("writer".to_owned()),
            ..Submission::new(order)
        };
        let started = self.plane.run_here(&me(), submission).await.unwrap();
        let StartedRun::Started(handle) = started else {
            panic!("a new run");
        };
        handle.receipt.await.unwrap()
    }
}

pub(crate) fn me() -> Principal {
    Principal::local("ann")
}

pub(crate) fn ann() -> Decider {
    Decider {
        by: "ann".to_owned(),
        via: "test".to_owned(),
    }
}

pub(crate) fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
