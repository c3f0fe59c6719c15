//! The summary is what people and CI believe, so its every line is fixed here.

use super::*;

fn outcome(suite: &'static str, reported: Option<[usize; 3]>, skips: &[&str]) -> Outcome {
    let reported = reported.map(|[passed, failed, skipped]| Counts {
        passed,
        failed,
        skipped,
    });
    let skips = skips.iter().map(|what| Skip {
        what: (*what).to_owned(),
        why: "no data".to_owned(),
    });
    let time = Duration::from_millis(1500);
    judge(suite, reported, None, skips.collect(), time)
}

#[track_caller]
fn check(outcomes: &[Outcome], expected: &[&str], well: bool) {
    let (lines, all_is_well) = summary(outcomes);
    assert_eq!(lines, expected);
    assert_eq!(all_is_well, well);
}

#[test]
fn a_test_that_skipped_itself_is_not_a_passed_one() {
    check(
        &[
            outcome("workspace", Some([10, 0, 1]), &["corpus", "browser"]),
            outcome("doc", Some([2, 0, 0]), &[]),
        ],
        &[
            "workspace  8 passed, 0 failed, 3 skipped  (1.5 s)",
            "doc        2 passed, 0 failed, 0 skipped  (1.5 s)",
            "workspace skipped: corpus — no data",
            "workspace skipped: browser — no data",
            "10 passed, 0 failed, 3 skipped",
        ],
        true,
    );
}

#[test]
fn one_failure_fails_the_run() {
    check(
        &[outcome("workspace", Some([10, 1, 0]), &[])],
        &[
            "workspace  10 passed, 1 failed, 0 skipped  (1.5 s)",
            "10 passed, 1 failed, 0 skipped",
        ],
        false,
    );
}

#[test]
fn a_suite_without_a_report_fails_and_gets_no_figures() {
    check(
        &[
            outcome("workspace", None, &[]),
            outcome("doc", Some([2, 0, 0]), &[]),
        ],
        &[
            "workspace  no result  (1.5 s)",
            "doc        2 passed, 0 failed, 0 skipped  (1.5 s)",
            "workspace: the runner reported no result",
            "2 passed, 0 failed, 0 skipped",
        ],
        false,
    );
}

#[test]
fn a_run_without_tests_fails() {
    check(
        &[outcome("workspace", Some([0, 0, 0]), &[])],
        &[
            "workspace  0 passed, 0 failed, 0 skipped  (1.5 s)",
            "no test ran",
            "0 passed, 0 failed, 0 skipped",
        ],
        false,
    );
}

#[test]
fn more_skips_than_passed_tests_cannot_be_right() {
    let broken = outcome("workspace", Some([1, 0, 0]), &["a", "b"]);
    assert!(broken.problem.is_some());
}
