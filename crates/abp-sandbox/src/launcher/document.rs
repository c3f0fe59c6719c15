//! The launch document: everything a stage of the launcher has to know about the program, sent over
//! a socket together with descriptors.
//!
//! The host sends it to the launcher, the launcher to the first process of the namespace, and
//! whichever of them supervises to the process that becomes the program. Arguments of a process can
//! be read by every other process of the machine and have a limit on their length; a document has
//! neither problem, and later restrictions (mounts, network, system calls) are new members of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::{Confinement, Containment, ResourceLimits};

/// The byte that carries the descriptors, before the document.
const MARKER: u8 = b'd';
/// The longest document accepted, in bytes.
const MAX_DOCUMENT: u32 = 64 * 1024 * 1024;
/// The most descriptors that travel with a document.
const MAX_DESCRIPTORS: usize = 3;

/// What to start, where, and what it may not see. Paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchDocument {
    /// The path of the program.
    pub(crate) program: OsString,
    /// The name the program is called by, its argument zero.
    pub(crate) name: OsString,
    pub(crate) args: Vec<OsString>,
    /// All of its environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub(crate) directory: OsString,
    pub(crate) confinement: Confinement,
    /// The containment demanded; the best that can be had where there is none.
    pub(crate) containment: Option<Containment>,
    pub(crate) limits: ResourceLimits,
    /// Whether standard input is a terminal made for the program.
    pub(crate) is_terminal: bool,
}

impl LaunchDocument {
    /// The document as it travels after the descriptors: its length in four bytes, then JSON.
    ///
    /// # Errors
    /// Fails where the document is too long.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len())
            .ok()
            .filter(|length| *length <= MAX_DOCUMENT)
            .ok_or_else(|| {
                let message = format!("the launch document has more than {MAX_DOCUMENT} bytes");
                io::Error::new(io::ErrorKind::InvalidInput, message)
            })?;
        Ok([length.to_le_bytes().as_slice(), &json].concat())
    }

    /// Sends descriptors and document to the next stage.
    pub(super) fn send(&self, socket: &OwnedFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_descriptors(socket, descriptors)?;
        File::from(socket.try_clone()?).write_all(&self.to_bytes()?)
    }

    /// Receives descriptors and document from the stage before. Reads nothing beyond them.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<(Self, Vec<OwnedFd>)> {
        let descriptors = receive_descriptors(&socket)?;
        let mut stream = File::from(socket.as_fd().try_clone_to_owned()?);
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_DOCUMENT {
            return Err(io::Error::other("the launch document is too long"));
        }
        let mut json = Vec::new();
        stream.take(length.into()).read_to_end(&mut json)?;
        Ok((serde_json::from_slice(&json)?, descriptors))
    }
}

/// Sends descriptors over a socket, ahead of a document.
pub(crate) fn send_descriptors(
    socket: impl AsFd,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("the descriptors do not fit"));
    }
    let marker = [MARKER];
    sendmsg(
        socket,
        &[IoSlice::new(&marker)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

pub(crate) fn receive_descriptors(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut marker = [0];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut marker)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != 1 || marker != [MARKER] {
        return Err(io::Error::other("no launch document was sent"));
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_document_arrives_whole_with_names_that_are_no_text() {
        let odd = OsString::from_vec(vec![b'/', 0xff, b'\n', b'"']);
        let document = LaunchDocument {
            program: odd.clone(),
            name: odd.clone(),
            args: vec![odd.clone(), OsString::new()],
            env: vec![(odd.clone(), "x".repeat(300_000).into())],
            directory: odd.clone(),
            confinement: Confinement::Hidden(vec![odd.into()]),
            containment: Some(Containment::Subreaper),
            limits: ResourceLimits {
                processes: Some(3),
                ..ResourceLimits::default()
            },
            is_terminal: true,
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let sent = document.clone();
        let sender = std::thread::spawn(move || {
            let ours = OwnedFd::from(ours);
            sent.send(&ours, &[ours.as_fd(), ours.as_fd()]).unwrap();
            File::from(ours).write_all(b"k").unwrap();
        });
        let (received, descriptors) = LaunchDocument::receive(&theirs).unwrap();
        assert_eq!(received, document);
        assert_eq!(descriptors.len(), 2);
        drop(descriptors);
        sender.join().unwrap();
        let mut rest = Vec::new();
        File::from(OwnedFd::from(theirs))
            .read_to_end(&mut rest)
            .unwrap();
        assert_eq!(rest, b"k", "what follows the document is left to be read");
    }
}
