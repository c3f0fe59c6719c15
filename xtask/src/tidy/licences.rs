//! Everything we link may be shipped with a closed product: permissive licences only.
//!
//! A package under another licence, or with none in its manifest, needs an exception with a reason.

use super::Finding;
use crate::workspace::Workspace;

const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let packages = workspace.metadata.packages.iter();
    packages
        .filter_map(|package| {
            let licence = package.license.as_deref().unwrap_or("none named");
            let name = &package.name;
            (!is_permissive(licence)).then(|| {
                let message = format!(
                    "{name} {}: licence `{licence}` is not on the list; see `cargo tree -i {name}`",
                    package.version
                );
                Finding::in_file("Cargo.lock", message)
            })
        })
        .collect()
}

/// Says whether an SPDX expression can be met with permissive licences alone.
fn is_permissive(expression: &str) -> bool {
    // Before SPDX expressions were required, a slash meant a choice.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut terms = Terms(spaced.split_whitespace().collect());
    terms.any() == Some(true) && terms.0.is_empty()
}

/// What is left of an expression; `None` means that it is malformed.
struct Terms<'a>(std::collections::VecDeque<&'a str>);

impl Terms<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.take("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.take("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let met = self.any()?;
            return self.take(")").then_some(met);
        }
        let met = PERMISSIVE.contains(&self.0.pop_front()?);
        // An exception only ever grants more.
        if self.take("WITH") {
            self.0.pop_front()?;
        }
        Some(met)
    }

    fn take(&mut self, term: &str) -> bool {
        let next = self.0.front() == Some(&term);
        if next {
            self.0.pop_front();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let check = |expression: &str, expected: bool| {
            assert_eq!(is_permissive(expression), expected, "{expression}");
        };
        check("MIT", true);
        check("MIT/Apache-2.0", true);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0 AND MIT", false);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("MIT OR Apache-2.0 AND GPL-3.0", true);
        check("(MIT OR Apache-2.0) AND GPL-3.0", false);
        check("LGPL-2.1-or-later", false);
        check("none named", false);
        check("(MIT", false);
        check("", false);
    }
}
