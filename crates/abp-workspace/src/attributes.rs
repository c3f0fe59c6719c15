//! Carries the owner and the extended attributes of a file over to the one that replaces it.

use std::fs::File;

use rustix::fs::{Gid, Stat, Uid, XattrFlags};
use rustix::io::{Errno, Result};

/// Attributes that grant rights to the old content, or are made of it. The new content was written
/// by an agent and gets none of them.
const NOT_CARRIED: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];
/// The most bytes that the kernel keeps in one attribute, and in all names.
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// Copies owner and attributes as far as the process may set them.
pub(crate) fn copy_attributes(from: &File, stat: &Stat, to: &File) -> Result<()> {
    let own = rustix::fs::fstat(to)?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let both = rustix::fs::fchown(to, Some(user), Some(group));
        // A user may not give a file away, but may well give it to another of the own groups.
        unless_refused(both.or_else(|_| rustix::fs::fchown(to, None, Some(group))))?;
    }
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = match rustix::fs::flistxattr(from, names.as_mut_slice()) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        listed => listed?,
    };
    let names = names.get(..length).unwrap_or_default();
    let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
    for name in names.split(|&byte| byte == 0) {
        if name.is_empty() || NOT_CARRIED.contains(&name) {
            continue;
        }
        let length = match rustix::fs::fgetxattr(from, name, value.as_mut_slice()) {
            // Gone by now, or not for this process to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => continue,
            read => read?,
        };
        let value = value.get(..length).unwrap_or_default();
        unless_refused(rustix::fs::fsetxattr(to, name, value, XattrFlags::empty()))?;
    }
    Ok(())
}

fn unless_refused(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP | Errno::INVAL) => Ok(()),
        result => result,
    }
}
