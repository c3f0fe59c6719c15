//! Which packages may be in the build at all, who may use them, and how old they may be.
//!
//! Advisory databases cannot be fetched everywhere; the floors below are the part of them that
//! concerns packages we use or are likely to.

use super::Finding;
use crate::workspace::{DepKind, Package, Workspace};

/// Nowhere in the build, not even through another package.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "TLS is rustls, without a system library"),
    ("native-tls", "TLS is rustls, without a system library"),
    ("serde_yml", "it is unsound"),
    ("serde_yaml", "it is unmaintained"),
    ("tokio-tar", "it has unpatched advisories"),
];

/// Not in a manifest of ours, except in the named crates.
const RESTRICTED: &[(&str, &[&str], &str)] = &[
    ("async-trait", &[], "return a boxed future instead"),
    ("chrono", &[], "time is jiff"),
    ("time", &[], "time is jiff"),
    ("lazy_static", &[], "use std::sync::LazyLock"),
    ("once_cell", &[], "use std::sync::OnceLock"),
    ("simd-json", &[], "it needs a mutable input and unsafe code"),
    (
        "eventsource-stream",
        &[],
        "it is unmaintained and has no limits",
    ),
    (
        "anyhow",
        &["abp-cli", "xtask"],
        "a library has an error enum",
    ),
    ("sqlx", &["abp-store"], "databases are abp-store's"),
];

/// The oldest version without a known advisory.
const FLOORS: &[(&str, &str)] = &[
    ("aws-lc-sys", "0.39.0"),
    ("bytes", "1.11.1"),
    ("cap-primitives", "3.4.1"),
    ("h2", "0.4.16"),
    ("hickory-proto", "0.26.1"),
    ("lru", "0.18.2"),
    ("rmcp", "1.4.0"),
    ("rustls", "0.23.18"),
    ("sqlx", "0.8.1"),
    ("tar", "0.4.45"),
    ("time", "0.3.47"),
    ("tracing-subscriber", "0.3.20"),
];

/// Features nobody may switch on, because cargo switches them on for everybody.
const BANNED_FEATURES: &[(&str, &str, &str)] = &[(
    "serde_json",
    "arbitrary_precision",
    "it breaks tagged and flattened types; number text is abp-json's",
)];

const LOCK: &str = "Cargo.lock";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let metadata = &workspace.metadata;
    let mut findings: Vec<_> = metadata
        .packages
        .iter()
        .filter_map(|package| verdict(&package.name, &package.version))
        .map(|message| Finding::in_file(LOCK, message))
        .collect();
    for node in metadata.nodes() {
        let Some(package) = metadata.package(&node.id) else {
            continue;
        };
        findings.extend(
            banned_feature(&package.name, &node.features)
                .map(|message| Finding::in_file(LOCK, message)),
        );
    }
    findings.extend(restricted(workspace));
    findings
}

fn restricted(workspace: &Workspace) -> Vec<Finding> {
    let edges = workspace
        .metadata
        .edges(&[DepKind::Normal, DepKind::Build, DepKind::Dev]);
    let mut findings = Vec::new();
    for member in workspace.metadata.members() {
        let direct = edges.get(member.id.as_str()).into_iter().flatten();
        for message in direct.filter_map(|dep| restriction(member, &dep.name)) {
            let manifest = workspace.relative(&member.manifest_path);
            findings.push(Finding::in_file(&manifest, message));
        }
    }
    findings
}

/// Returns what is wrong with having this version of a package in the build.
fn verdict(name: &str, version: &str) -> Option<String> {
    if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
        return Some(format!(
            "{name} is banned: {why}; see `cargo tree -i {name}`"
        ));
    }
    let (_, floor) = FLOORS.iter().find(|(listed, _)| *listed == name)?;
    (numbers(version) < numbers(floor)).then(|| {
        format!(
            "{name} {version} has known advisories: `cargo update -p {name}` to {floor} or later"
        )
    })
}

fn restriction(member: &Package, dependency: &str) -> Option<String> {
    let (_, allowed, why) = RESTRICTED.iter().find(|(name, ..)| *name == dependency)?;
    (!allowed.contains(&member.name.as_str()))
        .then(|| format!("{dependency} is not for this crate: {why}"))
}

fn banned_feature(package: &str, features: &[String]) -> Option<String> {
    let (_, feature, why) = BANNED_FEATURES
        .iter()
        .find(|(name, feature, _)| *name == package && features.iter().any(|on| on == feature))?;
    Some(format!("{package}/{feature} is switched on: {why}"))
}

/// Reads the leading `major.minor.patch`, enough to compare with a floor.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let parts = release.split('.');
    parts.map(|part| part.parse().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_and_floors() {
        let check = |name: &str, version: &str, fine: bool| {
            let found = verdict(name, version);
            assert_eq!(found.is_none(), fine, "{name} {version}: {found:?}");
        };
        check("serde", "1.0.0", true);
        check("serde_yml", "9.9.9", false);
        check("h2", "0.4.16", true);
        check("h2", "0.4.9", false);
        check("h2", "0.3.99", false);
        check("h2", "1.0.0", true);
        check("toml", "1.1.8+spec-1.1.0", true);
        check("time", "0.3.47-beta.1", true);
    }

    #[test]
    fn a_feature_is_banned_with_its_package() {
        let on = ["std".to_owned(), "arbitrary_precision".to_owned()];
        assert!(banned_feature("serde_json", &on).is_some());
        assert!(banned_feature("serde_json", &["std".to_owned()]).is_none());
        assert!(banned_feature("toml", &on).is_none());
    }
}
