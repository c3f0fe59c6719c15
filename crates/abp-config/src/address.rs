//! Addresses, and the names that stand for keys. No message repeats one: somebody may have put a
//! password or the key itself there.

use http::uri::{Authority, Scheme};
use http::{HeaderName, Uri};

use crate::check::{Fault, invalid};

/// Checks the address of a vendor's API.
pub(crate) fn base_url(text: &str) -> Result<(), Fault> {
    let help = "write it as in https://api.example.com/v1";
    let (_, authority) = http_address(text).map_err(|fault| fault.help(help))?;
    if authority.as_str().contains('@') {
        let fault = invalid("the address holds a user name or a password");
        return Err(fault.help("name the key with `api_key_env` or `api_key_file`"));
    }
    // The parser drops what follows `#` without a word.
    if text.contains(['?', '#']) {
        return Err(invalid("the address has a query or a fragment").help(help));
    }
    Ok(())
}

/// Checks the address of a proxy.
pub(crate) fn proxy(text: &str) -> Result<(), Fault> {
    let help = "write it as in http://proxy.example.com:3128, or none";
    let is_plain_http = |(scheme, authority): &(Scheme, Authority)| {
        *scheme == Scheme::HTTP && is_plain(authority) && !text.contains(['?', '#'])
    };
    let address = http_address(text).ok();
    if text == "none" || address.as_ref().is_some_and(is_plain_http) {
        return Ok(());
    }
    if text.contains('@') {
        let help = "a proxy with a password is named in HTTPS_PROXY";
        return Err(invalid("the address holds a user name or a password").help(help));
    }
    Err(invalid("not the address of an HTTP proxy").help(help))
}

/// Checks the name of a header.
pub(crate) fn header_name(text: &str) -> Result<(), Fault> {
    match HeaderName::try_from(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(invalid("this cannot be the name of a header")),
    }
}

/// Checks a host that requests may name.
pub(crate) fn host(text: &str) -> Result<(), Fault> {
    let fits = text.parse().is_ok_and(|authority| is_plain(&authority));
    if fits && !text.contains('*') {
        return Ok(());
    }
    let help = "write each as in gateway.example.com or localhost:8088";
    Err(invalid("not a host, with or without a port").help(help))
}

/// Checks where a page may come from.
pub(crate) fn web_origin(text: &str) -> Result<(), Fault> {
    let fits = http_address(text).is_ok_and(|(scheme, authority)| {
        is_plain(&authority) && !text.contains('*') && text == format!("{scheme}://{authority}")
    });
    if fits {
        return Ok(());
    }
    let help = "write each as in https://console.example.com, without a path";
    Err(invalid("not the origin of a page").help(help))
}

/// Checks the name of an environment variable.
pub(crate) fn variable(text: &str) -> Result<(), Fault> {
    let fits = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if fits {
        return Ok(());
    }
    let help = "name the variable that holds the key; the key itself does not belong into a file";
    Err(invalid("this cannot be the name of an environment variable").help(help))
}

fn http_address(text: &str) -> Result<(Scheme, Authority), Fault> {
    let parts = match text.parse::<Uri>() {
        Ok(address) => address.into_parts(),
        Err(_) => return Err(invalid("not an address")),
    };
    match (parts.scheme, parts.authority) {
        (Some(scheme), Some(authority))
            if (scheme == Scheme::HTTP || scheme == Scheme::HTTPS) && has_host(&authority) =>
        {
            Ok((scheme, authority))
        }
        _ => Err(invalid("not an address of http or https")),
    }
}

/// A host, and a port that exists where one is named.
fn has_host(authority: &Authority) -> bool {
    let after = authority.as_str().rsplit('@').next().unwrap_or_default();
    let port = after.strip_prefix(authority.host()).unwrap_or_default();
    !authority.host().is_empty() && (port.is_empty() || authority.port_u16().is_some())
}

fn is_plain(authority: &Authority) -> bool {
    has_host(authority) && !authority.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check, what it takes, and what it refuses.
    type Case<'c> = (fn(&str) -> Result<(), Fault>, &'c [&'c str], &'c [&'c str]);

    #[test]
    fn addresses_are_those_of_http_and_nothing_more() {
        let cases: [Case<'_>; 6] = [
            (
                base_url,
                &[
                    "https://api.example.com/v1",
                    "http://127.0.0.1:1/",
                    "http://[::1]:8080",
                ],
                &[
                    "api.example.com",
                    "/v1",
                    "ftp://h",
                    "file:///etc/passwd",
                    "https://",
                    "https://:80",
                    "https://u:not-to-be-shown@h",
                    "https://u@h/",
                    "https://h/?key=k",
                    "https://h/#f",
                    "https://h:99999/",
                    "https://h:/",
                    "https://h/a b",
                    "https://h\r\nx: y",
                    "",
                ],
            ),
            (
                host,
                &["localhost", "a.example.com:8088", "[::1]:80", "10.0.0.1"],
                &[
                    "",
                    "*",
                    "*.example.com",
                    "http://h",
                    "h/p",
                    "u@h",
                    "h:99999",
                    "a b",
                ],
            ),
            (
                web_origin,
                &["https://a.example.com", "http://localhost:3000"],
                &[
                    "",
                    "*",
                    "null",
                    "a.example.com",
                    "https://h/",
                    "https://u@h",
                    "https://*.h",
                ],
            ),
            (
                proxy,
                &["none", "http://proxy.example:3128", "http://10.0.0.1"],
                &[
                    "",
                    "proxy.example:3128",
                    "https://proxy.example",
                    "socks5://h",
                    "http://u:not-to-be-shown@h",
                    "http://h/?key=not-to-be-shown",
                ],
            ),
            (
                header_name,
                &["api-key", "X-Key"],
                &["", "a b", "a:", "not-to-be-shown\r\n"],
            ),
            (
                variable,
                &["OPENAI_API_KEY", "_x1"],
                &["", "sk-not-to-be-shown", "A=B", "1A", "A B"],
            ),
        ];
        for (check, good, bad) in cases {
            for text in good {
                assert!(check(text).is_ok(), "{text}");
            }
            for text in bad {
                let Err(fault) = check(text) else {
                    panic!("{text}");
                };
                let said = format!("{} {:?}", fault.message, fault.help);
                assert!(!said.contains("not-to-be-shown"), "{said}");
            }
        }
    }
}
