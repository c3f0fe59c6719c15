//! The holding directory of an application, in the root of the source.
//!
//! It has one slot for each step, named by the step's number. Before a step, the slot has the new
//! file; after it, the file that was displaced. There are only files and links in it, so it is
//! emptied without descending anywhere.

use rustix::io::Errno;

use crate::Error;
use crate::dir::Dir;
use crate::manifest::Entry;
use crate::observe::observe;
use crate::plan::failed;

/// An open holding directory.
#[derive(Debug)]
pub(crate) struct Holding {
    name: String,
    pub(crate) dir: Dir,
}

impl Holding {
    /// Creates the directory, which must not exist yet.
    pub(crate) fn create(source: &Dir, name: &str) -> Result<Self, Error> {
        let created = source.create_dir(name.as_bytes(), 0o700);
        Ok(Self {
            dir: created.map_err(|error| failed("apply", name.as_bytes(), error.into()))?,
            name: name.to_owned(),
        })
    }

    /// Opens the directory; none where there is none, or something else has its name.
    pub(crate) fn open(source: &Dir, name: &str) -> Result<Option<Self>, Error> {
        match source.open_dir(name.as_bytes()) {
            Ok(dir) => Ok(Some(Self {
                dir,
                name: name.to_owned(),
            })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(failed("apply", name.as_bytes(), error.into())),
        }
    }

    /// The name of the slot of a step.
    pub(crate) fn slot(number: usize) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    /// The file in a slot, as far as it can be one of the expected ones.
    pub(crate) fn image(
        &self,
        number: usize,
        expected: [Option<&Entry>; 2],
    ) -> Result<Option<Entry>, Errno> {
        let path = expected
            .iter()
            .flatten()
            .next()
            .map(|entry| entry.path_bytes());
        observe(
            &self.dir,
            &Self::slot(number),
            path.unwrap_or_default(),
            expected,
        )
    }

    /// Empties and removes the directory, and makes its removal durable.
    pub(crate) fn remove(&self, source: &Dir) -> Result<(), Error> {
        let emptied = self.dir.entries().and_then(|entries| {
            entries
                .iter()
                .try_for_each(|entry| match self.dir.remove_file(&entry.name) {
                    Err(Errno::NOENT) => Ok(()),
                    removed => removed,
                })
        });
        let removed = emptied
            .and_then(|()| match source.remove_dir(self.name.as_bytes()) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed,
            })
            .and_then(|()| source.sync());
        removed.map_err(|error| failed("clean up", self.name.as_bytes(), error.into()))
    }
}
