//! The certificates that routes trust.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// A TLS client of HTTP/1.1 that trusts `roots`, or the system where there are none.
pub(crate) fn client_config(roots: Option<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let roots = roots.unwrap_or_else(system_roots);
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The system's certificates; Mozilla's where there are none, as in a bare container.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
