//! Whom we believe to be the vendor.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use abp_error::{AbpError, ErrorCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The configuration for an upstream: the certificates in `ca_file`, or the system's.
///
/// # Errors
/// Fails where the file cannot be read or holds no certificate.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, AbpError> {
    // Reading the system's certificates takes milliseconds; all upstreams share them.
    static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    match (ca_file, SYSTEM.get()) {
        (Some(file), _) => config(roots_in(file)?),
        (None, Some(shared)) => Ok(Arc::clone(shared)),
        (None, None) => {
            let loaded = config(system_roots())?;
            Ok(Arc::clone(SYSTEM.get_or_init(|| loaded)))
        }
    }
}

/// The configuration for an upstream without TLS: it believes nobody, and is never asked.
pub(crate) fn no_tls() -> Result<Arc<ClientConfig>, AbpError> {
    config(RootCertStore::empty())
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, AbpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            AbpError::new(ErrorCode::Internal, "TLS is not usable").with_source(error)
        })?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots_in(file: &Path) -> Result<RootCertStore, AbpError> {
    let invalid = |problem: &str| {
        let message = format!("ca_file {}: {problem}", file.display());
        AbpError::new(ErrorCode::ConfigInvalid, message)
    };
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| invalid(&error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let added = roots.add(certificate);
        added.map_err(|error| invalid(&error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(invalid("it holds no certificate"));
    }
    Ok(roots)
}

/// What the system trusts; Mozilla's list where it trusts nobody, as in a bare container.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
