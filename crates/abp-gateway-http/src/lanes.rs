//! Threads that serve connections, one for each processor.
//!
//! A connection stays on the thread that it was given to, together with the connections to vendors that
//! its requests use. Nothing is handed from one thread to another on the way of an answer, and memory is
//! freed where it was taken.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// All of them.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<Lane>);

#[derive(Debug)]
struct Lane {
    tasks: Handle,
    /// How many connections it has.
    load: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
    /// Dropping it ends the thread.
    stop: oneshot::Sender<()>,
}

impl Lanes {
    /// Starts as many threads as there are processors.
    ///
    /// # Errors
    /// Fails where the system has no room for them.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        (0..count)
            .map(Lane::start)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Gives a connection to the thread that has the fewest.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let load = |lane: &&Lane| lane.load.load(Ordering::Relaxed);
        if let Some(lane) = self.0.iter().min_by_key(load) {
            let place = Place::take(&lane.load);
            lane.tasks.spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }

    /// Ends all threads. Connections that are still open are cut off.
    pub(crate) async fn end(self) {
        let threads: Vec<_> = self.0.into_iter().map(Lane::stop).collect();
        let joining = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        if !joining.await.unwrap_or_default() {
            tracing::error!(target: "abp.daemon", "a thread of connections ended in a panic");
        }
    }
}

impl Lane {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name(format!("abp-lane-{number}"))
            .spawn(move || {
                // That nobody can tell it to stop any more tells it as well.
                drop(runtime.block_on(stopped));
                // What still blocks a thread of its own is nobody's answer any more.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            tasks,
            load: Arc::default(),
            thread,
            stop,
        })
    }

    fn stop(self) -> JoinHandle<()> {
        drop(self.stop);
        self.thread
    }
}

/// A connection's place on a thread.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
