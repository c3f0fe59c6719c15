//! The way out of a sidecar's sandbox, served by the host.

use std::net::TcpListener;

use abp_egress::{
    EgressError, EgressEvents, EgressOptions, EgressProxy, EgressReport, EgressRules, Route,
};
use abp_policy::PolicyEngine;

/// The proxy of one sandbox and what it tells.
#[derive(Debug)]
pub struct Egress {
    proxy: EgressProxy,
    events: EgressEvents,
    port: u16,
}

impl Egress {
    /// Serves the listener of a sandbox by the network rules of a policy.
    ///
    /// # Errors
    /// Fails where the listener cannot be used.
    pub fn start(listener: TcpListener, policy: Option<PolicyEngine>) -> Result<Self, EgressError> {
        let port = listener.local_addr()?.port();
        let rules = policy.map_or_else(EgressRules::deny_all, EgressRules::new);
        let (proxy, events) = EgressProxy::start(listener, EgressOptions::new(rules))?;
        Ok(Self {
            proxy,
            events,
            port,
        })
    }

    /// Adds a way to a server of the host, and says the address that leads to it from inside.
    ///
    /// # Errors
    /// Fails where the address is not one of this machine.
    pub fn add_route(&self, name: &str, url: &str) -> Result<String, EgressError> {
        self.proxy.add_route(Route::new(name, url, None)?)?;
        Ok(format!("http://127.0.0.1:{}/{name}", self.port))
    }

    /// The next connection that ended, or the number of those that were lost; `None` where the proxy itself
    /// ended, and nothing leads out of the sandbox any more.
    pub async fn next(&mut self) -> Option<EgressReport> {
        tokio::select! {
            biased;
            report = self.events.next() => report,
            () = self.proxy.ended() => None,
        }
    }

    /// Ends the proxy, and returns what was not told yet.
    pub async fn close(mut self) -> Vec<EgressReport> {
        self.proxy.close().await;
        let mut rest = Vec::new();
        while let Some(report) = self.events.next().await {
            rest.push(report);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// A proxy that died is told, and leaves no way out.
    #[tokio::test]
    async fn a_proxy_that_died_is_told_and_nothing_leads_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut egress = Egress::start(listener, None).unwrap();
        TcpStream::connect(address).unwrap();
        egress.proxy.abort();
        assert_eq!(egress.next().await, None);
        assert!(TcpStream::connect(address).is_err());
        assert!(egress.close().await.is_empty());
    }
}
