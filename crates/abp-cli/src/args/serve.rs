//! The arguments of the server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  abp serve\n  abp serve --listen 127.0.0.1:9000\n  \
abp serve --port 9001 --watch\n  \
OPENAI_BASE_URL=http://127.0.0.1:8088/v1 OPENAI_API_KEY=$(abp keys show operator) python app.py\n\n\
Without configured upstreams the embedded model answers to every name."
)]
pub(crate) struct ServeArgs {
    /// The address to listen on, such as 127.0.0.1:9001, localhost:9001 or :9001, which are the same; port 0
    /// takes a free one [default: bind_address and port, else 127.0.0.1:8088].
    #[arg(long, value_name = "ADDR", env = "ABP_LISTEN", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The port to listen on, at the configured address.
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,
    /// Take over upstreams and prices when a file of the configuration changes, as SIGHUP does.
    #[arg(long)]
    pub(crate) watch: bool,
    /// The operator's key; made where there is none [default: gateway.key in the state directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Listen for other machines although nothing is encrypted.
    #[arg(long)]
    pub(crate) insecure_bind: bool,
}

/// Reads an address. One without a host, or with the host `localhost`, is for this machine alone.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let local = match text.rsplit_once(':') {
        Some(("" | "localhost", port)) => port.parse().ok(),
        _ => None,
    };
    let local = local.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    local.ok_or_else(|| {
        "expected an address such as 127.0.0.1:9001, localhost:9001 or :9001".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_people_write() {
        let local = "127.0.0.1:9001".parse().unwrap();
        for text in ["127.0.0.1:9001", ":9001", "localhost:9001"] {
            assert_eq!(listen_address(text), Ok(local), "{text}");
        }
        assert_eq!(listen_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for text in ["", "9001", "host.example:1", ":70000", "localhost", "::1"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
