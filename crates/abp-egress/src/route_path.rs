//! Paths below a route's base path.

use percent_encoding::percent_decode_str;

/// Layers of percent encoding that are looked through; targets decode once, some twice.
const DECODED_LAYERS: usize = 4;

/// Says why a path could lead out of the base path it is appended to.
///
/// The path is looked at as any target might read it: decoded up to four times, with `\` as a separator
/// and without the parameters that some servers cut off (`..;x`). An encoded slash inside a segment is
/// fine (`@scope%2fname`), as long as none of its parts is a dot segment.
pub(crate) fn why_unsafe(path: &str) -> Option<&'static str> {
    let mut text = path.as_bytes().to_vec();
    for _ in 0..=DECODED_LAYERS {
        if let Some(why) = why_unsafe_as_read(&text) {
            return Some(why);
        }
        let Ok(current) = std::str::from_utf8(&text) else {
            return Some("the path is not UTF-8");
        };
        let decoded: Vec<u8> = percent_decode_str(current).collect();
        if decoded == text {
            return None;
        }
        text = decoded;
    }
    Some("the path is encoded too many times")
}

fn why_unsafe_as_read(text: &[u8]) -> Option<&'static str> {
    if text.iter().any(u8::is_ascii_control) {
        return Some("the path contains a control byte");
    }
    if text.contains(&b'\\') {
        return Some("the path contains a backslash");
    }
    let mut segments = text.split(|byte| *byte == b'/');
    let has_dots = segments.any(|segment| {
        let name = segment.split(|byte| *byte == b';').next();
        matches!(name.unwrap_or_default().trim_ascii(), b"." | b"..")
    });
    has_dots.then_some("the path contains a dot segment")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_paths_that_stay_below_are_safe() {
        let dots = Some("the path contains a dot segment");
        let backslash = Some("the path contains a backslash");
        let control = Some("the path contains a control byte");
        let cases = [
            ("", None),
            ("/", None),
            ("/v1/messages", None),
            ("/@scope%2fname", None),
            ("/a..b/...", None),
            ("//double", None),
            ("/100%25", None),
            ("/caf%C3%A9", None),
            ("/..", dots),
            ("/../x", dots),
            ("/a/../../x", dots),
            ("/./x", dots),
            ("/%2e%2e/x", dots),
            ("/%2E./x", dots),
            ("/.%2e%2fx", dots),
            ("/%252e%252e/x", dots),
            ("/%25252e%25252e%25252fx", dots),
            ("/a%2f..%2fx", dots),
            ("/..;a=b/x", dots),
            ("/..%3b/x", dots),
            ("/..%20/x", dots),
            ("/..\\x", backslash),
            ("/..%5cx", backslash),
            ("/%255c..", backslash),
            ("/a%00b", control),
            ("/a%0d%0aHost:%20b", control),
            ("/%ff", Some("the path is not UTF-8")),
            (
                "/%2525252525252e",
                Some("the path is encoded too many times"),
            ),
        ];
        for (path, expected) in cases {
            assert_eq!(why_unsafe(path), expected, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The WHATWG reader, which normalises dot segments in many spellings, stays below the base.
        #[test]
        fn a_safe_path_stays_below_the_base(path in "/([.%/;\\\\a25efEF]{0,16}|\\PC{0,8})") {
            if path.is_ascii() && why_unsafe(&path).is_none() {
                let joined = format!("http://host/base/path{path}");
                let read = url::Url::parse(&joined).unwrap();
                prop_assert!(read.path().starts_with("/base/path/"), "{} {}", path, read);
            }
        }
    }
}
