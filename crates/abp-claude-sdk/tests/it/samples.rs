//! Documents to read: our own fixtures, and recorded traffic where it is there.

use std::fs;
use std::path::{Path, PathBuf};

use abp_json::{Kind, Limits, Tape, View};

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Request,
    Response,
    Stream,
}

/// Every sample of a kind with its name.
pub(crate) fn samples(kind: Sample) -> Vec<(String, String)> {
    let word = match kind {
        Sample::Request => "request",
        Sample::Response => "response",
        Sample::Stream => "stream",
    };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/claude");
    let mut files: Vec<PathBuf> = files(&fixtures)
        .into_iter()
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(word)
        })
        .collect();
    assert!(!files.is_empty(), "no {word} among the fixtures");
    if let Some(shared) = abp_testkit::shared_dir() {
        files.extend(self::files(&shared.join("corpus/anthropic").join(word)));
    }
    let read = |path: PathBuf| {
        (
            path.display().to_string(),
            fs::read_to_string(&path).unwrap(),
        )
    };
    files.into_iter().map(read).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

pub(crate) fn parse(text: &str) -> Tape<'_> {
    Tape::parse_str(text, &Limits::default()).unwrap()
}

/// Whether two values are the same, spelling of numbers included; order of members aside.
pub(crate) fn same(left: View<'_>, right: View<'_>) -> bool {
    if left.kind() != right.kind() || left.len() != right.len() {
        return false;
    }
    match left.kind() {
        Kind::Object => left.entries().all(|(key, value)| {
            let other = right.get(&key.as_str().unwrap());
            other.is_some_and(|other| same(value, other))
        }),
        Kind::Array => left
            .items()
            .zip(right.items())
            .all(|(left, right)| same(left, right)),
        Kind::String => left.as_str() == right.as_str(),
        Kind::Null | Kind::Bool | Kind::Number => left.raw() == right.raw(),
    }
}

/// The other tests go on with the fixtures alone; this one says so.
#[test]
fn recorded_traffic_is_among_the_samples() {
    if abp_testkit::shared_dir().is_none() {
        return abp_testkit::skip("recorded traffic of Claude", "there is no shared directory");
    }
    for kind in [Sample::Request, Sample::Response, Sample::Stream] {
        let names = samples(kind);
        assert!(names.iter().any(|(name, _)| name.contains("corpus")));
    }
}
