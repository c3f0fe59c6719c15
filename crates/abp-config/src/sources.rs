//! Where configuration comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// The name of the file in every place.
const FILE_NAME: &str = "backplane.toml";

/// Which file a setting is in, which decides what it may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The user's own file.
    User,
    /// The file in the working directory: part of a repository, so not trusted.
    Project,
    /// The file that was named on the command line or in the environment.
    Operator,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SettingOrigin {
    /// Nobody set it.
    Default,
    /// A file.
    File {
        /// Which kind of file.
        layer: Layer,
        /// The file.
        #[serde(serialize_with = "lossy")]
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
    },
    /// An environment variable.
    Env {
        /// The variable.
        name: String,
    },
    /// A flag on the command line.
    Flag {
        /// The flag, with its dashes.
        name: String,
    },
}

/// A path need not be Unicode, and must be shown all the same.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "env {name}"),
            Self::Flag { name } => write!(f, "flag {name}"),
        }
    }
}

/// A value that a flag sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The setting, e.g. `state_dir`; those in tables have no flag.
    pub key: String,
    /// The value, as it would be given in the environment.
    pub value: String,
    /// The flag, with its dashes.
    pub flag: String,
}

/// Everything that is read. Nothing else is: no file and no variable beyond these.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The user's file; it may be missing.
    pub user: Option<PathBuf>,
    /// The project's file; it may be missing.
    pub project: Option<PathBuf>,
    /// The file that somebody named; it must be there.
    pub operator: Option<PathBuf>,
    /// The process's directory, absolute: relative paths of variables and flags start there, and so
    /// do the paths of the files themselves. Without it, relative paths are refused.
    pub working_dir: Option<PathBuf>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// What flags set.
    pub overrides: Vec<Override>,
    /// Backends that are there without being configured, beside `mock` and `auto`.
    pub known_backends: Vec<String>,
    /// Whether a setting that has no effect is an error instead of a warning.
    pub strict: bool,
}

impl Sources {
    /// The usual places: the file of `--config` or else of `ABP_CONFIG`, otherwise `backplane.toml`
    /// in `directory`; and the user's file below `XDG_CONFIG_HOME` or `~/.config`.
    #[must_use]
    pub fn discover(
        env: BTreeMap<String, String>,
        directory: &Path,
        config_flag: Option<PathBuf>,
    ) -> Self {
        let variable = |name: &str| env.get(name).filter(|value| !value.is_empty());
        // A relative XDG_CONFIG_HOME would make a file of the working directory the user's own.
        let user = absolute_variable(&env, "XDG_CONFIG_HOME")
            .or_else(|| home(&env).map(|home| home.join(".config")))
            .map(|base| base.join("abp").join(FILE_NAME));
        let operator = config_flag.or_else(|| variable("ABP_CONFIG").map(PathBuf::from));
        let project = operator
            .is_none()
            .then(|| directory.join(FILE_NAME))
            .filter(|path| Some(path) != user.as_ref());
        Self {
            user,
            project,
            operator,
            working_dir: directory.is_absolute().then(|| directory.to_owned()),
            env,
            ..Self::default()
        }
    }

    /// The usual places of this process.
    #[must_use]
    pub fn of_process(config_flag: Option<PathBuf>) -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| {
                Some((
                    name.into_string().ok()?,
                    value.to_string_lossy().into_owned(),
                ))
            })
            .collect();
        Self {
            working_dir: std::env::current_dir().ok(),
            // Messages name the project's file by its short name.
            ..Self::discover(env, Path::new(""), config_flag)
        }
    }
}

/// The home directory of an environment.
pub(crate) fn home(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    absolute_variable(env, "HOME")
}

/// The value of a variable that is an absolute path; others are ignored, as the XDG specification
/// asks for its own.
pub(crate) fn absolute_variable(env: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    env.get(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
