//! Refuses patterns that would be expensive, before the compiler sees them.
//!
//! Measured with globset 0.4.21: alternatives are not expanded, so `{a,b}{a,b}…` grows linearly,
//! but without a limit a thousand such patterns take three seconds and 240 MB to compile. Stars are
//! worse: they make a match slow, 0.15 s for one pattern of 511 stars and minutes for a hundred of
//! them. What counts is the number of stars in a pattern times the bytes of all patterns that need
//! the regex engine; both are limited here.

use crate::GlobError;

/// The most patterns in one list.
pub const MAX_PATTERNS: usize = 1_000;
/// The most bytes in one pattern.
pub const MAX_PATTERN_BYTES: usize = 1_024;
/// The most bytes in all patterns of a list that contain a wildcard.
pub const MAX_WILDCARD_BYTES: usize = 32 * 1_024;
/// The most `*` in one pattern.
pub const MAX_STARS: usize = 16;
/// The most alternatives in all braces of one pattern.
pub const MAX_ALTERNATES: usize = 64;
/// The deepest nesting of braces.
pub const MAX_BRACE_DEPTH: usize = 4;

/// Checks a list against every limit without compiling it, for lists that another compiler takes.
///
/// # Errors
/// Names the first pattern that exceeds a limit, and which.
pub fn check_limits(patterns: &[String]) -> Result<(), GlobError> {
    if patterns.len() > MAX_PATTERNS {
        return Err(GlobError::TooMany {
            count: patterns.len(),
            max: MAX_PATTERNS,
        });
    }
    let mut wildcard_bytes = 0;
    for (index, pattern) in patterns.iter().enumerate() {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(GlobError::TooLong {
                index,
                pattern: pattern.clone(),
                length: pattern.len(),
                max: MAX_PATTERN_BYTES,
            });
        }
        let shape = Shape::of(pattern);
        if shape.wildcard {
            wildcard_bytes += pattern.len();
        }
        let exceeded = [
            (shape.stars, MAX_STARS, "stars"),
            (shape.alternates, MAX_ALTERNATES, "alternatives"),
            (shape.depth, MAX_BRACE_DEPTH, "levels of braces"),
            (
                wildcard_bytes,
                MAX_WILDCARD_BYTES,
                "bytes of wildcard patterns in the list",
            ),
        ];
        if let Some((found, max, what)) = exceeded.into_iter().find(|(found, max, _)| found > max) {
            return Err(GlobError::TooComplex {
                index,
                pattern: pattern.clone(),
                reason: format!("{found} {what}, more than {max}"),
            });
        }
    }
    Ok(())
}

/// What makes a pattern expensive. Escapes and classes are not looked into: counting a literal
/// brace as a brace only makes the limits a little stricter.
#[derive(Default)]
struct Shape {
    wildcard: bool,
    stars: usize,
    alternates: usize,
    depth: usize,
}

impl Shape {
    fn of(pattern: &str) -> Self {
        let mut shape = Self::default();
        let mut open = 0_usize;
        for byte in pattern.bytes() {
            shape.wildcard |= matches!(byte, b'*' | b'?' | b'[' | b'{');
            match byte {
                b'*' => shape.stars += 1,
                b'{' => {
                    open += 1;
                    shape.depth = shape.depth.max(open);
                    shape.alternates += 1;
                }
                b'}' => open = open.saturating_sub(1),
                b',' if open > 0 => shape.alternates += 1,
                _ => {}
            }
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::GlobList;

    /// Long enough for a slow machine and an unoptimised build, far below what the unlimited
    /// patterns took.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn repeated(pattern: &str, count: usize) -> Vec<String> {
        (0..count)
            .map(|number| format!("{pattern}{number}"))
            .collect()
    }

    #[test]
    fn a11_bombs_are_refused() {
        let check = |name: &str, patterns: &[String], expected: &str| {
            let error = GlobList::new(patterns).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        };
        check("long", &["a".repeat(1_025)], "1025 bytes, more than 1024");
        check("many", &repeated("a", 1_001), "list of 1001 patterns");
        check("braces", &["{a,b}".repeat(200)], "400 alternatives");
        check(
            "nested",
            &["{".repeat(200) + &"}".repeat(200)],
            "alternatives",
        );
        check(
            "deep",
            &["{".repeat(5) + &"}".repeat(5)],
            "5 levels of braces",
        );
        check("stars", &["*a".repeat(500)], "500 stars");
        check(
            "bulk",
            &repeated(&"?".repeat(1_000), 100),
            "bytes of wildcard patterns",
        );
    }

    #[test]
    fn a11_the_worst_list_within_the_limits_is_bearable() {
        let lists = [
            repeated(&"*aaaaaaaaaa".repeat(MAX_STARS), MAX_WILDCARD_BYTES / 180),
            repeated(
                &"{a,b}".repeat(MAX_ALTERNATES / 2),
                MAX_WILDCARD_BYTES / 170,
            ),
            repeated("**/?[!a]{b,c}*", MAX_PATTERNS - 1),
            repeated(&"x".repeat(1_000), MAX_PATTERNS),
        ];
        for patterns in lists {
            let started = Instant::now();
            let list = GlobList::for_paths(&patterns).expect("within the limits");
            assert!(!list.is_match("a".repeat(1_000)));
            assert!(started.elapsed() < PATIENCE, "{:?}", patterns.first());
        }
    }
}
