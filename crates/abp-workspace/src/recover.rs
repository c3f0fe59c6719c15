//! Finishes or undoes an application that a crash interrupted.

use std::path::PathBuf;

use crate::Error;
use crate::application::{claim, recovery_needed};
use crate::commit::{Committer, Stop, stopped};
use crate::dir::path_of;
use crate::holding::Holding;
use crate::journal::{ApplyJournal, ApplyPhase, Operation};
use crate::rollback::Rollback;

/// The end of an interrupted application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryOutcome {
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
pub fn recover(journal: &ApplyJournal) -> Result<RecoveryOutcome, Error> {
    let source = match journal.source.open() {
        // Nothing but copies was ever made, and they are gone with the source.
        Err(Error::SourceReplaced { .. }) if journal.phase == ApplyPhase::Preparing => {
            return Ok(RecoveryOutcome::NothingWritten);
        }
        opened => opened?,
    };
    claim(&source, journal.source.path())?;
    let holding = Holding::open(&source, &journal.holding)?;
    let recovered = match journal.phase {
        ApplyPhase::Preparing => RecoveryOutcome::NothingWritten,
        ApplyPhase::Finished => RecoveryOutcome::Applied,
        ApplyPhase::Committing => {
            let committer = Committer {
                source: &source,
                holding: holding.as_ref(),
                steps: &journal.steps,
            };
            if holding.is_some() {
                finish(&committer)?
            } else {
                tell_end(&committer)?
            }
        }
    };
    if let Some(holding) = &holding {
        holding.remove(&source)?;
    }
    Ok(recovered)
}

/// Rolls forward where every path is one of its two images, and back where the user has saved
/// anything else.
fn finish(committer: &Committer<'_>) -> Result<RecoveryOutcome, Error> {
    let blocked = committer.blocked_paths().map_err(recovery_needed)?;
    if blocked.is_empty() {
        match committer.roll_forward() {
            Ok(()) => return Ok(RecoveryOutcome::Applied),
            Err(Stop::Save(_)) => {}
            Err(Stop::Failed(path, error)) => {
                tracing::warn!(target: "abp.workspace", %error, path = %path.display(), "application cannot be finished and is undone");
            }
        }
    }
    let saves = Rollback::run(committer).map_err(recovery_needed)?;
    Ok(RecoveryOutcome::RolledBack { saves })
}

/// Tells the end of an application that is over: the holding directory goes last, so its absence
/// means that an earlier recovery came to the end, and only its caller did not hear of it. Later
/// changes of the user must not undo anything then.
fn tell_end(committer: &Committer<'_>) -> Result<RecoveryOutcome, Error> {
    let (mut applied, mut undone, mut saves) = (Vec::new(), false, Vec::new());
    for step in committer.steps {
        // A directory that was to be removed may have stayed with other files in it.
        if step.operation() == Some(Operation::RemoveDirectory) {
            continue;
        }
        let at_path = committer.at_path(step);
        let at_path = at_path.map_err(|error| recovery_needed(stopped(step, error)))?;
        let path = path_of(&step.path).to_owned();
        if at_path == step.after {
            applied.push(path);
        } else if at_path == step.before {
            undone = true;
        } else {
            saves.push(path);
        }
    }
    if !undone {
        return Ok(RecoveryOutcome::Applied);
    }
    // Both at once only where the holding directory was removed by other hands.
    saves.append(&mut applied);
    saves.sort_unstable();
    Ok(RecoveryOutcome::RolledBack { saves })
}
