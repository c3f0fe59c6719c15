//! What host and launcher tell each other, one line each.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::{Containment, Exit};

/// From the host. The end of the stream means [`Order::Kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ask the sidecar to end.
    Terminate,
    /// End it and everything it started.
    Kill,
}

/// To the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The sidecar runs.
    Started(Containment),
    /// It could not be started.
    Failed(String),
    /// It ended, and nothing it started is left.
    Exited(Exit),
}

impl Order {
    pub(crate) const fn as_byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }

    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            b't' => Self::Terminate,
            _ => Self::Kill,
        }
    }
}

impl Notice {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Started(containment) => format!("started {}\n", containment.as_str()),
            Self::Failed(problem) => format!("failed {}\n", problem.replace('\n', " ")),
            Self::Exited(Exit::Code(code)) => format!("code {code}\n"),
            Self::Exited(Exit::Signal(signal)) => format!("signal {signal}\n"),
            Self::Exited(Exit::Unknown) => "unknown \n".to_owned(),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "started" => Self::Started(Containment::from_name(rest)?),
            "failed" => Self::Failed(rest.to_owned()),
            "code" => Self::Exited(Exit::Code(rest.parse().ok()?)),
            "signal" => Self::Exited(Exit::Signal(rest.parse().ok()?)),
            "unknown" => Self::Exited(Exit::Unknown),
            _ => return None,
        })
    }

    /// Tells the host, whose socket is our standard input.
    pub(super) fn send(&self) -> io::Result<()> {
        let mut socket = std::fs::File::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.write_all(self.to_line().as_bytes())
    }
}

/// Sends a descriptor over a socket.
pub(crate) fn send_descriptor(socket: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("a descriptor does not fit"));
    }
    sendmsg(
        socket,
        &[IoSlice::new(b"i")],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives a descriptor from a socket.
pub(super) fn receive_descriptor(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.ok_or_else(|| io::Error::other("the host sent no descriptor"))
}
