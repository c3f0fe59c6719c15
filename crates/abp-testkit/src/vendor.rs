//! A fake vendor on a port of this machine: answers by script and remembers what it was asked.
//!
//! It runs on a thread and a clock of its own, so that a test may stop its own clock, and it knows
//! nothing of dialects: an answer is a status, headers and bytes, most often those of a fixture.
//!
//! ```
//! use abp_testkit::{FakeVendor, Reply};
//!
//! let vendor = FakeVendor::start(Reply::json("{}").status(503).header("retry-after", "2"))?;
//! assert_eq!(vendor.url("/v1"), format!("http://{}/v1", vendor.addr()));
//! assert!(vendor.requests().is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

mod log;
mod reply;
mod serve;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use log::Log;
pub use log::{ExchangeEnd, VendorRequest};
pub use reply::{Cut, Reply, fixture};

/// What a fake vendor answers.
pub enum Script {
    /// The same to everything.
    Always(Reply),
    /// One after the other; the last one to everything after it.
    InOrder(Vec<Reply>),
    /// What the function says.
    By(Box<dyn Fn(&VendorRequest) -> Reply + Send + Sync>),
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        Self::Always(reply)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(reply) => f.debug_tuple("Always").field(reply).finish(),
            Self::InOrder(replies) => f.debug_tuple("InOrder").field(replies).finish(),
            Self::By(_) => f.write_str("By"),
        }
    }
}

impl Script {
    /// The answer to a request that came after `earlier` others.
    fn reply(&self, request: &VendorRequest, earlier: usize) -> Reply {
        match self {
            Self::Always(reply) => reply.clone(),
            Self::InOrder(replies) => replies
                .get(earlier)
                .or_else(|| replies.last())
                .cloned()
                .unwrap_or_else(|| Reply::json("{}")),
            Self::By(choose) => choose(request),
        }
    }
}

/// A running fake vendor. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeVendor {
    addr: SocketAddr,
    log: Arc<Log>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeVendor {
    /// Starts a vendor on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Fails where there is none, or no thread for it.
    pub fn start(script: impl Into<Script>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let log = Arc::new(Log::default());
        let (stop, stopped) = oneshot::channel();
        let served = serve::Served {
            script: script.into(),
            log: Arc::clone(&log),
        };
        let thread = std::thread::Builder::new()
            .name("fake vendor".to_owned())
            .spawn(move || runtime.block_on(serve::serve(listener, served, stopped)))?;
        Ok(Self {
            addr,
            log,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address with a path, as a base URL.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// What it was asked so far, in the order in which the requests were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<VendorRequest> {
        self.log.requests()
    }

    /// How many connections were made to it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.log.connections()
    }

    /// Waits until the requests are as they should be; tells whether they were in time.
    /// Blocks the thread.
    pub fn wait_until(&self, wanted: impl FnMut(&[VendorRequest]) -> bool) -> bool {
        self.log.wait_until(wanted)
    }
}

impl Drop for FakeVendor {
    fn drop(&mut self) {
        // Where the thread has ended already, there is nothing left to stop or to wait for.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
