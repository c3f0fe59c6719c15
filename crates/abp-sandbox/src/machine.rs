//! The machine that sandboxes are made on.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{KernelFeatures, Launcher, SandboxError, SandboxPlan, SandboxRequest, SystemLayout};

/// The machine, looked at once and when first needed.
#[derive(Debug)]
pub struct Machine {
    launcher: Launcher,
    home: Option<PathBuf>,
    known: OnceLock<Result<MachineFacts, String>>,
}

#[derive(Debug)]
struct MachineFacts {
    system: SystemLayout,
    kernel: KernelFeatures,
}

impl Machine {
    /// This machine, as far as a launcher finds it. `home` is the user's home directory.
    #[must_use]
    pub fn new(launcher: Launcher, home: Option<PathBuf>) -> Self {
        Self {
            launcher,
            home,
            known: OnceLock::new(),
        }
    }

    /// The layers that the kernel offers.
    ///
    /// # Errors
    /// Fails where that cannot be found out.
    pub fn kernel(&self) -> Result<&KernelFeatures, SandboxError> {
        self.known().map(|known| &known.kernel)
    }

    /// The parts of the machine that plans are made of.
    ///
    /// # Errors
    /// As [`Self::kernel`].
    pub fn system(&self) -> Result<&SystemLayout, SandboxError> {
        self.known().map(|known| &known.system)
    }

    /// Plans a sandbox.
    ///
    /// # Errors
    /// As [`SandboxPlan::new`], and where the machine cannot be looked at.
    pub fn plan(&self, request: &SandboxRequest) -> Result<SandboxPlan, SandboxError> {
        let known = self.known()?;
        SandboxPlan::new(request, &known.system, &known.kernel)
    }

    fn known(&self) -> Result<&MachineFacts, SandboxError> {
        let known = self.known.get_or_init(|| {
            let known = || {
                Ok(MachineFacts {
                    system: SystemLayout::read(self.home.as_deref())?,
                    kernel: KernelFeatures::probe(&self.launcher)?,
                })
            };
            known().map_err(|error: std::io::Error| error.to_string())
        });
        known.as_ref().map_err(|reason| SandboxError::Unknown {
            reason: reason.clone(),
        })
    }
}
