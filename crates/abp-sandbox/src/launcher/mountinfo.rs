//! `/proc/self/mountinfo`: which part of which file system is seen where.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    /// `major:minor` of the file system.
    device: Vec<u8>,
    /// The directory of the file system that is seen at the mount point.
    root: PathBuf,
    pub(super) point: PathBuf,
    /// `ro`, `nosuid` and such, between commas.
    options: Vec<u8>,
}

impl Mount {
    pub(super) fn has_option(&self, name: &str) -> bool {
        let mut options = self.options.split(|&byte| byte == b',');
        options.any(|option| option == name.as_bytes())
    }
}

/// A place where a directory, or a part of it, is seen through another mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Alias {
    /// The directory itself.
    Whole(PathBuf),
    /// Something beneath it.
    Part(PathBuf),
}

/// Every mount of this process's namespace.
pub(super) fn read() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Where else a directory is seen, given the mount it was opened through.
pub(super) fn aliases(mounts: &[Mount], mount_id: u64, directory: &Path) -> Vec<Alias> {
    let Some(own) = mounts.iter().find(|mount| mount.id == mount_id) else {
        return Vec::new();
    };
    let Ok(below) = directory.strip_prefix(&own.point) else {
        return Vec::new();
    };
    let in_file_system = own.root.join(below);
    let others = mounts
        .iter()
        .filter(|mount| mount.id != mount_id && mount.device == own.device);
    others
        .filter_map(|mount| {
            if let Ok(rest) = in_file_system.strip_prefix(&mount.root) {
                return Some(Alias::Whole(mount.point.join(rest)));
            }
            let is_part = mount.root.starts_with(&in_file_system);
            is_part.then(|| Alias::Part(mount.point.clone()))
        })
        .collect()
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?.to_owned();
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let options = fields.next()?.to_owned();
    Some(Mount {
        id,
        device,
        root,
        point,
        options,
    })
}

/// The kernel writes blanks, line breaks and backslashes as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(digits.unwrap_or(first));
        rest = match digits {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_wherever_it_is_mounted() {
        let text = br"22 1 253:0 / / rw shared:1 - ext4 /dev/vda rw
23 22 253:0 /data/u /mnt/a\040b rw - ext4 /dev/vda rw
24 22 253:0 /data/u/state/keys /k rw - ext4 /dev/vda rw
25 22 253:0 /var /v rw - ext4 /dev/vda rw
26 22 253:1 /data /other rw - ext4 /dev/vdb rw
27 22 253:0 /data/u/state2 /s2 rw - ext4 /dev/vda rw";
        let mounts: Vec<_> = text
            .split(|&byte| byte == b'\n')
            .filter_map(parse)
            .collect();
        assert_eq!(mounts.len(), 6);
        let found = aliases(&mounts, 22, Path::new("/data/u/state"));
        let whole = Alias::Whole("/mnt/a b/state".into());
        assert_eq!(found, [whole, Alias::Part("/k".into())]);
        // The same directory, opened through the other mount.
        let found = aliases(&mounts, 23, Path::new("/mnt/a b/state"));
        let whole = Alias::Whole("/data/u/state".into());
        assert_eq!(found, [whole, Alias::Part("/k".into())]);
    }
}
