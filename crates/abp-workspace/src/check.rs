//! Layers on which the result of a run can be tried out without being changed.
//!
//! A check builds and writes caches like any other program, and the stage has to stay what was verified. So
//! the check gets one more overlay over each layer of the run:
//!
//! ```text
//! run     top: tree         over: mask, source
//! check   top: check/0/tree over: tree, mask, source
//! ```

use abp_sandbox::Overlay;
use rustix::io::Errno;

use crate::Error;
use crate::dir::Dir;
use crate::prepared::PreparedWorkspace;
use crate::remove::{clear, gone};
use crate::stage::{CHECK, TREE, WORK};

impl PreparedWorkspace {
    /// Makes the layers of a check. Its sandbox has to mount them, and sees the result of the run;
    /// [`Self::remove_check_layers`] throws away what the check wrote.
    ///
    /// # Errors
    /// [`Error::NotStaged`] in place, where every write is to the user's own files.
    pub fn make_check_layers(&self) -> Result<Vec<Overlay>, Error> {
        if !self.is_staged {
            return Err(Error::NotStaged);
        }
        let all = self.stage.create_dir(CHECK)?;
        let is_root = |overlay: &Overlay| overlay.target == self.root;
        let own = Overlay {
            target: self.root.clone(),
            lower: Vec::new(),
            upper: self.root.clone(),
            work: self.root.clone(),
        };
        let has_root = self.overlays.iter().any(is_root);
        let own = (!has_root).then_some(&own);
        let mut layers = Vec::new();
        for (number, overlay) in own.into_iter().chain(&self.overlays).enumerate() {
            let name = number.to_string();
            make_layer(&all, &name).map_err(|error| self.stage.failed(error))?;
            let place = self.stage.path.join(CHECK).join(name);
            let mut lower = vec![overlay.upper.clone()];
            lower.extend(overlay.lower.iter().cloned());
            layers.push(Overlay {
                target: overlay.target.clone(),
                lower,
                upper: place.join(TREE),
                work: place.join(WORK),
            });
        }
        Ok(layers)
    }

    /// Removes the layers of a check with everything it wrote.
    ///
    /// # Errors
    /// Fails where something cannot be removed.
    pub fn remove_check_layers(&self) -> Result<(), Error> {
        let stage = &self.stage.dir;
        let removed = match stage.open_dir(CHECK.as_bytes()) {
            Err(Errno::NOENT) => Ok(()),
            opened => opened
                .and_then(|all| clear(&all, None))
                .and_then(|_| gone(stage.remove_dir(CHECK.as_bytes()))),
        };
        removed.map_err(|error| self.stage.failed(error))
    }
}

fn make_layer(all: &Dir, name: &str) -> rustix::io::Result<()> {
    let own = all.create_dir(name.as_bytes(), 0o700)?;
    own.create_dir(TREE.as_bytes(), 0o755)?;
    own.create_dir(WORK.as_bytes(), 0o700)?;
    Ok(())
}
