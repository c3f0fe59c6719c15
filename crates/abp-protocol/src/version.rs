//! Version negotiation.

/// Extracts major and minor from `abp/vMAJOR.MINOR`.
#[must_use]
pub fn parse_version(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.strip_prefix("abp/v")?.split_once('.')?;
    Some((parse_number(major)?, parse_number(minor)?))
}

/// Whether two versions share a major number. An unreadable version is compatible with nothing.
#[must_use]
pub fn is_compatible_version(theirs: &str, ours: &str) -> bool {
    match (parse_version(theirs), parse_version(ours)) {
        (Some((theirs, _)), Some((ours, _))) => theirs == ours,
        _ => false,
    }
}

/// Digits only: `u32::from_str` would take a sign.
fn parse_number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}
