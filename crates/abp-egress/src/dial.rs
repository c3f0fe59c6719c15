//! From an allowed name to a connection: resolve once, judge every address, dial one of them.

use std::net::SocketAddr;

use abp_policy::NetworkTarget;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::event::{EgressOutcome, EgressRule};
use crate::limits::EgressLimits;
use crate::resolve::Resolver;
use crate::rules::EgressRules;

/// Addresses that are tried; all are judged.
const TRIED_ADDRESSES: usize = 4;

/// The failure to connect.
#[derive(Debug)]
pub(crate) enum DialError {
    Denied(EgressRule),
    Failed(EgressOutcome),
}

/// Makes connections to allowed targets.
#[derive(Debug)]
pub(crate) struct Dialer {
    rules: EgressRules,
    resolver: Resolver,
    limits: EgressLimits,
    lookups: Semaphore,
}

impl Dialer {
    pub(crate) fn new(rules: EgressRules, resolver: Resolver, limits: EgressLimits) -> Self {
        Self {
            rules,
            resolver,
            limits,
            lookups: Semaphore::new(limits.lookups.max(1)),
        }
    }

    pub(crate) const fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// Connects to an address of the target. The connection goes to an address that was judged here;
    /// the name is not resolved a second time, so an answer that changes cannot slip past the rules.
    pub(crate) async fn dial(
        &self,
        target: &NetworkTarget,
        port: u16,
    ) -> Result<(TcpStream, SocketAddr), DialError> {
        let addresses = match target.address() {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => self.resolve(target.host(), port).await?,
        };
        for address in &addresses {
            self.rules
                .judge_address(*address)
                .map_err(DialError::Denied)?;
        }
        let mut failure = EgressOutcome::Unreachable;
        for address in addresses.into_iter().take(TRIED_ADDRESSES) {
            match timeout(self.limits.connect_time, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(target: "abp.egress", %error, "nodelay is not set");
                    }
                    return Ok((stream, address));
                }
                Ok(Err(_)) => failure = EgressOutcome::Unreachable,
                Err(_) => failure = EgressOutcome::TimedOut,
            }
        }
        Err(DialError::Failed(failure))
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
        let lookup = async {
            let _permit = self.lookups.acquire().await;
            self.resolver.lookup(host, port).await
        };
        let found = match timeout(self.limits.resolve_time, lookup).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => return Err(DialError::Failed(EgressOutcome::Unreachable)),
            Err(_) => return Err(DialError::Failed(EgressOutcome::TimedOut)),
        };
        // The port is the one that was judged, whatever the resolver says.
        let with_port = found.into_iter().map(|at| SocketAddr::new(at.ip(), port));
        Ok(with_port.collect())
    }
}
