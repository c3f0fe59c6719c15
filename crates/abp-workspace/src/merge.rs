//! Merges two changes to one text, line by line.
//!
//! Both sides are compared with the text they started from. Changes that leave at least one line
//! between them are made both; changes that meet or overlap are a conflict, unless both sides say the same.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::conflict::LineRange;

pub(crate) const MAX_BYTES: u64 = 4 * 1024 * 1024;
const MAX_LINES: usize = 50_000;
/// The time for one comparison; later it gets coarser, which can only make more conflicts.
const COMPARE_TIME: Duration = Duration::from_millis(500);

/// The outcome of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// Both changes.
    Clean(Vec<u8>),
    /// The places where they meet, in lines of the source.
    Conflicts(Vec<LineRange>),
    /// It is not text, or too much of it.
    NotText,
}

/// A place in the three texts, in lines.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LinePosition {
    base: usize,
    source: usize,
    stage: usize,
}

/// Merges the changes of `source` and `stage` to `base`.
pub(crate) fn merge(base: &[u8], source: &[u8], stage: &[u8]) -> Merged {
    let (Some(base), Some(source), Some(stage)) = (lines(base), lines(source), lines(stage)) else {
        return Merged::NotText;
    };
    // Where each line of the original is on either side, if it is there.
    let in_source = kept_lines(&base, &source);
    let in_stage = kept_lines(&base, &stage);
    let end = LinePosition {
        base: base.len(),
        source: source.len(),
        stage: stage.len(),
    };
    let kept = |line: usize| {
        let source = in_source.get(line).copied().flatten()?;
        let stage = in_stage.get(line).copied().flatten()?;
        Some(LinePosition {
            base: line,
            source,
            stage,
        })
    };
    let (mut merged, mut conflicts) = (Vec::<&[u8]>::new(), Vec::new());
    let mut at = LinePosition {
        base: 0,
        source: 0,
        stage: 0,
    };
    while at != end {
        if kept(at.base) == Some(at) {
            merged.extend(base.get(at.base));
            at = LinePosition {
                base: at.base + 1,
                source: at.source + 1,
                stage: at.stage + 1,
            };
            continue;
        }
        // Up to the next line that both sides kept, at least one of them changed something.
        let next = (at.base..base.len()).find_map(kept).unwrap_or(end);
        let original = base.get(at.base..next.base).unwrap_or_default();
        let ours = source.get(at.source..next.source).unwrap_or_default();
        let theirs = stage.get(at.stage..next.stage).unwrap_or_default();
        if ours == original || ours == theirs {
            merged.extend(theirs);
        } else if theirs == original {
            merged.extend(ours);
        } else {
            conflicts.push(LineRange::of(at.source..next.source));
        }
        at = next;
    }
    if conflicts.is_empty() {
        Merged::Clean(merged.concat())
    } else {
        Merged::Conflicts(conflicts)
    }
}

/// The lines of a text, each with its end; none where it is no text or too much.
fn lines(text: &[u8]) -> Option<Vec<&[u8]>> {
    if text.len() as u64 > MAX_BYTES || text.contains(&0) {
        return None;
    }
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    Some(lines).filter(|lines| lines.len() <= MAX_LINES)
}

fn kept_lines(base: &[&[u8]], side: &[&[u8]]) -> Vec<Option<usize>> {
    let mut kept = vec![None; base.len()];
    let deadline = Instant::now() + COMPARE_TIME;
    for operation in capture_diff_slices_deadline(Algorithm::Myers, base, side, Some(deadline)) {
        if let DiffOp::Equal {
            old_index,
            new_index,
            len,
        } = operation
        {
            let places = kept.iter_mut().skip(old_index).take(len);
            for (place, line) in places.zip(new_index..) {
                *place = Some(line);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn changes_that_meet_are_conflicts() {
        let check =
            |base: &str, source: &str, stage: &str, expected: Result<&str, &[(u64, u64)]>| {
                let found = merge(base.as_bytes(), source.as_bytes(), stage.as_bytes());
                let expected = match expected {
                    Ok(text) => Merged::Clean(text.as_bytes().to_vec()),
                    Err(lines) => Merged::Conflicts(
                        lines
                            .iter()
                            .map(|&(first, last)| LineRange { first, last })
                            .collect(),
                    ),
                };
                assert_eq!(found, expected, "{base:?} {source:?} {stage:?}");
            };
        let base = "1\n2\n3\n4\n5\n";
        check(
            base,
            "1\ntwo\n3\n4\n5\n",
            "1\n2\n3\nfour\n5\n",
            Ok("1\ntwo\n3\nfour\n5\n"),
        );
        check(
            base,
            "0\n1\n2\n3\n4\n5\n",
            "1\n2\n3\n4\n5\n6\n",
            Ok("0\n1\n2\n3\n4\n5\n6\n"),
        );
        check(base, "2\n3\n4\n5\n", "1\n2\n3\n", Ok("2\n3\n"));
        check(
            base,
            "1\nX\n3\n4\n5\n",
            "1\nX\n3\n4\n5",
            Ok("1\nX\n3\n4\n5"),
        );
        check(base, "1\nX\n3\n4\n5\n", "1\nY\n3\n4\n5\n", Err(&[(2, 2)]));
        check(base, "1\nX\n3\n4\n5\n", "1\n2\nY\n4\n5\n", Err(&[(2, 3)]));
        check(base, "1\n4\n5\n", "1\n2\nY\n4\n5\n", Err(&[(2, 2)]));
        check(
            base,
            "1\n2\n3\n4\n5\nX\n",
            "1\n2\n3\n4\n5\nY\n",
            Err(&[(6, 6)]),
        );
        check("", "a\n", "b\n", Err(&[(1, 1)]));
        check("a", "a\nb", "x\na", Err(&[(1, 2)]));
        check("a\nb\nc", "a\r\nb\nc", "a\nb\nc\nd", Ok("a\r\nb\nc\nd"));
        assert_eq!(merge(b"\0", b"\0\n", b"\n\0"), Merged::NotText);
    }

    proptest! {
        /// Either side changes lines of its own, with an untouched line between any two changes.
        #[test]
        fn changes_apart_are_both_made(edits in prop::collection::vec((0_u8..3, 0_u8..4), 1..60)) {
            let (mut base, mut source, mut stage, mut expected) = (String::new(), String::new(), String::new(), String::new());
            for (number, (side, change)) in edits.into_iter().enumerate() {
                let untouched = format!("between {number}\n");
                let old = format!("old {number}\n");
                let new = match change {
                    0 => String::new(),
                    1 => format!("new {number}\n"),
                    2 => format!("{old}added {number}\n"),
                    _ => format!("added {number}\n{old}"),
                };
                base += &(untouched.clone() + &old);
                source += &(untouched.clone() + if side == 0 { &new } else { &old });
                stage += &(untouched.clone() + if side == 1 { &new } else { &old });
                expected += &(untouched + if side == 2 { &old } else { &new });
            }
            let merged = merge(base.as_bytes(), source.as_bytes(), stage.as_bytes());
            prop_assert_eq!(merged, Merged::Clean(expected.clone().into_bytes()));
            let swapped = merge(base.as_bytes(), stage.as_bytes(), source.as_bytes());
            prop_assert_eq!(swapped, Merged::Clean(expected.into_bytes()));
        }

        /// Whatever the texts are: a side that changed nothing gives way, and a change both made is
        /// made once.
        #[test]
        fn one_change_wins_alone(base in "[abc\n]{0,40}", side in "[abc\n]{0,40}") {
            let (base, side) = (base.as_bytes(), side.as_bytes());
            for (source, stage) in [(side, base), (base, side), (side, side)] {
                prop_assert_eq!(merge(base, source, stage), Merged::Clean(side.to_vec()));
            }
        }
    }
}
