//! Whole documents, there and back.

use std::collections::HashSet;

use abp_dialect::{Dialect, Exchange};
use abp_json::{Limits, Tape};
use abp_translate::{
    Action, FidelityLevel, LedgerEntry, Options, TranslateError, Translation, UNEXPLAINED,
    translate_error, translate_request, translate_response,
};

use super::tree::{leaves, same_leaf, upwards};
use super::{Kind, Verdict};

pub(super) fn judge(
    bytes: &[u8],
    from: Dialect,
    to: Dialect,
    kind: Kind,
    status: Option<u16>,
) -> Verdict {
    let there = match translate(bytes, from, to, kind, status) {
        Ok(there) => there,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    let back = match translate(there.output.as_bytes(), to, from, kind, there.status) {
        Ok(back) => back,
        Err(error) => return Verdict::Failed(format!("the way back: {error}")),
    };
    let parse = |text| Tape::parse(text, &Limits::default());
    let (Ok(source), Ok(target), Ok(again)) = (
        parse(bytes),
        parse(there.output.as_bytes()),
        parse(back.output.as_bytes()),
    ) else {
        return Verdict::Failed("what was written is no JSON".to_owned());
    };
    let entries = there.ledger.entries();
    let found = unexplained(entries)
        .or_else(|| wrong_value(entries, &source, &target))
        .or_else(|| unaccounted(entries, &target))
        .or_else(|| unnamed(entries, &source, &again, from == to));
    if let Some(problem) = found {
        return Verdict::Silent(problem);
    }
    match there.fidelity() {
        FidelityLevel::Lossless => Verdict::Exact,
        FidelityLevel::LossyLabeled => Verdict::Labelled,
        FidelityLevel::Unsupported => Verdict::Refused,
    }
}

fn translate(
    bytes: &[u8],
    from: Dialect,
    to: Dialect,
    kind: Kind,
    status: Option<u16>,
) -> Result<Translation, TranslateError> {
    let options = Options {
        check_way_back: true,
        ..Options::default()
    };
    match kind {
        Kind::Request => translate_request(bytes, from, to, &options),
        Kind::Error => translate_error(bytes, from, to, status, &options),
        Kind::Response | Kind::Stream => {
            translate_response(bytes, from, to, &Exchange::default(), &options)
        }
    }
}

fn unexplained(entries: &[LedgerEntry]) -> Option<String> {
    let entry = entries
        .iter()
        .find(|entry| entry.label.as_deref() == Some(UNEXPLAINED))?;
    let place = entry.source.as_deref().or(entry.target.as_deref());
    let reason = entry.reason.as_deref().unwrap_or_default();
    Some(format!("{}: {reason}", place.unwrap_or_default()))
}

/// What the ledger calls kept or merely moved has to be there, unchanged.
fn wrong_value(entries: &[LedgerEntry], source: &Tape<'_>, target: &Tape<'_>) -> Option<String> {
    entries
        .iter()
        .filter(|entry| matches!(entry.action, Action::Kept | Action::Renamed))
        .filter(|entry| entry.label.is_none())
        .find_map(|entry| {
            let (from, to) = (entry.source.as_deref()?, entry.target.as_deref()?);
            let (left, right) = (source.resolve(from)?, target.resolve(to));
            let same = right.is_some()
                && leaves(left).iter().all(|(place, leaf)| {
                    let other = target.resolve(&format!("{to}{place}"));
                    other.is_some_and(|other| same_leaf(*leaf, other))
                });
            (!same).then(|| format!("{from} is not at {to} as the ledger says"))
        })
}

/// Every value of the target needs a line.
fn unaccounted(entries: &[LedgerEntry], target: &Tape<'_>) -> Option<String> {
    let known: HashSet<&str> = entries
        .iter()
        .filter_map(|entry| entry.target.as_deref())
        .collect();
    leaves(target.root())
        .into_iter()
        // An empty list or object says nothing.
        .filter(|(_, leaf)| !matches!(leaf.kind(), abp_json::Kind::Array | abp_json::Kind::Object))
        .find(|(place, _)| !upwards(place).any(|place| known.contains(place)))
        .map(|(place, _)| format!("{place} of the target comes from nowhere"))
}

/// What is missing or changed on the way back has to be named.
fn unnamed(
    entries: &[LedgerEntry],
    source: &Tape<'_>,
    again: &Tape<'_>,
    same_dialect: bool,
) -> Option<String> {
    let named: HashSet<&str> = entries
        .iter()
        .filter(|entry| entry.action != Action::Kept)
        .filter_map(|entry| entry.source.as_deref())
        .collect();
    let named = |place: &str| !same_dialect && upwards(place).any(|place| named.contains(place));
    let changed = leaves(source.root()).into_iter().find(|(place, leaf)| {
        let back = again.resolve(place);
        !back.is_some_and(|back| same_leaf(*leaf, back)) && !named(place)
    });
    if let Some((place, _)) = changed {
        return Some(format!(
            "{place} does not come back, and the ledger does not name it"
        ));
    }
    let more = || leaves(again.root()).len() != leaves(source.root()).len();
    (same_dialect && more()).then(|| "the way back has more than the source".to_owned())
}
