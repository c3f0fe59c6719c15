//! The directory that a run works on, and how it is recognised later.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// The directory of a run's project.
///
/// The path alone does not tell a directory from another one that was made in its place: inode and
/// birth time do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The canonical path, as [`path_text`] writes it.
    pub path: String,
    /// The inode of the directory.
    pub inode: u64,
    /// When the directory was made, in nanoseconds since 1970; `None` where the file system does not
    /// record it.
    pub born: Option<i64>,
}

impl Project {
    /// Looks a directory up.
    ///
    /// # Errors
    /// Fails where it is not there or cannot be inspected.
    pub fn locate(directory: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(directory)?;
        let metadata = fs::metadata(&path)?;
        let since_1970 = |made: SystemTime| made.duration_since(SystemTime::UNIX_EPOCH).ok();
        let born = metadata.created().ok().and_then(since_1970);
        Ok(Self {
            path: path_text(&path),
            inode: metadata.ino(),
            born: born.and_then(|born| i64::try_from(born.as_nanos()).ok()),
        })
    }
}

/// A path as text, so that different paths have different texts: `\` is written `\\`, and a byte that
/// is not part of a UTF-8 character is written `\xNN`.
#[must_use]
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The directories that contain a directory, and itself, as a JSON array of texts.
pub(crate) fn ancestors_json(directory: &str) -> String {
    let mut ancestors = vec![directory];
    let mut rest = directory;
    while let Some((parent, _)) = rest.rsplit_once('/') {
        ancestors.push(if parent.is_empty() { "/" } else { parent });
        rest = parent;
    }
    serde_json::json!(ancestors).to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn different_paths_have_different_texts() {
        for (path, text) in [
            (&b"/a/b"[..], "/a/b"),
            (b"/a/\xff\xc3", "/a/\\xff\\xc3"),
            (b"/a/\\xff", "/a/\\\\xff"),
            ("/ä".as_bytes(), "/ä"),
        ] {
            assert_eq!(path_text(Path::new(OsStr::from_bytes(path))), text);
        }
    }

    #[test]
    fn the_root_contains_everything() {
        assert_eq!(ancestors_json("/a/b"), r#"["/a/b","/a","/"]"#);
        assert_eq!(ancestors_json("/"), r#"["/","/"]"#);
    }

    /// A directory that was made again in the same place is another project.
    #[test]
    fn a_directory_is_told_from_its_successor() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("project");
        let locate = || {
            fs::create_dir(&place).expect("made");
            let project = Project::locate(&place.join(".").join("../project"));
            project.expect("is there")
        };
        let first = locate();
        assert_eq!(first, Project::locate(&place).expect("is there"));
        fs::remove_dir(&place).expect("removed");
        let second = locate();
        assert_eq!(first.path, second.path);
        assert_ne!(first, second);
        assert!(Project::locate(&dir.path().join("missing")).is_err());
    }
}
