//! Fills in the state directory and the directory of stages, and keeps them apart.

use std::path::Path;

use serde_json::json;

use super::{Entry, Merge};
use crate::Sources;
use crate::check::Fault;
use crate::diagnostic::{Diagnostic, Problem, Problems};
use crate::directories::{Placed, default_stages_base, default_state_dir, stages_dir};

impl Merge {
    pub(super) fn settle_directories(&mut self, sources: &Sources, problems: &mut Problems) {
        for (key, default) in [
            ("state_dir", default_state_dir(&sources.env)),
            ("stages_dir", default_stages_base(&sources.env)),
        ] {
            if let Err(fault) = self.settle(key, default) {
                return problems.push(Diagnostic::from(fault).key(key));
            }
        }
        self.separate_stages(problems);
    }

    /// Puts the default in, unless a layer sets the directory.
    fn settle(&mut self, key: &str, default: Result<Placed, Fault>) -> Result<(), Fault> {
        let path = vec![key.to_owned()];
        if self.entries.contains_key(&path) {
            return Ok(());
        }
        let (directory, origin) = default?;
        let Some(text) = directory.to_str() else {
            let message = format!("{} is not valid Unicode", directory.display());
            return Err(Fault::new(Problem::InvalidValue, message));
        };
        let entry = Entry {
            value: json!(text),
            origin,
            place: None,
            item_spans: Vec::new(),
            items: Vec::new(),
        };
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Gives the state directory its own directory of stages.
    fn separate_stages(&mut self, problems: &mut Problems) {
        let [state, stages] = ["state_dir", "stages_dir"].map(|key| {
            let entry = self.entries.get([key.to_owned()].as_slice());
            entry
                .and_then(|entry| entry.value.as_str())
                .unwrap_or_default()
        });
        let settled = stages_dir(Path::new(stages), Path::new(state));
        let path = ["stages_dir".to_owned()];
        match (settled, self.entries.get(path.as_slice())) {
            (Err(fault), Some(entry)) => {
                let problem = Diagnostic::from(fault).key("stages_dir");
                problems.push(self.place(entry, None, problem));
            }
            (Err(fault), None) => problems.push(fault),
            (Ok(directory), _) => {
                if let Some(entry) = self.entries.get_mut(path.as_slice()) {
                    entry.value = json!(directory);
                }
            }
        }
    }
}
