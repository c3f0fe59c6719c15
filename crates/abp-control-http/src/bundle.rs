//! Many small blobs in one request.
//!
//! A tree of 10,000 files is 10,000 requests when each file has its own. A bundle is a sequence of blobs, each
//! after a line with its hash and its size:
//!
//! ```text
//! 9f86d0…0f00a08 4\ntest2c26b4…b3 3\nfoo
//! ```

use abp_error::{AbpError, ErrorCode};

use crate::api::MAX_BUNDLED_BLOB;
use crate::manifest::is_hash;

/// The longest a line may be: a hash, a space, the digits of a size and the end of the line.
const MAX_LINE: usize = 64 + 1 + 20 + 1;

/// Takes blobs out of the bytes of a bundle as they come.
#[derive(Debug, Default)]
pub(crate) struct BundleReader {
    pending: Vec<u8>,
}

/// A blob of a bundle, whose bytes nobody has looked at yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BundledBlob {
    pub(crate) sha256: String,
    pub(crate) bytes: Vec<u8>,
}

impl BundleReader {
    /// Takes the next bytes and returns the blobs that are complete with them.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<BundledBlob>, AbpError> {
        self.pending.extend_from_slice(bytes);
        let mut blobs = Vec::new();
        let mut taken = 0;
        while let Some((blob, length)) = first_blob(self.pending.get(taken..).unwrap_or_default())?
        {
            taken += length;
            blobs.push(blob);
        }
        self.pending.drain(..taken);
        Ok(blobs)
    }

    /// Refuses a bundle that ends in the middle of a blob.
    pub(crate) fn finish(&self) -> Result<(), AbpError> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => Err(wrong("the bundle ends in the middle of a blob")),
        }
    }
}

/// The first blob of the bytes, with the number of bytes it takes; `None` where it is not complete.
fn first_blob(bytes: &[u8]) -> Result<Option<(BundledBlob, usize)>, AbpError> {
    let line = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n');
    let Some(end) = line else {
        return match bytes.len() < MAX_LINE {
            true => Ok(None),
            false => Err(wrong(
                "a blob of a bundle begins with its hash and its size",
            )),
        };
    };
    let head = bytes
        .get(..end)
        .and_then(|head| std::str::from_utf8(head).ok());
    let head = head.and_then(|head| head.split_once(' '));
    let head = head.and_then(|(sha256, size)| Some((sha256, size.parse::<usize>().ok()?)));
    let Some((sha256, size)) = head.filter(|(sha256, _)| is_hash(sha256)) else {
        return Err(wrong(
            "a blob of a bundle begins with its hash and its size",
        ));
    };
    if size > MAX_BUNDLED_BLOB {
        let message = format!("a blob of a bundle has at most {MAX_BUNDLED_BLOB} bytes");
        return Err(AbpError::new(ErrorCode::RequestTooLarge, message));
    }
    let content = bytes.get(end + 1..end + 1 + size);
    Ok(content.map(|content| {
        let blob = BundledBlob {
            sha256: sha256.to_owned(),
            bytes: content.to_vec(),
        };
        (blob, end + 1 + size)
    }))
}

fn wrong(message: &str) -> AbpError {
    AbpError::new(ErrorCode::ValidationFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(blobs: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for blob in blobs {
            bytes
                .extend_from_slice(format!("{} {}\n{blob}", "a".repeat(64), blob.len()).as_bytes());
        }
        bytes
    }

    #[test]
    fn blobs_are_the_same_however_the_bytes_come() {
        let blobs = ["one", "", "two\nthree", "f"];
        let bytes = bundle(&blobs);
        for piece in [1, 2, 7, 64, 65, 66, 1_000] {
            let mut reader = BundleReader::default();
            let mut read = Vec::new();
            for bytes in bytes.chunks(piece) {
                read.extend(reader.read(bytes).unwrap());
            }
            reader.finish().unwrap();
            let read: Vec<_> = read.iter().map(|blob| blob.bytes.as_slice()).collect();
            assert_eq!(read, blobs.map(str::as_bytes), "{piece}");
        }
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
        let hash = "a".repeat(64);
        let large = format!("{hash} {}\n", MAX_BUNDLED_BLOB + 1);
        let cases = [
            "\n".to_owned(),
            format!("{hash}\n"),
            format!("{hash} -1\n"),
            format!("{hash} x\n"),
            format!("{} 1\nx", "A".repeat(64)),
            "x".repeat(MAX_LINE),
            large,
        ];
        for case in cases {
            assert!(
                BundleReader::default().read(case.as_bytes()).is_err(),
                "{case}"
            );
        }
        let mut cut = BundleReader::default();
        assert_eq!(cut.read(format!("{hash} 3\nab").as_bytes()).unwrap(), []);
        assert!(cut.finish().is_err());
    }
}
