//! Hosts in the one form that rules are decided on, and the patterns that name them.
//!
//! A rule is worth as much as the agreement between the one who checks a host and the one who
//! connects to it. Spellings that readers disagree about (user information, percent signs,
//! non-ASCII names, `127.1`, empty labels) are therefore refused, not interpreted.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use abp_glob::{GlobError, GlobList, GlobMatch};

use crate::Rule;

const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host, and perhaps a port, in the one form that rules are decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkTarget {
    /// Lower case, without a trailing dot; addresses in their shortest form, without brackets.
    host: String,
    port: Option<u16>,
    is_address: bool,
}

/// A pattern of `allow_network` that grants a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkGrant {
    /// The pattern and its place.
    pub rule: Rule,
    /// Whether the pattern is written for addresses (`10.0.0.*`, `[::1]`), so that it lists the
    /// address and does not merely happen to match it, as `*` does.
    pub names_address: bool,
    /// Whether the pattern has a port (`host:8080`, `host:*`).
    pub names_port: bool,
}

/// The position of a target in the network rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkListing {
    /// A pattern of `deny_network` names it.
    Denied(Rule),
    /// These patterns of `allow_network` grant it, in the order of the list; never empty.
    Granted(Vec<NetworkGrant>),
    /// No pattern names it; the rule is the one behind the patterns of `allow_network`.
    NotListed(Rule),
}

impl NetworkTarget {
    /// Reads `host`, `host:port`, an address, `[v6]` or `[v6]:port`.
    ///
    /// # Errors
    /// Says why the text is refused: a spelling that two readers could understand differently.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        refuse_odd_bytes(text)?;
        let (host, port) = split_port(text);
        let port = match port {
            None => None,
            Some(digits) => Some(parse_port(digits)?),
        };
        let host = normal_host(host)?;
        let is_address = host.parse::<IpAddr>().is_ok();
        Ok(Self {
            host,
            port,
            is_address,
        })
    }

    /// The host in lower case without a trailing dot, or the address in its shortest form without
    /// brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, where the text had one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address, where the host is one. A mapped IPv6 address is the IPv4 address it reaches.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        if self.is_address {
            self.host.parse().ok()
        } else {
            None
        }
    }

    /// The form that [`NetworkList::full`] is matched on.
    fn with_port(&self) -> String {
        let port = self.port.map(|port| port.to_string());
        format!("{}/{}", self.host, port.unwrap_or_default())
    }
}

/// A list of host patterns.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkList {
    /// `host/port` globs. A host has no slash, so the one slash of pattern and target always meet.
    full: GlobList,
    /// The same patterns without their ports, for targets whose port is not known.
    hosts: GlobList,
    /// Of each pattern, by its index.
    traits: Vec<PatternTraits>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PatternTraits {
    /// It is an address, or made of digits as globs for IPv4 addresses are.
    names_address: bool,
    names_port: bool,
}

impl NetworkList {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, GlobError> {
        let mut full = Vec::with_capacity(patterns.len());
        let mut hosts = Vec::with_capacity(patterns.len());
        let mut traits = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            let (host, port) = parse_pattern(pattern).map_err(|reason| GlobError::Invalid {
                index,
                pattern: pattern.clone(),
                reason: reason.to_owned(),
            })?;
            full.push(format!("{host}/{}", port.as_deref().unwrap_or("*")));
            let digits = host.contains(|byte: char| byte.is_ascii_digit())
                && !host.contains(|byte: char| byte.is_ascii_alphabetic());
            traits.push(PatternTraits {
                names_address: digits || host.parse::<IpAddr>().is_ok(),
                names_port: port.is_some(),
            });
            hosts.push(host);
        }
        Ok(Self {
            full: GlobList::new(&full).map_err(|error| error.as_written(patterns))?,
            hosts: GlobList::new(&hosts).map_err(|error| error.as_written(patterns))?,
            traits,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The first pattern that grants the target. Without a port, only a pattern for all ports does.
    pub(crate) fn granting(&self, target: &NetworkTarget) -> Option<GlobMatch<'_>> {
        self.all_granting(target).next().map(|(found, ..)| found)
    }

    /// Every pattern that grants the target, whether it names addresses and whether it names a port.
    ///
    /// A pattern for addresses grants addresses alone: anybody may own `10.0.0.evil.example`.
    pub(crate) fn all_granting(
        &self,
        target: &NetworkTarget,
    ) -> impl Iterator<Item = (GlobMatch<'_>, bool, bool)> {
        let matches = self.full.matches(Path::new(&target.with_port()));
        let is_address = target.is_address;
        matches.filter_map(move |found| {
            let PatternTraits {
                names_address,
                names_port,
            } = self.traits.get(found.index).copied().unwrap_or_default();
            (is_address || !names_address).then_some((found, names_address, names_port))
        })
    }

    /// The first pattern that forbids the target. Without a port, any port may be meant.
    pub(crate) fn forbidding(&self, target: &NetworkTarget) -> Option<GlobMatch<'_>> {
        match target.port {
            Some(_) => self.full.first_match(Path::new(&target.with_port())),
            None => self.hosts.first_match(Path::new(&target.host)),
        }
    }
}

fn refuse_odd_bytes(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("the host is empty");
    }
    text.bytes().try_for_each(|byte| match byte {
        0..=b' ' | 0x7f => Err("the host contains whitespace or a control byte"),
        0x80.. => Err("the host is not ASCII; write it in its `xn--` form"),
        b'@' => Err("the host contains user information"),
        b'%' => Err("the host contains a percent sign"),
        b'/' => Err("only a host or host:port can be named, not a URL"),
        _ => Ok(()),
    })
}

/// Splits off the text after the colon that separates a port. Brackets count as those of an IPv6
/// address when a colon stands between them; in a pattern they may also be a class.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && address.contains(':')
    {
        return match rest.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None if rest.is_empty() => (address, None),
            None => (text, None),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

fn parse_port(digits: &str) -> Result<u16, &'static str> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    match digits.parse() {
        Ok(port) if plain => Ok(port),
        _ => Err("the port is not a number from 1 to 65535"),
    }
}

fn normal_host(host: &str) -> Result<String, &'static str> {
    if host.contains(':') {
        let address: Ipv6Addr = host
            .parse()
            .map_err(|_| "the host is not a valid IPv6 address")?;
        // A mapped address reaches the IPv4 host, so it must meet that host's rules.
        return Ok(match address.to_ipv4_mapped() {
            Some(mapped) => mapped.to_string(),
            None => address.to_string(),
        });
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if name.len() > MAX_HOST_BYTES {
        return Err("the host is longer than 253 bytes");
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("the host has an empty label");
        }
        if label.len() > MAX_LABEL_BYTES {
            return Err("the host has a label longer than 63 bytes");
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !label.bytes().all(plain) {
            return Err("the host contains a byte that no host name has");
        }
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric && name.parse::<Ipv4Addr>().is_err() {
        return Err("the host is a number but not an IPv4 address in its plain form");
    }
    Ok(name)
}

/// The host part of a pattern, and its port part where it has one.
fn parse_pattern(pattern: &str) -> Result<(String, Option<String>), &'static str> {
    refuse_odd_bytes(pattern)?;
    let (host, port) = split_port(pattern);
    let port = match port {
        None => None,
        Some("*") => Some("*".to_owned()),
        Some(digits) => Some(parse_port(digits)?.to_string()),
    };
    let is_glob = host.contains(['*', '?', '[', ']', '{', '}', ',', '\\']);
    let host = if is_glob {
        host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
    } else {
        normal_host(host)?
    };
    Ok((host, port))
}
