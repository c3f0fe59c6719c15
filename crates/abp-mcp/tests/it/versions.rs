//! Versions: which are spoken, and which is chosen.

use abp_mcp::{Era, ProtocolVersion, answer_initialize, choose, validate_protocol_version};

use ProtocolVersion::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

#[test]
fn known_versions_are_valid_and_others_are_not() {
    for version in ProtocolVersion::ALL {
        assert_eq!(validate_protocol_version(version.as_str()), Ok(version));
    }
    for text in ["", "2025-11-26", "2025-11-25 ", "DRAFT-2026-v1", "1.0"] {
        let error = validate_protocol_version(text).unwrap_err();
        assert_eq!(error.requested, text);
    }
}

#[test]
fn initialize_is_answered_with_a_version_that_is_spoken() {
    let all = ProtocolVersion::ALL;
    let old = [V2024_11_05, V2025_06_18];
    let check = |requested: &str, spoken: &[ProtocolVersion], expected| {
        assert_eq!(
            answer_initialize(requested, spoken),
            expected,
            "{requested}"
        );
    };
    check("2024-11-05", &all, Some(V2024_11_05));
    check("2025-11-25", &all, Some(V2025_11_25));
    check("2025-11-25", &old, Some(V2025_06_18));
    check("1999-01-01", &all, Some(V2025_11_25));
    // There is no handshake in it, so a handshake cannot agree on it.
    check("2026-07-28", &all, Some(V2025_11_25));
    check("2025-11-25", &[V2026_07_28], None);
}

#[test]
fn the_newest_common_version_of_an_era_is_chosen() {
    let check = |era, spoken: &[ProtocolVersion], offered: &[&str], expected| {
        assert_eq!(choose(era, spoken, offered.iter().copied()), expected);
    };
    let all = ProtocolVersion::ALL;
    check(
        Era::Modern,
        &all,
        &["2025-11-25", "2026-07-28", "2027-01-01"],
        Some(V2026_07_28),
    );
    check(
        Era::Legacy,
        &all,
        &["2024-11-05", "2026-07-28", "2025-06-18"],
        Some(V2025_06_18),
    );
    check(Era::Modern, &all, &["2025-11-25"], None);
    check(Era::Modern, &[V2025_11_25], &["2026-07-28"], None);
    check(Era::Legacy, &all, &[], None);
}
