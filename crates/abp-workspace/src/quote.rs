//! Names in text: quoted the way git quotes them, so that git reads them back and no name can
//! disturb a terminal or pass for another line.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path for a message: plain where it is harmless text, quoted where not.
pub(crate) fn display_path(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.is_empty() && !text.chars().any(is_disturbing) => text.to_owned(),
        _ => {
            let mut quoted = String::from('"');
            push_escaped(&mut quoted, path.as_os_str().as_bytes());
            quoted.push('"');
            quoted
        }
    }
}

/// The form git gives a name in a diff header with its default settings.
pub(crate) fn diff_name(prefix: &str, path: &[u8]) -> String {
    if path.iter().all(|&byte| is_plain(byte)) {
        return format!("{prefix}{}", String::from_utf8_lossy(path));
    }
    let mut quoted = format!("\"{prefix}");
    push_escaped(&mut quoted, path);
    quoted.push('"');
    quoted
}

/// The form git gives a name in `status --porcelain=v1`: as in a diff, and spaces are quoted too.
pub(crate) fn status_name(path: &[u8]) -> String {
    let name = diff_name("", path);
    if name.contains(' ') && !name.starts_with('"') {
        return format!("\"{name}\"");
    }
    name
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Control characters, the marks that reorder or hide text, and what quoting itself uses.
fn is_disturbing(character: char) -> bool {
    character.is_control()
        || matches!(character, '"' | '\\')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn push_escaped(text: &mut String, path: &[u8]) {
    for &byte in path {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\r' => text.push_str("\\r"),
            _ if is_plain(byte) => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
}
