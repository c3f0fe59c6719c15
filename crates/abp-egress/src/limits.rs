//! Bounds of one proxy.

use std::time::Duration;

/// The bounds of one proxy. Time-outs of idle tunnels take effect between one and two times their value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressLimits {
    /// Connections that are served at once; further ones wait in the listener's backlog.
    pub connections: usize,
    /// Names that are resolved at once.
    pub lookups: usize,
    /// Bytes of a request or response head; at least 8,192. Bodies are buffered up to the same size. A
    /// head has at most 100 lines.
    pub head_bytes: usize,
    /// Bytes of a TLS ClientHello.
    pub hello_bytes: usize,
    /// Time for a request head, counted from the accepted connection or the end of the last response,
    /// and for the first bytes of a tunnel.
    pub head_time: Duration,
    /// Time for resolving a name.
    pub resolve_time: Duration,
    /// Time for connecting to one address.
    pub connect_time: Duration,
    /// Time in which a response head must come, counted from the last byte that was sent.
    pub response_time: Duration,
    /// Time without a byte in either direction after which a tunnel or a body is cut off.
    pub idle_time: Duration,
    /// Time that open connections get when the proxy is closed.
    pub close_grace: Duration,
    /// Events that wait to be read.
    pub events: usize,
}

impl EgressLimits {
    /// The buffer of one direction of an HTTP connection; hyper takes no smaller one.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.head_bytes.max(8192)
    }
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            lookups: 16,
            head_bytes: 64 * 1024,
            hello_bytes: 16 * 1024,
            head_time: Duration::from_secs(30),
            resolve_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
            // A model may think for minutes before it sends the first byte.
            response_time: Duration::from_mins(15),
            idle_time: Duration::from_mins(15),
            close_grace: Duration::from_millis(500),
            events: 4096,
        }
    }
}
