//! CONNECT tunnels: what may be in them, and their bytes.

use std::io;
use std::sync::atomic::Ordering;

use abp_policy::NetworkTarget;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::event::{EgressKind, EgressOutcome, EgressRule, EventDraft};
use crate::hello::{Hello, HelloReader, UNRECOGNIZED_NAME, is_tls};
use crate::limits::EgressLimits;
use crate::relay::relay;

const READ_BYTES: usize = 4096;

/// A tunnel whose request was allowed and whose target is connected.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) server: TcpStream,
    pub(crate) target: NetworkTarget,
    /// Whether something else than TLS may be in it.
    pub(crate) allows_plain: bool,
    pub(crate) draft: EventDraft,
}

/// The start of a tunnel, before any of the client's bytes went to the server.
enum Opening {
    Tls,
    Plain,
    /// The client closed without sending anything.
    Empty,
    Denied(EgressRule),
    TimedOut,
    Broken,
}

impl Tunnel {
    /// Checks the client's first bytes and relays. `early` are bytes that came with the request.
    pub(crate) async fn run(mut self, mut client: TcpStream, early: &[u8], limits: &EgressLimits) {
        let mut sent = early.to_vec();
        let opening = self.open(&mut client, &mut sent, limits).await;
        let outcome = match opening {
            Opening::Tls => {
                self.draft.set_kind(EgressKind::TlsTunnel);
                self.pass_on(client, &sent, limits).await
            }
            Opening::Plain => {
                self.draft.set_kind(EgressKind::PlainTunnel);
                self.pass_on(client, &sent, limits).await
            }
            Opening::Empty => EgressOutcome::Complete,
            Opening::TimedOut => EgressOutcome::TimedOut,
            Opening::Broken => EgressOutcome::Broken,
            Opening::Denied(rule) => {
                self.deny(client, rule).await;
                return;
            }
        };
        self.draft.end(outcome);
    }

    /// Reads until it is clear what the tunnel carries. The bytes that were read are in `sent`.
    async fn open(
        &mut self,
        client: &mut TcpStream,
        sent: &mut Vec<u8>,
        limits: &EgressLimits,
    ) -> Opening {
        let deadline = Instant::now() + limits.head_time;
        let mut hello = HelloReader::default();
        let mut judged = 0;
        loop {
            if let Some(first) = sent.first() {
                if !is_tls(*first) {
                    return self.judge_plain();
                }
                match hello.read(sent.get(judged..).unwrap_or_default()) {
                    Hello::Complete(name) => return self.judge_name(name),
                    Hello::Invalid => return Opening::Denied(EgressRule::ClientHello),
                    Hello::Partial if sent.len() >= limits.hello_bytes => {
                        return Opening::Denied(EgressRule::ClientHello);
                    }
                    Hello::Partial => judged = sent.len(),
                }
            }
            let next = self.read_more(client, sent);
            match timeout_at(deadline, next).await {
                Ok(Ok(Read::Bytes)) => {}
                Ok(Ok(Read::ServerSpoke)) => return Opening::Plain,
                Ok(Ok(Read::End)) if sent.is_empty() => return Opening::Empty,
                Ok(Ok(Read::End)) => return Opening::Denied(EgressRule::ClientHello),
                Ok(Err(_)) => return Opening::Broken,
                Err(_) => return Opening::TimedOut,
            }
        }
    }

    /// Waits for the client, or, where that may be, for a server that speaks first. No TLS server does.
    async fn read_more(&self, client: &mut TcpStream, sent: &mut Vec<u8>) -> io::Result<Read> {
        let server_first = self.allows_plain && sent.is_empty();
        sent.reserve(READ_BYTES);
        tokio::select! {
            biased;
            read = client.read_buf(sent) => match read? {
                0 => Ok(Read::End),
                _ => Ok(Read::Bytes),
            },
            ready = self.server.readable(), if server_first => {
                ready?;
                Ok(Read::ServerSpoke)
            }
        }
    }

    fn judge_plain(&self) -> Opening {
        if self.allows_plain {
            Opening::Plain
        } else {
            Opening::Denied(EgressRule::NotTls)
        }
    }

    /// A host name must be in the ClientHello, because it is what a server with many names goes by. An
    /// address cannot be in it, so a tunnel to an address must not name anything.
    fn judge_name(&self, found: Option<String>) -> Opening {
        let why = match (found.as_deref(), self.target.address()) {
            (None, Some(_)) => return Opening::Tls,
            (Some(name), None) if name == self.target.host() => return Opening::Tls,
            (Some(_), None) => "the TLS server name is not the host of the CONNECT request",
            (None, None) => "the TLS ClientHello has no server name",
            (Some(_), Some(_)) => "the TLS ClientHello to an address has a server name",
        };
        Opening::Denied(EgressRule::ServerName { why, found })
    }

    async fn deny(mut self, mut client: TcpStream, rule: EgressRule) {
        let alert = matches!(rule, EgressRule::ServerName { .. });
        self.draft.deny(rule);
        if alert && let Err(error) = client.write_all(&UNRECOGNIZED_NAME).await {
            tracing::debug!(target: "abp.egress", %error, "the alert was not sent");
        }
    }

    async fn pass_on(
        &mut self,
        mut client: TcpStream,
        sent: &[u8],
        limits: &EgressLimits,
    ) -> EgressOutcome {
        let bytes = self.draft.bytes();
        let deadline = Instant::now() + limits.idle_time;
        match timeout_at(deadline, self.server.write_all(sent)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return EgressOutcome::Broken,
            Err(_) => return EgressOutcome::TimedOut,
        }
        let length = u64::try_from(sent.len()).unwrap_or_default();
        bytes.up.fetch_add(length, Ordering::Relaxed);
        relay(&mut client, &mut self.server, &bytes, limits.idle_time).await
    }
}

enum Read {
    Bytes,
    End,
    ServerSpoke,
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::event::{EgressReport, EgressVerdict, EventSink};

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        (one.unwrap(), other.unwrap().0)
    }

    /// Port 443, and port 80 where no pattern names it, carry TLS and nothing else.
    #[tokio::test]
    async fn only_tls_passes_where_no_pattern_names_the_port() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
            b"\0",
        ] {
            let (mut agent, client) = connected().await;
            let (server, mut target) = connected().await;
            let (sink, mut events) = EventSink::new(1);
            let mut draft = sink.draft();
            draft.set_kind(EgressKind::Tunnel);
            let tunnel = Tunnel {
                server,
                target: NetworkTarget::parse("good.example:443").unwrap(),
                allows_plain: false,
                draft,
            };
            // A server that speaks first is not listened to either.
            target.write_all(b"hello").await.unwrap();
            agent.write_all(bytes).await.unwrap();
            tunnel.run(client, &[], &EgressLimits::default()).await;
            let mut got = Vec::new();
            drop(agent.read_to_end(&mut got).await);
            drop(target.read_to_end(&mut got).await);
            assert_eq!(got, b"", "nothing passes in either direction");
            let Some(EgressReport::Event(event)) = events.next().await else {
                panic!("no event");
            };
            assert_eq!(event.verdict, EgressVerdict::Denied);
            assert_eq!(event.rule, EgressRule::NotTls);
        }
    }
}
