//! The table of a whole folder.

use std::collections::BTreeMap;
use std::process::ExitCode;

use abp_dialect::Dialect;

use super::{Kind, Verdict};
use crate::output::say;

#[derive(Debug, Default)]
struct Counts {
    exact: usize,
    labelled: usize,
    refused: usize,
    silent: usize,
    failed: usize,
}

/// Counts by source, kind and target, and the first offenders.
#[derive(Debug)]
pub(super) struct Report {
    counts: BTreeMap<(Dialect, Kind, Dialect), Counts>,
    offenders: Vec<String>,
    other: usize,
}

impl Report {
    pub(super) fn new(other: usize) -> Self {
        Self {
            counts: BTreeMap::new(),
            offenders: Vec::new(),
            other,
        }
    }

    pub(super) fn enter(
        &mut self,
        from: Dialect,
        kind: Kind,
        to: Dialect,
        name: &str,
        verdict: Verdict,
    ) {
        let counts = self.counts.entry((from, kind, to)).or_default();
        match verdict {
            Verdict::Exact => counts.exact += 1,
            Verdict::Labelled => counts.labelled += 1,
            Verdict::Refused => counts.refused += 1,
            Verdict::Silent(problem) => {
                counts.silent += 1;
                self.offenders
                    .push(format!("silent {name} {from}→{to}: {problem}"));
            }
            Verdict::Failed(problem) => {
                counts.failed += 1;
                self.offenders
                    .push(format!("failed {name} {from}→{to}: {problem}"));
            }
        }
    }

    /// Prints the table; fails where anything was silent or failed.
    pub(super) fn finish(self, show: usize) -> ExitCode {
        say(format_args!(
            "{:<9} {:<9} {:<9} {:>6} {:>8} {:>7} {:>6} {:>6}",
            "from", "kind", "to", "exact", "labelled", "refused", "silent", "failed"
        ));
        let mut sum = Counts::default();
        for ((from, kind, to), counts) in &self.counts {
            say(format_args!(
                "{:<9} {:<9} {:<9} {:>6} {:>8} {:>7} {:>6} {:>6}",
                from.as_str(),
                format!("{kind:?}").to_lowercase(),
                to.as_str(),
                counts.exact,
                counts.labelled,
                counts.refused,
                counts.silent,
                counts.failed
            ));
            sum.exact += counts.exact;
            sum.labelled += counts.labelled;
            sum.refused += counts.refused;
            sum.silent += counts.silent;
            sum.failed += counts.failed;
        }
        for offender in self.offenders.iter().take(show) {
            say(offender);
        }
        let hidden = self.offenders.len().saturating_sub(show);
        if hidden > 0 {
            say(format_args!("and {hidden} more"));
        }
        if self.other > 0 {
            say(format_args!(
                "{} files of other operations (counting tokens, compaction) were left out",
                self.other
            ));
        }
        say(format_args!(
            "{} exact, {} labelled, {} refused, {} silent, {} failed",
            sum.exact, sum.labelled, sum.refused, sum.silent, sum.failed
        ));
        let passed = sum.exact + sum.labelled + sum.refused;
        let failed = sum.silent + sum.failed;
        say(format_args!("{passed} passed, {failed} failed, 0 skipped"));
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
