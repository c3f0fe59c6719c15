//! A directory becomes a repository.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::process::{Deadline, run};
use crate::{Error, Git};

const REPOSITORY: &str = ".git";
const NAME: &str = "abp";
const EMAIL: &str = "abp@localhost";
/// The same content makes the same commit whenever it is made.
const DATE: &str = "2000-01-01T00:00:00+00:00";

impl Git {
    /// Makes a repository with everything in one commit, `baseline`, of a directory that the host
    /// has just filled and that no agent has touched. What a `.gitignore` in it hides is left out of
    /// the commit, as git does.
    ///
    /// The content may come from anywhere: its attributes name filters that nothing defines.
    ///
    /// # Errors
    /// Fails where the directory is not absolute or already has a `.git`, where the program would be
    /// in it, or where git fails or takes longer than `limit` in all. No `.git` is left then.
    pub fn ensure_git_repo(&self, root: &Path, limit: Duration) -> Result<(), Error> {
        self.make_in(root, |root| self.make(root, Deadline::new(limit)))
    }

    /// Makes a repository whose one commit, `baseline`, has the files of a stream that [`BaselineStream`](crate::BaselineStream)
    /// wrote, without looking at any file beside the repository.
    ///
    /// # Errors
    /// As [`Self::ensure_git_repo`].
    pub fn import_baseline(&self, root: &Path, stream: File, limit: Duration) -> Result<(), Error> {
        self.make_in(root, |root| self.import(root, stream, Deadline::new(limit)))
    }

    fn make_in(
        &self,
        root: &Path,
        make: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let not_fresh = |reason| Error::NotFresh {
            root: root.to_owned(),
            reason,
        };
        if !root.is_absolute() {
            return Err(not_fresh("its path is not absolute"));
        }
        let real = root
            .canonicalize()
            .map_err(|_| not_fresh("it cannot be opened"))?;
        if self.path().starts_with(&real) {
            return Err(not_fresh("git itself is in it"));
        }
        let repository = real.join(REPOSITORY);
        match fs::symlink_metadata(&repository) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(not_fresh("it already has a .git")),
        }
        let made = make(&real);
        if made.is_err() {
            // Nothing but this call made it.
            drop(fs::remove_dir_all(&repository));
        }
        made
    }

    fn init(&self, root: &Path, deadline: Deadline) -> Result<(), Error> {
        let mut init = self.command(root);
        init.args(["init", "--quiet", "--template=", "--initial-branch=main"]);
        run(init, "init", deadline)
    }

    fn import(&self, root: &Path, stream: File, deadline: Deadline) -> Result<(), Error> {
        self.init(root, deadline)?;
        let mut import = self.command(root);
        import
            .env("GIT_DIR", REPOSITORY)
            .stdin(stream)
            .args(["-c", "fastimport.unpackLimit=0", "-c", "core.fsync=none"])
            .args(["fast-import", "--quiet", "--done"]);
        run(import, "fast-import", deadline)?;
        self.read_index(root, deadline)
    }

    /// Makes the index of the newest commit; the files themselves are not looked at.
    fn read_index(&self, root: &Path, deadline: Deadline) -> Result<(), Error> {
        let mut index = self.command(root);
        index
            .env("GIT_DIR", REPOSITORY)
            .args(["read-tree", "--reset", "HEAD"]);
        run(index, "read-tree", deadline)
    }

    fn make(&self, root: &Path, deadline: Deadline) -> Result<(), Error> {
        self.init(root, deadline)?;

        let mut add = self.command(root);
        add.env("GIT_DIR", REPOSITORY);
        // All contents go into one pack: fewer files to write, and to remove later.
        for setting in [
            "core.bigFileThreshold=1",
            "core.compression=1",
            "core.fsync=none",
        ] {
            add.args(["-c", setting]);
        }
        add.args(["add", "--all", "--", "."]);
        run(add, "add", deadline)?;

        let mut commit = self.command(root);
        commit
            .env("GIT_DIR", REPOSITORY)
            .env("GIT_AUTHOR_NAME", NAME)
            .env("GIT_AUTHOR_EMAIL", EMAIL)
            .env("GIT_AUTHOR_DATE", DATE)
            .env("GIT_COMMITTER_NAME", NAME)
            .env("GIT_COMMITTER_EMAIL", EMAIL)
            .env("GIT_COMMITTER_DATE", DATE)
            .args(["-c", "core.fsync=none"])
            .args(["commit", "--quiet", "--no-verify", "--allow-empty"])
            .args(["--cleanup=verbatim", "--message=baseline"]);
        run(commit, "commit", deadline)
    }
}
