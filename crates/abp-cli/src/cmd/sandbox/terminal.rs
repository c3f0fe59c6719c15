//! A terminal of its own for an interactive program, so that it cannot type into ours.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::thread;

use abp_host::GivenStreams;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

/// A pair of terminals: the program has one end, we have the other.
#[derive(Debug)]
pub(super) struct Terminal {
    ours: OwnedFd,
    theirs: OwnedFd,
}

/// Carries characters between our terminal and the program's. Our terminal is as before when this ends.
#[derive(Debug)]
pub(super) struct Relay {
    before: Termios,
    resizing: JoinHandle<()>,
    showing: Option<thread::JoinHandle<()>>,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let name = std::ffi::OsString::from_vec(name.into_bytes());
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = open(&*name, flags, Mode::empty())?;
        resize(&ours);
        Ok(Self { ours, theirs })
    }

    pub(super) fn streams(&self) -> io::Result<GivenStreams> {
        Ok(GivenStreams {
            input: self.theirs.try_clone()?,
            output: self.theirs.try_clone()?,
            errors: self.theirs.try_clone()?,
            is_terminal: true,
        })
    }

    /// Starts to carry characters.
    pub(super) fn relay(self) -> io::Result<Relay> {
        let Self { ours, theirs } = self;
        // The end of the program's output is seen only when nobody else holds its end.
        drop(theirs);
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let mut to_program = File::from(ours.try_clone()?);
        // It waits for a key until the process ends; nothing depends on it.
        thread::spawn(move || copy(io::stdin(), &mut to_program));
        let mut from_program = File::from(ours.try_clone()?);
        let showing = thread::spawn(move || {
            let mut screen = io::stdout();
            copy(&mut from_program, &mut screen);
        });
        let mut changes = signal(SignalKind::window_change())?;
        let resizing = tokio::spawn(async move {
            while changes.recv().await.is_some() {
                resize(&ours);
            }
        });
        Ok(Relay {
            before,
            resizing,
            showing: Some(showing),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.resizing.abort();
        if let Some(showing) = self.showing.take() {
            // The program has ended, so its output does, too.
            drop(showing.join());
        }
        // A terminal that is gone needs no settings.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Copies until either side ends; a terminal whose other end is gone fails to be read.
fn copy(mut from: impl io::Read, to: &mut impl io::Write) {
    let mut buffer = [0; 4096];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let Some(bytes) = buffer.get(..read) else {
            return;
        };
        if to.write_all(bytes).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Gives the program's terminal the size of ours.
fn resize(ours: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(io::stdout()) {
        // A program with the old size still works.
        let _ = tcsetwinsize(ours.as_fd(), size);
    }
}
