//! The files of a commit, in the form that `git fast-import` reads.

use std::io::{self, Write};

/// Writes the one commit of a baseline, file by file.
#[derive(Debug)]
pub struct BaselineStream<W> {
    out: W,
}

/// The kind of a file in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// A file.
    Plain,
    /// A file that can be executed.
    Executable,
    /// A symbolic link, whose content is its target.
    Link,
}

impl FileMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

impl<W: Write> BaselineStream<W> {
    /// Begins a commit.
    ///
    /// # Errors
    /// Fails where `out` cannot be written, as do all others.
    pub fn begin(mut out: W) -> io::Result<Self> {
        let person = "abp <abp@localhost> 946684800 +0000";
        write!(
            out,
            "commit refs/heads/main\nauthor {person}\ncommitter {person}\ndata 9\nbaseline\n"
        )?;
        Ok(Self { out })
    }

    /// Adds a file by its path and content.
    ///
    /// # Errors
    /// See [`Self::begin`].
    pub fn add(&mut self, path: &[u8], mode: FileMode, content: &[u8]) -> io::Result<()> {
        write!(self.out, "M {} inline \"", mode.as_str())?;
        for &byte in path {
            match byte {
                b'\n' => self.out.write_all(b"\\n")?,
                b'"' | b'\\' => self.out.write_all(&[b'\\', byte])?,
                byte => self.out.write_all(&[byte])?,
            }
        }
        write!(self.out, "\"\ndata {}\n", content.len())?;
        self.out.write_all(content)?;
        self.out.write_all(b"\n")
    }

    /// Ends the commit and gives the output back.
    ///
    /// # Errors
    /// See [`Self::begin`].
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"done\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}
