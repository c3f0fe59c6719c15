//! A few members of a large document, without reading the rest of it.

use crate::string::plain_end;

/// Room for what is usually kept.
const USUAL: usize = 256;

/// Returns a document that has only those members of the outermost object that have one of these names.
///
/// What is in other members is skipped, not checked: this is for documents that somebody else reads as
/// they are. `None` where the document is no object, ends early, or spells a name with an escape; then
/// nothing less than a [`Tape`](crate::Tape) tells what is in it.
pub fn only_members(source: &str, names: &[&str]) -> Option<String> {
    let mut scan = Scan { source, at: 0 };
    scan.expect(b'{')?;
    let mut kept = String::with_capacity(USUAL);
    kept.push('{');
    loop {
        let start = scan.space();
        match scan.next()? {
            b'}' => break,
            b',' => continue,
            b'"' => {}
            _ => return None,
        }
        scan.string()?;
        let key = source.get(start..scan.at)?;
        if key.contains('\\') {
            return None;
        }
        scan.expect(b':')?;
        let value = scan.value()?;
        let name = key.get(1..key.len() - 1)?;
        if names.contains(&name) {
            if kept.len() > 1 {
                kept.push(',');
            }
            kept.extend([key, ":", value]);
        }
    }
    let is_all = scan.space() == source.len();
    kept.push('}');
    is_all.then_some(kept)
}

struct Scan<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Scan<'s> {
    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Goes on to what is no space; returns where that is.
    fn space(&mut self) -> usize {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
        self.at
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.space();
        (self.next()? == wanted).then_some(())
    }

    /// Goes on behind a string whose first quote was read.
    fn string(&mut self) -> Option<()> {
        loop {
            self.at = plain_end(self.source.as_bytes(), self.at);
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.at += 1,
                // A parser would refuse it.
                _ => return None,
            }
        }
    }

    /// Goes on behind a value.
    fn value(&mut self) -> Option<&'s str> {
        let start = self.space();
        let mut depth = 0_usize;
        loop {
            let rest = self.source.as_bytes().get(self.at..)?;
            let found = rest.iter().position(|byte| is_structure(*byte))?;
            self.at += found;
            match rest.get(found)? {
                b'"' => {
                    self.at += 1;
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b',' if depth > 0 => {}
                _ if depth == 0 => break,
                _ => depth -= 1,
            }
            self.at += 1;
        }
        Some(self.source.get(start..self.at)?.trim_end())
    }
}

fn is_structure(byte: u8) -> bool {
    matches!(byte, b'"' | b',' | b'[' | b']' | b'{' | b'}')
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{Limits, Tape};

    #[test]
    fn only_the_outermost_members_count() {
        let cases = [
            (
                r#"{"usage":{"a":[1,"}"]},"x":1}"#,
                Some(r#"{"usage":{"a":[1,"}"]}}"#),
            ),
            (
                r#" { "x" : {"usage":1} , "usage" : 2 } "#,
                Some(r#"{"usage":2}"#),
            ),
            (
                r#"{"x":"\"usage\":3,\\","usage":null}"#,
                Some(r#"{"usage":null}"#),
            ),
            (
                r#"{"usage":1,"b":[],"usage":2}"#,
                Some(r#"{"usage":1,"usage":2}"#),
            ),
            (r#"{"x":["usage",{"usage":1}]}"#, Some("{}")),
            ("{}", Some("{}")),
            (r#"{"\u0075sage":1}"#, None),
            (r#"{"usage":1"#, None),
            (r#"{"usage":{"a":1}"#, None),
            (r#"{"usage":"1}"#, None),
            (r#"{"usage":1} x"#, None),
            (r#"[{"usage":1}]"#, None),
            ("", None),
        ];
        for (source, expected) in cases {
            assert_eq!(
                only_members(source, &["usage"]).as_deref(),
                expected,
                "{source}"
            );
        }
    }

    /// Whatever JSON it is, what is found is what a parser finds.
    #[test]
    fn it_agrees_with_the_tape() {
        let values = [
            "1",
            "null",
            r#""a\"b""#,
            r#"{"k":{"k":[]}}"#,
            "[[1,2],{}]",
            r#""\\""#,
            "-1.5e3",
        ];
        let keys = ["k", "usage", "", "é", "k "];
        for first in values {
            for second in values {
                for key in keys {
                    for space in ["", " ", "\n\t"] {
                        let source = format!(
                            "{space}{{{space}\"{key}\"{space}:{space}{first}{space},\"k\":{second}{space}}}{space}"
                        );
                        let kept = only_members(&source, &["k"]).expect("an object");
                        let kept: Value = serde_json::from_str(&kept).expect("JSON");
                        let tape = Tape::parse_str(&source, &Limits::default()).expect("JSON");
                        let wanted = tape.root().get("k").and_then(|view| view.to_value().ok());
                        assert_eq!(kept.get("k"), wanted.as_ref(), "{source}");
                    }
                }
            }
        }
    }
}
