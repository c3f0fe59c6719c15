//! A client that does as little as possible itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Modern,
}

/// One connection, with one session where there are any.
pub(super) struct Caller {
    stream: BufReader<TcpStream>,
    /// The request that calls the tool, ready to be sent.
    request: Vec<u8>,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#;
const MODERN_CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

impl Caller {
    pub(super) fn open(address: SocketAddr, era: Era) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut caller = Self {
            stream: BufReader::new(stream),
            request: Vec::new(),
        };
        caller.request = match era {
            Era::Legacy => {
                let (head, _) = caller.exchange(&request("", INITIALIZE))?;
                let mut lines = head.lines();
                let session = lines.find(|line| line.starts_with("mcp-session-id"));
                let session = session.context("no session was opened")?;
                let headers = format!("{session}\r\nmcp-protocol-version: 2025-11-25\r\n");
                caller.exchange(&request(&headers, INITIALIZED))?;
                request(&headers, CALL)
            }
            Era::Modern => {
                let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
                    mcp-name: echo\r\n";
                request(headers, MODERN_CALL)
            }
        };
        Ok(caller)
    }

    /// Calls the tool; returns how long it took.
    pub(super) fn call(&mut self) -> Result<Duration> {
        let request = std::mem::take(&mut self.request);
        let start = Instant::now();
        let (head, body) = self.exchange(&request)?;
        let took = start.elapsed();
        self.request = request;
        ensure!(body.contains("hello"), "{head}{body}");
        Ok(took)
    }

    fn exchange(&mut self, request: &[u8]) -> Result<(String, String)> {
        self.stream.get_mut().write_all(request)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(self.stream.read_line(&mut head)? > 0, "the server closed");
        }
        let lines = head.lines();
        let mut lengths = lines.filter_map(|line| line.strip_prefix("content-length: "));
        let length = lengths.next().map_or(Ok(0), str::parse)?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((head, String::from_utf8(body)?))
    }
}

fn request(headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
