//! Looking for a gateway that runs already.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a gateway on this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most that is read of an answer.
const LONGEST: u64 = 1 << 20;
/// When a gateway is asked whether it knows a key that was made just now. It follows within half a
/// second, and keeps those at arm's length who ask too often with a wrong one.
const WAITS_MS: [u64; 6] = [0, 200, 300, 400, 500, 600];

/// Whether a gateway listens there.
pub(crate) async fn is_at(address: &str) -> bool {
    let told = get(address, "/version", None).await;
    told.is_some_and(|told| told.status == 200 && told.text.contains("\"agent-backplane\""))
}

/// Whether the gateway there takes a key that was made just now.
pub(crate) async fn takes(address: &str, key: &str) -> bool {
    for wait in WAITS_MS {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        match get(address, "/v1/models", Some(key)).await {
            Some(Told { status: 200, .. }) => return true,
            Some(Told { status: 401, .. }) => {}
            _ => return false,
        }
    }
    false
}

/// The address as others reach it: one that stands for all of them is reached on this machine.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// An answer, as far as it matters.
struct Told {
    status: u16,
    text: String,
}

/// Asks one plain question; `None` where nobody answers, or not in HTTP.
async fn get(address: &str, path: &str, key: Option<&str>) -> Option<Told> {
    let key = key.map_or_else(String::new, |key| {
        format!("authorization: Bearer {key}\r\n")
    });
    let question =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{key}connection: close\r\n\r\n");
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let status = status.parse().ok()?;
    Some(Told { status, text })
}
