//! Selects the paths of the source that belong to the workspace, by include and exclude globs and by
//! `.gitignore`.
//!
//! An exclude wins over everything. Where there are includes, only matching paths are taken and
//! `.gitignore` is not asked; where there are none, everything is taken that no `.gitignore` of the
//! tree hides. Settings outside the tree (`.git/info/exclude`, a user's global ignores, the
//! `.gitignore` of directories above the root) have no say: the result depends on the tree alone.

use std::collections::BTreeMap;
use std::io::Read;

use abp_core::WorkspaceSpec;
use abp_glob::{GlobList, IncludeExcludeGlobs, MatchDecision, check_limits};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::Error;
use crate::dir::{Dir, path_of};
use crate::quote::display_path;

const GITIGNORE: &[u8] = b".gitignore";
const MAX_GITIGNORE_BYTES: u64 = 1024 * 1024;

/// The rules of one workspace, and the `.gitignore` files met so far.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    globs: IncludeExcludeGlobs,
    respect_gitignore: bool,
    ignored_files: IgnoredFiles,
    /// By the directory they stand in.
    gitignores: BTreeMap<Vec<u8>, Gitignore>,
    frozen: bool,
}

/// Whether single files that a `.gitignore` hides are taken; hidden directories are always left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IgnoredFiles {
    /// They are left out.
    Leave,
    /// They belong to the workspace.
    Take,
}

/// Whether a path belongs to the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Take,
    Leave {
        reason: String,
    },
    /// As `Leave`, by a `.gitignore` alone.
    Ignore {
        reason: String,
    },
}

impl Selection {
    pub(crate) fn new(spec: &WorkspaceSpec, ignored_files: IgnoredFiles) -> Result<Self, Error> {
        let compile = |list, patterns: &[String]| {
            GlobList::for_paths(patterns).map_err(|problem| Error::Pattern { list, problem })
        };
        let include = compile("include", &spec.include)?;
        let exclude = compile("exclude", &spec.exclude)?;
        Ok(Self {
            respect_gitignore: spec.respect_gitignore && include.is_empty(),
            globs: IncludeExcludeGlobs::from_lists(include, exclude),
            ignored_files,
            gitignores: BTreeMap::new(),
            frozen: false,
        })
    }

    /// Reads no more `.gitignore` files: from now on they may be the agent's.
    pub(crate) fn frozen(mut self) -> Self {
        self.frozen = true;
        self
    }

    /// Whether only paths that match an include are taken.
    pub(crate) fn has_includes(&self) -> bool {
        !self.globs.include().is_empty()
    }

    /// Reads the `.gitignore` of a directory that is about to be walked. One that cannot be read has
    /// no rules, as for git; the walk meets and reports the file itself.
    pub(crate) fn enter(&mut self, dir: &Dir, path: &[u8]) -> Result<(), Error> {
        if !self.respect_gitignore || self.frozen {
            return Ok(());
        }
        let Ok((file, _)) = dir.open_file(GITIGNORE) else {
            return Ok(());
        };
        let mut text = Vec::new();
        let mut limited = file.take(MAX_GITIGNORE_BYTES + 1);
        if limited.read_to_end(&mut text).is_err() {
            return Ok(());
        }
        self.add_gitignore(path.to_vec(), &text)
    }

    fn add_gitignore(&mut self, directory: Vec<u8>, text: &[u8]) -> Result<(), Error> {
        let gitignore = compile(text).map_err(|reason| {
            let mut path = directory.clone();
            push_component(&mut path, GITIGNORE);
            Error::Gitignore {
                path: path_of(&path).to_owned(),
                reason,
            }
        })?;
        self.gitignores.insert(directory, gitignore);
        Ok(())
    }

    pub(crate) fn of_directory(&self, path: &[u8]) -> Fate {
        match self.by_globs(path) {
            Some(MatchDecision::DeniedByMissingInclude)
                if self.globs.include().may_match_beneath(path_of(path)) =>
            {
                Fate::Take
            }
            decision => self
                .explained(path, decision)
                .unwrap_or_else(|| self.by_gitignore(path, true)),
        }
    }

    pub(crate) fn of_file(&self, path: &[u8]) -> Fate {
        let fate = self.explained(path, self.by_globs(path));
        match (fate, self.ignored_files) {
            (Some(fate), _) => fate,
            (None, IgnoredFiles::Take) => Fate::Take,
            (None, IgnoredFiles::Leave) => self.by_gitignore(path, false),
        }
    }

    /// The topmost path at which `.gitignore` rules hide a path: the path itself, or a directory above
    /// it, which is given with a slash at its end.
    pub(crate) fn hidden_at(&self, path: &[u8], is_dir: bool) -> Option<Vec<u8>> {
        let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let above = slashes
            .filter_map(|(at, _)| path.get(..at))
            .map(|above| (above, true));
        let hidden =
            |(path, is_dir): &(&[u8], bool)| self.by_gitignore(path, *is_dir) != Fate::Take;
        let (path, is_dir) = above.chain([(path, is_dir)]).find(hidden)?;
        let mut path = path.to_vec();
        if is_dir {
            path.push(b'/');
        }
        Some(path)
    }

    fn by_globs(&self, path: &[u8]) -> Option<MatchDecision> {
        Some(self.globs.decide(path_of(path))).filter(|decision| !decision.is_allowed())
    }

    fn explained(&self, path: &[u8], denied: Option<MatchDecision>) -> Option<Fate> {
        let reason = match denied? {
            MatchDecision::Allowed => return None,
            MatchDecision::DeniedByMissingInclude => "matches no include pattern".to_owned(),
            MatchDecision::DeniedByExclude => match self.globs.exclude().first_match(path_of(path))
            {
                Some(found) => format!("excluded by {:?}", found.pattern),
                None => "excluded".to_owned(),
            },
        };
        Some(Fate::Leave { reason })
    }

    /// The nearest `.gitignore` that speaks about the path decides.
    fn by_gitignore(&self, path: &[u8], is_dir: bool) -> Fate {
        if self.gitignores.is_empty() {
            return Fate::Take;
        }
        let mut base = path.len();
        while let Some(slash) = path
            .get(..base)
            .and_then(|head| head.iter().rposition(|&byte| byte == b'/'))
        {
            let (directory, rest) = path.split_at(slash);
            if let Some(fate) = self.asked(directory, rest.get(1..).unwrap_or_default(), is_dir) {
                return fate;
            }
            base = slash;
        }
        self.asked(b"", path, is_dir).unwrap_or(Fate::Take)
    }

    fn asked(&self, directory: &[u8], path: &[u8], is_dir: bool) -> Option<Fate> {
        match self
            .gitignores
            .get(directory)?
            .matched(path_of(path), is_dir)
        {
            Match::None => None,
            Match::Whitelist(_) => Some(Fate::Take),
            Match::Ignore(glob) => {
                let mut file = directory.to_vec();
                push_component(&mut file, GITIGNORE);
                let reason = format!(
                    "ignored by {:?} in {}",
                    glob.original(),
                    display_path(path_of(&file))
                );
                Some(Fate::Ignore { reason })
            }
        }
    }
}

/// Appends a component to a path's bytes.
pub(crate) fn push_component(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn compile(text: &[u8]) -> Result<Gitignore, String> {
    if text.len() as u64 > MAX_GITIGNORE_BYTES {
        return Err(format!("it has more than {MAX_GITIGNORE_BYTES} bytes"));
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    // A line that is not UTF-8 is passed over: patterns here are text.
    let lines = text
        .split(|&byte| byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok());
    let patterns: Vec<String> = lines
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(literal_braces)
        .collect();
    check_limits(&patterns).map_err(|error| error.to_string())?;
    let mut builder = GitignoreBuilder::new(".");
    for pattern in &patterns {
        // Like git, a malformed line is passed over.
        if let Err(error) = builder.add_line(None, pattern) {
            tracing::debug!(target: "abp.workspace", %error, "line of .gitignore passed over");
        }
    }
    builder.build().map_err(|error| error.to_string())
}

/// Git has no alternatives: braces in a `.gitignore` stand for themselves.
fn literal_braces(line: &str) -> String {
    if line.contains(['[', '\\']) {
        return line.to_owned();
    }
    line.replace('{', "[{]").replace('}', "[}]")
}
