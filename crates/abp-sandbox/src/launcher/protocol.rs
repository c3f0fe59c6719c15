//! What host and launcher tell each other once the launch document was sent, one line each.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;

use crate::{Concealment, Containment, Exit};

/// From the host. The end of the stream means [`Order::Kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ask the sidecar to end.
    Terminate,
    /// End it and everything it started.
    Kill,
    /// The ids of its user namespace are mapped.
    Mapped,
}

/// To the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The launcher is in a user namespace that has no ids yet.
    Unmapped,
    /// The sidecar runs.
    Started(Containment, Concealment),
    /// It could not be started.
    Failed(String),
    /// It could not be started because the kernel refused an overlay.
    NoOverlay(String),
    /// It ended, and nothing it started is left.
    Exited(Exit),
}

impl Order {
    pub(crate) const fn as_byte(self) -> u8 {
        match self {
            Self::Terminate => b't',
            Self::Kill => b'k',
            Self::Mapped => b'm',
        }
    }

    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            b't' => Self::Terminate,
            b'm' => Self::Mapped,
            _ => Self::Kill,
        }
    }
}

impl Notice {
    pub(crate) fn to_line(&self) -> String {
        let one_line = |text: &str| text.replace('\n', " ");
        match self {
            Self::Unmapped => "unmapped \n".to_owned(),
            Self::Started(containment, Concealment::Concealed) => {
                format!("started {} hidden\n", containment.as_str())
            }
            Self::Started(containment, Concealment::Exposed(reason)) => {
                format!("started {} {}\n", containment.as_str(), one_line(reason))
            }
            Self::Failed(problem) => format!("failed {}\n", one_line(problem)),
            Self::NoOverlay(problem) => format!("no-overlay {}\n", one_line(problem)),
            Self::Exited(Exit::Code(code)) => format!("code {code}\n"),
            Self::Exited(Exit::Signal(signal)) => format!("signal {signal}\n"),
            Self::Exited(Exit::Unknown) => "unknown \n".to_owned(),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "started" => {
                let (containment, seen) = rest.split_once(' ')?;
                let concealment = match seen {
                    "hidden" => Concealment::Concealed,
                    reason => Concealment::Exposed(reason.to_owned()),
                };
                Self::Started(Containment::from_name(containment)?, concealment)
            }
            "unmapped" => Self::Unmapped,
            "failed" => Self::Failed(rest.to_owned()),
            "no-overlay" => Self::NoOverlay(rest.to_owned()),
            "code" => Self::Exited(Exit::Code(rest.parse().ok()?)),
            "signal" => Self::Exited(Exit::Signal(rest.parse().ok()?)),
            "unknown" => Self::Exited(Exit::Unknown),
            _ => return None,
        })
    }

    /// Tells the host over its socket.
    pub(super) fn send(&self, host: impl AsFd) -> io::Result<()> {
        File::from(host.as_fd().try_clone_to_owned()?).write_all(self.to_line().as_bytes())
    }
}
