//! Finishes or undoes an application that a crash interrupted.

use std::path::PathBuf;

use crate::Error;
use crate::application::{claim, recovery_needed};
use crate::commit::{Committer, Stop};
use crate::holding::Holding;
use crate::journal::{ApplyJournal, ApplyPhase};
use crate::rollback::Rollback;

/// The end of an interrupted application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// Everything is applied.
    Applied,
    /// Nothing is applied, because the user saved something since.
    RolledBack {
        /// The paths that have a save of the user. A file named `….abp-original` among them is an
        /// original whose own name the user has taken. Empty where a path was only removed or moved.
        saves: Vec<PathBuf>,
    },
    /// The application had not changed any name yet.
    NothingWritten,
}

/// Brings an application to its end: all of it, or none plus the saves of the user.
///
/// The content of the paths decides alone, so it may be killed at any moment and repeated.
///
/// # Errors
/// [`Error::SourceReplaced`] where the source is gone or another directory has its name,
/// [`Error::Busy`] where another process applies or recovers, [`Error::RecoveryNeeded`] where the
/// system refuses; all of them leave the journal valid for another attempt.
pub fn recover(journal: &ApplyJournal) -> Result<Recovered, Error> {
    let source = match journal.source.open() {
        // Nothing but copies was ever made, and they are gone with the source.
        Err(Error::SourceReplaced { .. }) if journal.phase == ApplyPhase::Preparing => {
            return Ok(Recovered::NothingWritten);
        }
        opened => opened?,
    };
    claim(&source, journal.source.path())?;
    let holding = Holding::open(&source, &journal.holding)?;
    let recovered = match journal.phase {
        ApplyPhase::Preparing => Recovered::NothingWritten,
        ApplyPhase::Finished => Recovered::Applied,
        ApplyPhase::Committing => finish(&Committer {
            source: &source,
            holding: holding.as_ref(),
            steps: &journal.steps,
        })?,
    };
    if let Some(holding) = &holding {
        holding.remove(&source)?;
    }
    Ok(recovered)
}

/// Rolls forward where every path is one of its two images, and back where the user has saved
/// anything else.
fn finish(committer: &Committer<'_>) -> Result<Recovered, Error> {
    let blocked = committer.blocked_paths().map_err(recovery_needed)?;
    if blocked.is_empty() {
        match committer.roll_forward() {
            Ok(()) => return Ok(Recovered::Applied),
            Err(Stop::Save(_)) => {}
            Err(Stop::Failed(path, error)) => {
                tracing::warn!(target: "abp.workspace", %error, path = %path.display(), "application cannot be finished and is undone");
            }
        }
    }
    let saves = Rollback::run(committer).map_err(recovery_needed)?;
    Ok(Recovered::RolledBack { saves })
}
