//! Directories as roots.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use abp_json::Writer;

use super::{begin_labelled, plain_label};
use crate::negotiate::Emulation;

/// The result of `roots/list`.
pub(super) fn result(roots: &[PathBuf]) -> String {
    let mut out = Writer::default();
    begin_labelled(&mut out, &plain_label(Emulation::Roots));
    out.key("roots");
    out.begin_array();
    for root in roots {
        out.begin_object();
        out.key("uri");
        out.string(&file_uri(root));
        if let Some(name) = root.file_name() {
            out.key("name");
            out.string(&name.to_string_lossy());
        }
        out.end_object();
    }
    out.end_array();
    out.end_object();
    out.into_text()
}

fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(char::from(*byte));
            }
            // Writing to a string does not fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(
            result(&[PathBuf::from("/srv/a b/é%")]),
            r#"{"_meta":{"dev.abp/emulated":{"by":"roots"}},"roots":[{"uri":"file:///srv/a%20b/%C3%A9%25","name":"é%"}]}"#
        );
    }
}
