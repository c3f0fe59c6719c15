//! The ClientHello at the start of a tunnel.

use rustls::server::Acceptor;

/// The first byte of a TLS handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The fatal alert `unrecognized_name`, which tells a client what is wrong.
pub(crate) const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Whether a tunnel that starts with this byte can only be TLS.
pub(crate) const fn is_tls(first: u8) -> bool {
    first == HANDSHAKE_RECORD
}

/// A ClientHello, as far as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    Partial,
    /// Complete; the server name in lower case, if there is one.
    Complete(Option<String>),
    /// No ClientHello that can be read.
    Invalid,
}

/// Reads a ClientHello that may come in pieces.
#[derive(Default)]
pub(crate) struct HelloReader {
    acceptor: Acceptor,
}

impl HelloReader {
    /// Takes further bytes; to be called until the answer is not `Partial`.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Hello {
        while !bytes.is_empty() {
            match self.acceptor.read_tls(&mut bytes) {
                Ok(0) | Err(_) => return Hello::Invalid,
                Ok(_) => {}
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(normal_name);
                    return Hello::Complete(name);
                }
                Err(_) => return Hello::Invalid,
            }
        }
        Hello::Partial
    }
}

fn normal_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    fn hello_for(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn read_in_parts(bytes: &[u8], size: usize) -> Hello {
        let mut reader = HelloReader::default();
        let parts = bytes.chunks(size).map(|part| reader.read(part));
        let mut found = parts.filter(|found| *found != Hello::Partial);
        found.next().unwrap_or(Hello::Partial)
    }

    #[test]
    fn the_name_is_read_however_the_bytes_are_split() {
        let named = hello_for("Example.COM");
        let unnamed = hello_for("192.0.2.1");
        for size in [1, 2, 5, 100, 4096] {
            let expected = Hello::Complete(Some("example.com".to_owned()));
            assert_eq!(read_in_parts(&named, size), expected, "{size}");
            assert_eq!(read_in_parts(&unnamed, size), Hello::Complete(None));
            let cut = &named[..named.len() - 1];
            assert_eq!(read_in_parts(cut, size), Hello::Partial, "{size}");
        }
    }

    #[test]
    fn anything_else_is_invalid() {
        let mut wrong_message = hello_for("example.com");
        wrong_message[5] = 2;
        let mut bad_extension = hello_for("example.com");
        let name_at = bad_extension.windows(7).position(|at| at == b"example");
        bad_extension[name_at.unwrap()] = 0;
        for bytes in [
            &wrong_message,
            &bad_extension,
            &b"\x16\x03\x01\x00\x00".to_vec(),
            &b"\x16GET / HTTP/1.1\r\n\r\n".to_vec(),
            &vec![0x16; 70_000],
        ] {
            let shown = bytes.get(..5).unwrap_or(bytes).escape_ascii();
            assert_eq!(read_in_parts(bytes, 4096), Hello::Invalid, "{shown}");
        }
    }
}
