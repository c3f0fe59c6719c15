//! Git's binary patches: the new and the old content, compressed, in git's base 85.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};

use crate::manifest::hex;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// The bytes a line of a patch carries at most.
const LINE_BYTES: usize = 52;
const NO_BLOB: &str = "0000000000000000000000000000000000000000";

/// The part of a patch that follows the mode lines. A side that does not exist is none.
pub(crate) fn patch(old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let mut text = String::new();
    // Git insists on the full names of both contents and checks them.
    let _ = writeln!(
        text,
        "index {}..{}\nGIT binary patch",
        blob_name(old),
        blob_name(new)
    );
    for side in [new, old] {
        push_literal(&mut text, side.unwrap_or_default());
        text.push('\n');
    }
    text
}

fn blob_name(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return NO_BLOB.to_owned();
    };
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex(&hasher.finalize())
}

fn push_literal(text: &mut String, bytes: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail; were it to, git would refuse the patch by its length.
    let compressed = encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .unwrap_or_default();
    let _ = writeln!(text, "literal {}", bytes.len());
    for line in compressed.chunks(LINE_BYTES) {
        text.push(length_mark(line.len()));
        for word in line.chunks(4) {
            push_word(text, word);
        }
        text.push('\n');
    }
}

/// A line begins with its length: `A` is 1, `Z` is 26, `a` is 27, `z` is 52.
fn length_mark(length: usize) -> char {
    let length = u8::try_from(length).unwrap_or_default();
    char::from(if length <= 26 {
        b'A' + length - 1
    } else {
        b'a' + length - 27
    })
}

fn push_word(text: &mut String, word: &[u8]) {
    let mut padded = [0; 4];
    for (to, from) in padded.iter_mut().zip(word) {
        *to = *from;
    }
    let mut value = u32::from_be_bytes(padded);
    let mut digits = ['0'; 5];
    for digit in digits.iter_mut().rev() {
        let index = usize::try_from(value % 85).unwrap_or_default();
        *digit = ALPHABET.get(index).copied().map_or('0', char::from);
        value /= 85;
    }
    text.extend(digits);
}
