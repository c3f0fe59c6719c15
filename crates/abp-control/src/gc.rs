//! Housekeeping: removing what runs that have ended left behind, by age and by size.
//!
//! A run that has not ended, or whose changes are undecided within their time, loses nothing. Receipts and
//! the log are never touched: expired changes and erased events are entries of the log. Every step is safe to
//! stop at, and the next round goes on with what is left. Rows go in small transactions, so that runs write in
//! between.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use abp_config::Config;
use abp_core::Timestamp;
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Decider, may_die};
use abp_store::{ErasableRun, RunFilter, Store, StoreError};
use serde::Serialize;
use uuid::Uuid;

use self::disk::{Found, find_uploads, remove, run_directories, tree_bytes};
use crate::ControlPlane;
use crate::agents::homes;
use abp_gateway::current_time;

const MEGABYTE: u64 = 1 << 20;
const DAY_MILLIS: i64 = 86_400_000;
/// The number of rows that are read at a time.
const PAGE: u32 = 500;
/// The time that a round deletes discarded stages; the rest is for the next one.
const TRASH_TIME: Duration = Duration::from_secs(600);

/// A kind of thing that housekeeping removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GarbageKind {
    /// Change sets that expired, with their before-images and stages.
    ChangeSets,
    /// Events of runs.
    Events,
    /// Home directories that agents left.
    Homes,
    /// Uploaded blobs, manifests and source directories.
    Uploads,
    /// Discarded stages.
    Trash,
}

/// The number and size of a kind that was removed, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GarbageCount {
    /// Runs whose change sets or events went; directories and files otherwise.
    pub items: u64,
    /// The bytes of them, as far as they were counted.
    pub bytes: u64,
}

/// The result of a round of housekeeping, or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GarbageReport {
    /// True where nothing was removed because only a report was wanted.
    pub dry_run: bool,
    /// The count of each kind.
    pub removed: BTreeMap<GarbageKind, GarbageCount>,
    /// Discarded stages that are still there: the time was over, or another process deletes them.
    pub trash_left: u64,
}

impl GarbageReport {
    fn add(&mut self, kind: GarbageKind, bytes: u64) {
        let count = self.removed.entry(kind).or_default();
        count.items += 1;
        count.bytes += bytes;
    }
}

/// Whether a round removes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GarbageMode {
    /// Removes.
    Remove,
    /// Only counts.
    DryRun,
}

/// Uploaded files of all principals: beside the stages, because runs are staged from them.
#[must_use]
pub fn uploads_directory(config: &Config) -> PathBuf {
    config.stages_dir.with_extension("uploads")
}

/// The time that ages are counted to.
#[cfg(not(debug_assertions))]
fn round_time() -> Timestamp {
    current_time()
}

/// As in a release; tests say how many days later it is.
#[cfg(debug_assertions)]
fn round_time() -> Timestamp {
    let later = std::env::var("ABP_TEST_GC_DAYS_LATER").ok();
    let later: i64 = later.and_then(|days| days.parse().ok()).unwrap_or(0);
    Timestamp::from_unix_millis(current_time().as_unix_millis() + later * DAY_MILLIS)
}

/// The author of what housekeeping decides, for the log.
fn retention() -> Decider {
    Decider {
        by: "retention".to_owned(),
        via: "gc".to_owned(),
    }
}

impl ControlPlane {
    /// Removes what the configured retention lets go, and says how much; `progress` hears of it as it
    /// happens. With [`GarbageMode::DryRun`] it only counts.
    ///
    /// # Errors
    /// Fails where the store cannot be used, and where something cannot be removed. What was removed before
    /// is gone, and nothing is half done.
    pub async fn collect_garbage(
        &self,
        mode: GarbageMode,
        mut progress: impl FnMut(&GarbageReport) + Send,
    ) -> Result<GarbageReport, AbpError> {
        let report = GarbageReport {
            dry_run: mode == GarbageMode::DryRun,
            ..GarbageReport::default()
        };
        let Some(store) = self.runtime().existing_store().await? else {
            return Ok(report);
        };
        let mut round = Round {
            plane: self,
            store,
            mode,
            now: round_time(),
            report,
            expiring: BTreeSet::new(),
            progress: &mut progress,
        };
        round.expire_changes().await?;
        round.erase_events().await?;
        round.remove_homes().await?;
        round.remove_uploads().await?;
        round.empty_trash().await?;
        Ok(round.report)
    }
}

/// One round of housekeeping.
struct Round<'r> {
    plane: &'r ControlPlane,
    store: &'r Store,
    mode: GarbageMode,
    now: Timestamp,
    report: GarbageReport,
    /// Runs whose changes would expire, were this no dry run; their events could go then.
    expiring: BTreeSet<Uuid>,
    progress: &'r mut (dyn FnMut(&GarbageReport) + Send),
}

impl Round<'_> {
    fn config(&self) -> &Config {
        self.plane.config()
    }

    fn removes(&self) -> bool {
        self.mode == GarbageMode::Remove
    }

    fn before(&self, days: u32) -> Timestamp {
        let millis = i64::from(days).saturating_mul(DAY_MILLIS);
        Timestamp::from_unix_millis(self.now.as_unix_millis().saturating_sub(millis))
    }

    fn count(&mut self, kind: GarbageKind, bytes: u64) {
        self.report.add(kind, bytes);
        (self.progress)(&self.report);
    }

    /// Lets changes expire that wait for too long, and the oldest where stages are too large.
    async fn expire_changes(&mut self) -> Result<(), AbpError> {
        let retention = self.config().retention;
        let young = self.before(retention.keep_days);
        let mut sizes = match retention.stages_mb {
            Some(_) => self.stage_sizes().await?,
            None => BTreeMap::new(),
        };
        let mut over: u64 = match retention.stages_mb {
            Some(most) => sizes
                .values()
                .sum::<u64>()
                .saturating_sub(u64::from(most) * MEGABYTE),
            None => 0,
        };
        let old = retention.undecided_days.map(|days| self.before(days));
        // The end of what could go at all; each is then judged by itself.
        let Some(latest) = old.into_iter().chain((over > 0).then_some(young)).max() else {
            return Ok(());
        };
        // Those that expire are gone from the next page; those that stay are passed over.
        let mut passed = BTreeSet::new();
        loop {
            let page = self.store.undecided_before(latest, PAGE).await?;
            let mut is_new = false;
            for run in page {
                if !passed.insert(run.run_id) {
                    continue;
                }
                is_new = true;
                let is_old = old.is_some_and(|old| run.since < old);
                let is_over = over > 0 && run.since < young;
                if !is_old && !is_over {
                    continue;
                }
                let bytes = sizes.remove(&run.run_id).unwrap_or_default();
                over = over.saturating_sub(bytes);
                self.expire(run.run_id, bytes).await?;
            }
            if !is_new {
                return Ok(());
            }
        }
    }

    async fn expire(&mut self, run_id: Uuid, bytes: u64) -> Result<(), AbpError> {
        if self.removes() {
            match self.plane.runtime().expire(run_id, retention()).await {
                Ok(()) => {}
                Err(error) => match error.code() {
                    // Somebody decided meanwhile, or is deciding.
                    ErrorCode::ChangeSetDecided | ErrorCode::NotFound => return Ok(()),
                    _ => return Err(error),
                },
            }
            may_die("expired");
        } else {
            self.expiring.insert(run_id);
        }
        self.count(GarbageKind::ChangeSets, bytes);
        Ok(())
    }

    async fn stage_sizes(&mut self) -> Result<BTreeMap<Uuid, u64>, AbpError> {
        let root = self.config().stages_dir.clone();
        blocking(move || {
            let found = run_directories(&root)?.into_iter();
            found
                .map(|found| Ok((found.run_id, tree_bytes(&found.path)?)))
                .collect()
        })
        .await
    }

    /// Removes events of runs that ended long ago, and of the oldest where there are too many.
    async fn erase_events(&mut self) -> Result<(), AbpError> {
        let retention = self.config().retention;
        // A process that died in the middle left these.
        if self.removes() {
            for run_id in self.store.open_erasures().await? {
                self.erase_rows(run_id).await?;
            }
        }
        let old = retention.events_days.map(|days| self.before(days));
        let young = self.before(retention.keep_days);
        let mut over = match retention.events_mb {
            Some(most) => {
                let stored = self.store.event_bytes().await?;
                stored.saturating_sub(u64::from(most) * MEGABYTE)
            }
            None => 0,
        };
        let latest = old.into_iter().chain((over > 0).then_some(young)).max();
        let Some(latest) = latest else { return Ok(()) };
        let mut after = 0;
        let mut expiring = self.expiring.clone();
        loop {
            let mut page = self.store.erasable_runs(latest, after, PAGE).await?;
            if let Some(last) = page.last() {
                after = last.number;
            } else if expiring.is_empty() {
                return Ok(());
            }
            for run_id in std::mem::take(&mut expiring) {
                page.extend(self.erasable_then(run_id).await?);
            }
            for run in page {
                let is_old = old.is_some_and(|old| run.ended_at < old);
                let is_over = over > 0 && run.ended_at < young;
                if is_old || is_over {
                    over = over.saturating_sub(run.bytes);
                    self.erase(run).await?;
                }
            }
        }
    }

    /// A run whose changes would have expired, as it would be found then.
    async fn erasable_then(&mut self, run_id: Uuid) -> Result<Option<ErasableRun>, AbpError> {
        let run = self.store.run(run_id).await?;
        let Some((run, ended_at)) = run.and_then(|run| Some((run.number, run.ended_at?))) else {
            return Ok(None);
        };
        let (mut events, mut bytes) = (0, 0);
        loop {
            let page = self.store.events(run_id, events, PAGE).await?;
            if page.is_empty() {
                break;
            }
            events += page.len() as u64;
            bytes += page
                .iter()
                .map(|event| event.json.len() as u64)
                .sum::<u64>();
        }
        Ok((events > 0).then_some(ErasableRun {
            number: run,
            run_id,
            ended_at,
            events,
            bytes,
        }))
    }

    async fn erase(&mut self, run: ErasableRun) -> Result<(), AbpError> {
        if self.removes() {
            match self.store.begin_erasure(run.run_id).await {
                Ok(_) => {}
                Err(StoreError::NotErasable(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            may_die("erasing");
            self.erase_rows(run.run_id).await?;
        }
        self.count(GarbageKind::Events, run.bytes);
        Ok(())
    }

    async fn erase_rows(&mut self, run_id: Uuid) -> Result<(), AbpError> {
        while self.store.erase_events(run_id).await? > 0 {
            may_die("erased");
        }
        Ok(())
    }

    /// Removes home directories of runs that ended long ago, and the oldest where they are too large.
    async fn remove_homes(&mut self) -> Result<(), AbpError> {
        let retention = self.config().retention;
        if retention.homes_days.is_none() && retention.homes_mb.is_none() {
            return Ok(());
        }
        let root = homes(self.config()).directory().to_owned();
        let found = blocking(move || run_directories(&root)).await?;
        let undecided = self.store.undecided().await?;
        let mut ended = Vec::new();
        let mut total: u64 = 0;
        for home in found {
            let path = home.path.clone();
            let bytes = blocking(move || tree_bytes(&path)).await?;
            total += bytes;
            // A directory of no run is as old as it is.
            let since = match self.store.run(home.run_id).await? {
                Some(run) => run.ended_at,
                None => Some(home.modified),
            };
            let is_needed =
                undecided.contains(&home.run_id) && !self.expiring.contains(&home.run_id);
            if let Some(since) = since.filter(|_| !is_needed) {
                ended.push((since, home, bytes));
            }
        }
        ended.sort_by_key(|(since, home, _)| (*since, home.run_id));
        let most = retention.homes_mb.map(|most| u64::from(most) * MEGABYTE);
        let mut over = most.map_or(0, |most| total.saturating_sub(most));
        let old = retention.homes_days.map(|days| self.before(days));
        let young = self.before(retention.keep_days);
        for (since, home, bytes) in ended {
            let is_old = old.is_some_and(|old| since < old);
            if is_old || (over > 0 && since < young) {
                over = over.saturating_sub(bytes);
                self.remove(GarbageKind::Homes, home.path, bytes).await?;
            }
        }
        Ok(())
    }

    /// Removes uploads that no request named for `server.keep_days`, but no source of a run that goes on or
    /// whose changes are undecided.
    async fn remove_uploads(&mut self) -> Result<(), AbpError> {
        let root = uploads_directory(self.config());
        let oldest = self.before(self.config().server.keep_days);
        let found: Vec<Found> = blocking(move || find_uploads(&root, oldest)).await?;
        if found.is_empty() {
            return Ok(());
        }
        let needed = self.needed_projects().await?;
        for upload in found {
            if !needed.contains(&upload.path) {
                self.remove(GarbageKind::Uploads, upload.path, upload.bytes)
                    .await?;
            }
        }
        Ok(())
    }

    /// The source directories of runs that go on, or whose changes are undecided.
    async fn needed_projects(&mut self) -> Result<BTreeSet<PathBuf>, AbpError> {
        let mut needed = BTreeSet::new();
        let mut filter = RunFilter {
            ended: Some(false),
            ..RunFilter::default()
        };
        loop {
            let page = self.store.runs(&filter, PAGE).await?;
            let Some(last) = page.last() else { break };
            filter.before = Some(last.number);
            let projects = page.into_iter().filter_map(|run| run.project);
            needed.extend(projects.map(|project| PathBuf::from(project.path)));
        }
        for run_id in self.store.undecided().await? {
            let run = self.store.run(run_id).await?;
            let project = run.and_then(|run| run.project);
            needed.extend(project.map(|project| PathBuf::from(project.path)));
        }
        Ok(needed)
    }

    async fn remove(
        &mut self,
        kind: GarbageKind,
        path: PathBuf,
        bytes: u64,
    ) -> Result<(), AbpError> {
        if self.removes() {
            blocking(move || remove(&path)).await?;
            may_die("removed");
        }
        self.count(kind, bytes);
        Ok(())
    }

    /// Deletes discarded stages, those that expired just now included.
    async fn empty_trash(&mut self) -> Result<(), AbpError> {
        let workspaces = self.plane.runtime().workspaces();
        let swept = match self.mode {
            GarbageMode::Remove => {
                blocking(move || {
                    let swept = workspaces.sweep_trash(TRASH_TIME);
                    swept.map_err(std::io::Error::other)
                })
                .await?
            }
            GarbageMode::DryRun => {
                blocking(move || workspaces.count_trash().map_err(std::io::Error::other)).await?
            }
        };
        let (removed, left) = match self.mode {
            GarbageMode::Remove => (swept.removed, swept.remaining),
            GarbageMode::DryRun => (swept.remaining, 0),
        };
        if removed > 0 {
            let count = self.report.removed.entry(GarbageKind::Trash).or_default();
            count.items += removed;
        }
        self.report.trash_left = left;
        (self.progress)(&self.report);
        Ok(())
    }
}

/// Carries out what waits for the disk on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, AbpError> {
    let failed = |error: &dyn std::fmt::Display| {
        let message = format!("housekeeping stopped: {error}");
        AbpError::new(ErrorCode::ExecutionWorkspaceError, message)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
