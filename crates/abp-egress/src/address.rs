//! Addresses that are not the public Internet.
//!
//! The tables follow the special-purpose registries of IANA. A name that resolves into one of them
//! reaches the host itself, its neighbours or a cloud's metadata service, so such an address needs a
//! pattern of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type V4Range = ([u8; 4], u32, &'static str);
type V6Range = ([u16; 8], u32, &'static str);

const V4_RANGES: &[V4Range] = &[
    ([0, 0, 0, 0], 8, "this network"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "shared by a carrier"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([168, 63, 129, 16], 32, "cloud metadata"),
    ([169, 254, 0, 0], 16, "link-local and cloud metadata"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "protocol assignments"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "6to4 relay"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "benchmarking"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

const V6_RANGES: &[V6Range] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "mapped IPv4"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "NAT64"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "local NAT64"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "protocol assignments"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "unique local"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

/// The only block that IANA gives out for hosts of the Internet.
const V6_GLOBAL: V6Range = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, "global unicast");

/// The name of the special range that an address is in, or none for a public address.
pub(crate) fn special_range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => V4_RANGES
            .iter()
            .find(|(start, bits, _)| {
                let start = Ipv4Addr::from(*start).to_bits();
                (start ^ address.to_bits()).leading_zeros() >= *bits
            })
            .map(|(.., name)| *name),
        IpAddr::V6(address) => {
            let listed = V6_RANGES.iter().find(|range| is_in(address, range));
            match listed {
                Some((.., name)) => Some(name),
                None if is_in(address, &V6_GLOBAL) => None,
                None => Some("not global unicast"),
            }
        }
    }
}

fn is_in(address: Ipv6Addr, (start, bits, _): &V6Range) -> bool {
    let start = Ipv6Addr::from(*start).to_bits();
    (start ^ address.to_bits()).leading_zeros() >= *bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_their_ranges() {
        let cases = [
            ("0.0.0.0", Some("this network")),
            ("10.255.255.255", Some("private")),
            ("11.0.0.0", None),
            ("100.63.255.255", None),
            ("100.64.0.1", Some("shared by a carrier")),
            ("100.100.100.200", Some("shared by a carrier")),
            ("100.128.0.0", None),
            ("127.8.9.1", Some("loopback")),
            ("168.63.129.16", Some("cloud metadata")),
            ("168.63.129.17", None),
            ("169.254.169.254", Some("link-local and cloud metadata")),
            ("172.15.255.255", None),
            ("172.16.0.1", Some("private")),
            ("172.31.255.255", Some("private")),
            ("172.32.0.0", None),
            ("192.0.0.192", Some("protocol assignments")),
            ("192.0.2.1", Some("documentation")),
            ("192.88.99.1", Some("6to4 relay")),
            ("192.168.1.1", Some("private")),
            ("198.19.255.255", Some("benchmarking")),
            ("198.20.0.0", None),
            ("224.0.0.1", Some("multicast")),
            ("255.255.255.255", Some("reserved")),
            ("8.8.8.8", None),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("::2", Some("not global unicast")),
            ("::127.0.0.1", Some("not global unicast")),
            ("::ffff:127.0.0.1", Some("mapped IPv4")),
            ("::ffff:8.8.8.8", Some("mapped IPv4")),
            ("64:ff9b::a00:1", Some("NAT64")),
            ("64:ff9b:1::1", Some("local NAT64")),
            ("100::1", Some("not global unicast")),
            ("2001:0:1::1", Some("protocol assignments")),
            ("2001:db8::1", Some("documentation")),
            ("2002:a00:1::", Some("6to4")),
            ("2001:4860:4860::8888", None),
            ("2606:4700::1111", None),
            ("3fff:fff::1", Some("documentation")),
            ("5f00::1", Some("not global unicast")),
            ("fd00:ec2::254", Some("unique local")),
            ("fc00::1", Some("unique local")),
            ("fe80::1", Some("link-local")),
            ("fec0::1", Some("not global unicast")),
            ("ff02::1", Some("multicast")),
        ];
        for (address, expected) in cases {
            let parsed = address.parse().unwrap();
            assert_eq!(special_range(parsed), expected, "{address}");
        }
    }
}
