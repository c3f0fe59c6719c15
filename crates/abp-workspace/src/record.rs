//! What a stage keeps on disk about itself, so that a later process can take it up again: where it
//! came from, which rules chose its content, and the baseline manifest with the places of the
//! original bytes.
//!
//! The file lies beside the agent's tree. Its checksums find damage, not forgery: an agent that runs
//! as the same user without a sandbox could rewrite it, which is why a receipt carries the hash of
//! the baseline.
//!
//! The form: a line that names the version; the head (mode, source) and its SHA-256; the body and the
//! SHA-256 of everything before it. Integers are 64 bits, big endian; bytes are preceded by their
//! number.

use abp_core::LeftOut;
use sha2::{Digest, Sha256};

use crate::git::GitBaseline;
use crate::left_out::LeftOutList;
use crate::manifest::{Entry, FileKind, Manifest};
use crate::pack::Place;
use crate::selection::Rules;

const VERSION: &[u8] = b"abp stage 1\n";
const HASH_BYTES: usize = 32;
/// The head fits in this: a source path is at most as long as the kernel takes one.
pub(crate) const MAX_HEAD_BYTES: u64 = 16 * 1024;
/// A million files with paths of a few hundred bytes.
pub(crate) const MAX_RECORD_BYTES: u64 = 512 * 1024 * 1024;

/// Where a stage came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) staged: bool,
    /// The canonical path of the source.
    pub(crate) source: Vec<u8>,
}

/// Everything a stage keeps about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) head: Head,
    pub(crate) rules: Rules,
    pub(crate) left_out: LeftOutList,
    pub(crate) git: GitBaseline,
    pub(crate) manifest: Manifest,
    /// For each entry, the place of its bytes.
    pub(crate) packed_at: Vec<Option<Place>>,
    /// How many packs there are.
    pub(crate) packs: u64,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

const SHORT: Damage = Damage("it is cut short");
const IMPOSSIBLE: Damage = Damage("it holds an impossible value");

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(
            1024 + self.manifest.entries().len() * 160,
        ));
        out.0.extend_from_slice(VERSION);
        out.flag(self.head.staged);
        out.bytes(&self.head.source);
        out.seal();
        out.list(&self.rules.include);
        out.list(&self.rules.exclude);
        out.flag(self.rules.respect_gitignore);
        out.number(self.rules.gitignores.len() as u64);
        for (directory, text) in &self.rules.gitignores {
            out.bytes(directory);
            out.bytes(text);
        }
        out.number(self.left_out.count);
        out.number(self.left_out.first.len() as u64);
        for left in &self.left_out.first {
            out.bytes(left.path.as_bytes());
            out.bytes(left.reason.as_bytes());
        }
        match &self.git {
            GitBaseline::Made => out.flag(true),
            GitBaseline::Skipped { reason } => {
                out.flag(false);
                out.bytes(reason.as_bytes());
            }
        }
        out.number(self.packs);
        out.number(self.manifest.entries().len() as u64);
        let places = self
            .packed_at
            .iter()
            .copied()
            .chain(std::iter::repeat(None));
        for (entry, place) in self.manifest.entries().iter().zip(places) {
            out.entry(entry, place);
        }
        out.seal();
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut input = Reader { all: bytes, at: 0 };
        let head = input.head()?;
        let body_end = bytes.len().checked_sub(HASH_BYTES).ok_or(SHORT)?;
        let body = bytes.get(..body_end).ok_or(SHORT)?;
        // First of all: what follows may then only be wrong where the writer was.
        if bytes.get(body_end..) != Some(Sha256::digest(body).as_slice()) {
            return Err(Damage("its checksum does not match"));
        }
        input.all = body;
        let rules = Rules {
            include: input.list()?,
            exclude: input.list()?,
            respect_gitignore: input.flag()?,
            gitignores: input
                .many(|input| Ok((input.bytes()?.to_vec(), input.bytes()?.to_vec())))?,
        };
        let count = input.number()?;
        let first = input.many(|input| {
            Ok(LeftOut {
                path: input.text()?,
                reason: input.text()?,
            })
        })?;
        let git = if input.flag()? {
            GitBaseline::Made
        } else {
            let reason = input.text()?;
            GitBaseline::Skipped { reason }
        };
        let packs = input.number()?;
        let entries = input.many(|input| input.entry(packs))?;
        if input.at != body.len() || !is_sorted(&entries) {
            return Err(IMPOSSIBLE);
        }
        let (entries, packed_at) = entries.into_iter().unzip();
        Ok(Self {
            head,
            rules,
            left_out: LeftOutList { first, count },
            git,
            manifest: Manifest::new(entries),
            packed_at,
            packs,
        })
    }
}

impl Head {
    /// Reads the head alone, from the beginning of a record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        Reader { all: bytes, at: 0 }.head()
    }
}

fn is_sorted(entries: &[(Entry, Option<Place>)]) -> bool {
    entries.is_sorted_by(|(left, _), (right, _)| left.path_bytes() < right.path_bytes())
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn list(&mut self, list: &[String]) {
        self.number(list.len() as u64);
        for text in list {
            self.bytes(text.as_bytes());
        }
    }

    fn entry(&mut self, entry: &Entry, place: Option<Place>) {
        self.bytes(entry.path_bytes());
        self.0.extend_from_slice(&entry.kind().tag());
        self.number(entry.mode().into());
        self.number(entry.size());
        self.0.extend_from_slice(entry.sha256());
        self.bytes(entry.target_bytes());
        self.flag(place.is_some());
        if let Some(place) = place {
            self.number(place.pack);
            self.number(place.at);
        }
    }

    fn seal(&mut self) {
        let hash = Sha256::digest(&self.0);
        self.0.extend_from_slice(&hash);
    }
}

struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let end = self.at.checked_add(count).ok_or(SHORT)?;
        let taken = self.all.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    fn number(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn flag(&mut self) -> Result<bool, Damage> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(IMPOSSIBLE),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let count = usize::try_from(self.number()?).map_err(|_| SHORT)?;
        self.take(count)
    }

    fn text(&mut self) -> Result<String, Damage> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| IMPOSSIBLE)?;
        Ok(text.to_owned())
    }

    fn list(&mut self) -> Result<Vec<String>, Damage> {
        self.many(Self::text)
    }

    /// Reads as many as a number says. Nothing is reserved by it: what is not there ends the reading.
    fn many<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Damage>,
    ) -> Result<Vec<T>, Damage> {
        let count = self.number()?;
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(read(self)?);
        }
        Ok(found)
    }

    fn head(&mut self) -> Result<Head, Damage> {
        if self.take(VERSION.len())? != VERSION {
            return Err(Damage("it is of another version, or no record of a stage"));
        }
        let head = Head {
            staged: self.flag()?,
            source: self.bytes()?.to_vec(),
        };
        let hash = Sha256::digest(self.all.get(..self.at).ok_or(SHORT)?);
        if self.take(HASH_BYTES)? != hash.as_slice() {
            return Err(Damage("its checksum does not match"));
        }
        if !head.source.starts_with(b"/") || head.source.contains(&0) {
            return Err(IMPOSSIBLE);
        }
        Ok(head)
    }

    fn entry(&mut self, packs: u64) -> Result<(Entry, Option<Place>), Damage> {
        let path = self.bytes()?;
        let plain = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
        if path.contains(&0) || !path.split(|&byte| byte == b'/').all(plain) {
            return Err(IMPOSSIBLE);
        }
        let kind = FileKind::from_tag(self.array()?).ok_or(IMPOSSIBLE)?;
        let mode = u32::try_from(self.number()?).map_err(|_| IMPOSSIBLE)?;
        let (size, sha256) = (self.number()?, self.array()?);
        let entry = Entry::recorded(path, kind, mode, size, sha256, self.bytes()?);
        let place = if self.flag()? {
            let (pack, at) = (self.number()?, self.number()?);
            Some(Place { pack, at })
        } else {
            None
        };
        if place.is_some_and(|place| place.pack >= packs) {
            return Err(IMPOSSIBLE);
        }
        Ok((entry, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = (Entry, Option<Place>)> {
        let name = prop::collection::vec(
            prop::num::u8::ANY.prop_filter("name", |byte| !matches!(byte, 0 | b'/' | b'.')),
            1..6,
        );
        let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'));
        let place =
            prop::option::of((0_u64..3, any::<u64>()).prop_map(|(pack, at)| Place { pack, at }));
        (
            path,
            0_u8..3,
            any::<u32>(),
            any::<u64>(),
            any::<[u8; 32]>(),
            place,
        )
            .prop_map(|(path, kind, mode, size, hash, place)| {
                let entry = match kind {
                    0 => Entry::file(&path, mode, size, hash),
                    1 => Entry::directory(&path, mode),
                    _ => Entry::symlink(&path, hash.to_vec()),
                };
                (entry, place)
            })
    }

    prop_compose! {
        fn record()(
            staged: bool,
            source in "/[a-z/]{0,20}",
            include in prop::collection::vec(".{0,8}", 0..3),
            texts in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..5), prop::collection::vec(any::<u8>(), 0..9), 0..3),
            left in prop::collection::vec((".{0,8}", ".{0,8}"), 0..3),
            reason in prop::option::of(".{0,8}"),
            entries in prop::collection::vec(entry(), 0..12),
        ) -> Record {
            let mut entries = entries;
            entries.sort_by(|(left, _), (right, _)| left.path_bytes().cmp(right.path_bytes()));
            entries.dedup_by(|(left, _), (right, _)| left.path_bytes() == right.path_bytes());
            let (entries, packed_at) = entries.into_iter().unzip();
            Record {
                head: Head { staged, source: source.into_bytes() },
                rules: Rules { exclude: include.clone(), include, respect_gitignore: staged, gitignores: texts.into_iter().collect() },
                left_out: LeftOutList { count: 7, first: left.into_iter().map(|(path, reason)| LeftOut { path, reason }).collect() },
                git: reason.map_or(GitBaseline::Made, |reason| GitBaseline::Skipped { reason }),
                manifest: Manifest::new(entries),
                packed_at,
                packs: 3,
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_is_read_back_and_nothing_else_is(record in record(), cut: prop::sample::Index, flip: prop::sample::Index, bit in 0_u8..8, noise in prop::collection::vec(any::<u8>(), 0..64)) {
            let bytes = record.encode();
            prop_assert_eq!(Record::decode(&bytes), Ok(record.clone()));
            prop_assert_eq!(Head::decode(&bytes), Ok(record.head));
            prop_assert!(Record::decode(&bytes[..cut.index(bytes.len())]).is_err(), "cut short");
            let mut flipped = bytes.clone();
            flipped[flip.index(bytes.len())] ^= 1 << bit;
            prop_assert!(Record::decode(&flipped).is_err(), "one bit");
            prop_assert!(Record::decode(&noise).is_err(), "noise");
            let mut longer = bytes;
            longer.extend_from_slice(&noise);
            prop_assert!(noise.is_empty() || Record::decode(&longer).is_err(), "longer");
        }

        /// What a wrong writer could have sealed is refused or read, and never more.
        #[test]
        fn a_sealed_body_may_hold_anything(body in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..300)) {
            let mut out = Writer(VERSION.to_vec());
            out.flag(true);
            out.bytes(b"/source");
            out.seal();
            out.0.extend_from_slice(&body);
            out.seal();
            drop(Record::decode(&out.0));
        }
    }
}
