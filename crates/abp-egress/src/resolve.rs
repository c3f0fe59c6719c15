//! Names to addresses.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
type LookupFn = dyn Fn(String, u16) -> Lookup + Send + Sync;

/// Resolves a host name. The proxy asks once per connection or request and dials what it judged.
#[derive(Clone)]
pub struct Resolver {
    lookup: Arc<LookupFn>,
}

impl Resolver {
    /// The system's resolver.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|host, port| async move {
            let found = tokio::net::lookup_host((host, port)).await?;
            Ok(found.collect())
        })
    }

    /// A resolver by a function of host and port.
    pub fn new<F, A>(lookup: F) -> Self
    where
        F: Fn(String, u16) -> A + Send + Sync + 'static,
        A: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self {
            lookup: Arc::new(move |host, port| Box::pin(lookup(host, port))),
        }
    }

    pub(crate) async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.lookup)(host.to_owned(), port).await
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
