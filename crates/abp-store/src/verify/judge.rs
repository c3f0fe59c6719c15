//! Compares what belongs to an entry of the log with the entry.

use abp_core::{Timestamp, document_hash};
use abp_receipt::{
    ChangeDecision, EntryKind, Hash, LogEntry, RunBinding, StoredEntry, StoredReceipt,
    TraceCoverage, TraceVerifier,
};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::feed::{
    ChangeSetRow, DecisionRow, ErasureRow, Fed, Joined, LogRow, ReceiptRow, StartedRow,
};
use super::{Findings, RunPart, StoreProblem};
use crate::ChangeSetState;
use crate::bound_row::BoundRow;
use crate::command::Ending;
use crate::receipt::check_receipt;

/// What is wrong with a row that is in the database only.
pub(super) const UNLOGGED: &str = "the log does not have it";
const UNREADABLE: &str = "it cannot be read";

/// Takes what is fed, and notes what is wrong.
pub(super) struct Judge {
    findings: Findings,
}

/// An entry for the verifier of the log.
pub(super) struct JudgedEntry {
    pub(super) stored: StoredEntry,
    pub(super) receipt: StoredReceipt,
}

impl Judge {
    pub(super) fn new(findings: Findings) -> Self {
        Self { findings }
    }

    pub(super) fn finish(self) -> Findings {
        self.findings
    }

    /// Takes the next entry, with the events that follow it; `None` at the end.
    pub(super) fn next_entry(&mut self, fed: &mut mpsc::Receiver<Fed>) -> Option<JudgedEntry> {
        let row = loop {
            // Events come after an entry that takes them; any others belong to nothing.
            if let Fed::Entry(row) = fed.blocking_recv()? {
                break row;
            }
        };
        let stored = match &row.entry {
            Some((bytes, leaf)) => StoredEntry::read(bytes, Some(*leaf)),
            None => StoredEntry::read(&[], None),
        };
        let entry = stored.entry().cloned();
        self.judge_start(&row, entry.as_ref());
        self.judge_decision(&row, entry.as_ref());
        self.judge_segment(&row, entry.as_ref());
        let receipt = self.judge_end(&row, entry.as_ref(), fed);
        Some(JudgedEntry { stored, receipt })
    }

    fn changed(&mut self, run_id: Uuid, what: RunPart, detail: impl Into<String>) {
        self.findings.add(StoreProblem::RunChanged {
            run_id,
            what,
            detail: detail.into(),
        });
    }

    /// Compares a run's row with the entry of its start. Of an entry that cannot be read nothing is
    /// known.
    fn judge_start(&mut self, row: &LogRow, entry: Option<&LogEntry>) {
        let Some(entry) = entry else { return };
        let start = match &entry.kind {
            EntryKind::RunStarted {
                run_id,
                work_order_sha256,
                record,
            } => Some((*run_id, *work_order_sha256, record)),
            _ => None,
        };
        match (&row.started, start) {
            (Joined::Absent, None) => {}
            (Joined::Present(started), None) => {
                let run_id = started.run_id.clone();
                self.findings.add(StoreProblem::UnloggedRun { run_id });
            }
            (Joined::Unreadable, None) => {
                let run_id = format!("of entry {}", row.seq);
                self.findings.add(StoreProblem::UnloggedRun { run_id });
            }
            (Joined::Absent, Some((run_id, ..))) => {
                self.findings.coverage.runs += 1;
                let seq = row.seq;
                self.findings.add(StoreProblem::MissingRun { run_id, seq });
            }
            (Joined::Unreadable, Some((run_id, ..))) => {
                self.findings.coverage.runs += 1;
                self.changed(run_id, RunPart::Row, UNREADABLE);
            }
            (Joined::Present(started), Some((run_id, order, record))) => {
                self.findings.coverage.runs += 1;
                self.compare_start(started, entry.at, run_id, order, record.as_ref());
            }
        }
    }

    fn compare_start(
        &mut self,
        started: &StartedRow,
        at: Timestamp,
        run_id: Uuid,
        order_sha256: Hash,
        record: Option<&RunBinding>,
    ) {
        if started.run_id != run_id.to_string() {
            let detail = format!("its row is that of run {}", started.run_id);
            return self.changed(run_id, RunPart::Row, detail);
        }
        let mut is_named = false;
        let accepted_at = Timestamp::from_unix_millis(started.accepted_at);
        if accepted_at != at {
            let detail = format!("it is {accepted_at}, logged is {at}");
            self.changed(run_id, RunPart::AcceptedAt, detail);
            is_named = true;
        }
        if started.order_sha256.parse() != Ok(order_sha256) {
            let detail = format!("it is {}, logged is {order_sha256}", started.order_sha256);
            self.changed(run_id, RunPart::OrderHash, detail);
            is_named = true;
        }
        let Some(record) = record else {
            self.findings.coverage.unbound_runs += 1;
            return;
        };
        let bound = BoundRow {
            accepted_at,
            backend: &started.backend,
            backend_asked: started.backend_asked.as_deref(),
            idempotency_key: started.idempotency_key.as_deref(),
            principal: started.principal.as_deref(),
            project: started.project.as_ref().map(Into::into),
            request_sha256: started.request_sha256.as_deref(),
            run_id,
            work_order_sha256: &started.order_sha256,
        };
        let order = started.order_json.as_deref();
        match bound.bind(order.unwrap_or_default()) {
            Err(problem) => self.changed(run_id, RunPart::Row, problem),
            Ok(found) => {
                if order.is_some() && found.order_sha256 != record.order_sha256 {
                    let detail = not_the_hash(found.order_sha256, record.order_sha256);
                    self.changed(run_id, RunPart::Order, detail);
                }
                if found.row_sha256 != record.row_sha256 && !is_named {
                    let detail = not_the_hash(found.row_sha256, record.row_sha256);
                    self.changed(run_id, RunPart::Row, detail);
                }
            }
        }
    }

    /// Compares a receipt with the entry of its run's end, and what it vouches for with the receipt.
    fn judge_end(
        &mut self,
        row: &LogRow,
        entry: Option<&LogEntry>,
        fed: &mut mpsc::Receiver<Fed>,
    ) -> StoredReceipt {
        let stored = match &row.receipt {
            Joined::Absent => return StoredReceipt::Missing,
            Joined::Unreadable => return StoredReceipt::Unreadable,
            Joined::Present(stored) => stored,
        };
        let Some(entry) = entry else {
            return StoredReceipt::Unchecked;
        };
        let logged = match &entry.kind {
            EntryKind::RunEnded {
                run_id,
                receipt_sha256,
            } if run_id.to_string() == stored.run_id => Some((*run_id, *receipt_sha256)),
            _ => None,
        };
        let Some((run_id, logged)) = logged else {
            let seq = row.seq;
            self.findings.add(StoreProblem::UnloggedReceipt { seq });
            return StoredReceipt::Missing;
        };
        let hash = document_hash(&stored.document)
            .ok()
            .and_then(|hash| hash.parse::<Hash>().ok());
        if stored.sha256 != logged.to_string() {
            let detail = format!("it is {}, logged is {logged}", stored.sha256);
            self.changed(run_id, RunPart::ReceiptHash, detail);
        }
        // A receipt that was changed vouches for nothing; the verifier of the log says so.
        if hash == Some(logged) {
            self.compare_receipt(run_id, logged, stored);
            self.compare_events(run_id, &stored.document, fed);
        }
        hash.map_or(StoredReceipt::Unreadable, StoredReceipt::Present)
    }

    fn compare_receipt(&mut self, run_id: Uuid, logged: Hash, stored: &ReceiptRow) {
        let read = check_receipt(run_id, stored.document.clone(), &logged.to_string());
        let Ending {
            outcome,
            finished_at,
            change_set,
            ..
        } = match read {
            Ok(ending) => ending,
            Err(error) => return self.changed(run_id, RunPart::Outcome, error.to_string()),
        };
        if stored.outcome.as_ref() != Some(&outcome) {
            let detail = format!("it is {:?}, the receipt has {outcome:?}", stored.outcome);
            self.changed(run_id, RunPart::Outcome, detail);
        }
        if stored.ended_at != Some(finished_at.as_unix_millis()) {
            let ended_at = stored.ended_at.map(Timestamp::from_unix_millis);
            let detail = format!("it is {ended_at:?}, the receipt has {finished_at}");
            self.changed(run_id, RunPart::EndedAt, detail);
        }
        if let Some(detail) = change_set_problem(change_set, stored.change_set.as_ref()) {
            self.changed(run_id, RunPart::ChangeSet, detail);
        }
    }

    /// Takes the events that were fed after an entry, and compares them with the receipt's digest.
    fn compare_events(&mut self, run_id: Uuid, document: &[u8], fed: &mut mpsc::Receiver<Fed>) {
        let mut verifier = match TraceVerifier::for_receipt(document) {
            Ok(verifier) => verifier,
            Err(problem) => return self.changed(run_id, RunPart::Events, problem),
        };
        let (mut erasure, mut has_events) = (None, false);
        while let Some(fed) = fed.blocking_recv() {
            match fed {
                Fed::Erasure(row) => erasure = Some(row),
                Fed::Events(page) => {
                    has_events = true;
                    for event in page {
                        verifier.push(event.seq, &event.json);
                    }
                }
                Fed::EventsUnreadable(problem) => {
                    return self.changed(run_id, RunPart::Events, problem);
                }
                Fed::EventsEnd | Fed::Entry(_) => break,
            }
        }
        if let Some(erasure) = erasure {
            match erasure_problem(run_id, &erasure, has_events) {
                None => self.findings.coverage.erased_traces += 1,
                Some(problem) => self.changed(run_id, RunPart::Events, problem),
            }
            return;
        }
        match verifier.finish() {
            TraceCoverage::Covered => {}
            TraceCoverage::NotCovered => self.findings.coverage.undigested_traces += 1,
            TraceCoverage::Wrong(problem) => {
                self.changed(run_id, RunPart::Events, problem.to_string());
            }
        }
    }

    fn judge_decision(&mut self, row: &LogRow, entry: Option<&LogEntry>) {
        let Some(entry) = entry else { return };
        let logged = match &entry.kind {
            EntryKind::Decision {
                run_id,
                decision_sha256,
            } => Some((*run_id, *decision_sha256)),
            _ => None,
        };
        let problem = match (&row.decision, logged) {
            (Joined::Absent, None) => None,
            (Joined::Absent, Some(_)) => Some("it is missing".to_owned()),
            (Joined::Unreadable, _) => Some(UNREADABLE.to_owned()),
            (Joined::Present(_), None) => Some(UNLOGGED.to_owned()),
            (Joined::Present(stored), Some((run_id, sha256))) => {
                self.compare_decision(run_id, sha256, stored)
            }
        };
        if let Some(detail) = problem {
            let seq = row.seq;
            self.findings.add(StoreProblem::Decision { seq, detail });
        }
    }

    fn compare_decision(
        &mut self,
        run_id: Uuid,
        logged: Hash,
        stored: &DecisionRow,
    ) -> Option<String> {
        let found = Hash::of(&stored.document);
        if found != logged {
            return Some(not_the_hash(found, logged));
        }
        let decision = match ChangeDecision::from_document(&stored.document) {
            Ok(decision) => decision,
            Err(error) => return Some(error.to_string()),
        };
        if decision.run != run_id || stored.run_id != Some(run_id.to_string()) {
            return Some(format!("it is filed under run {:?}", stored.run_id));
        }
        if decision.kind.as_str() != stored.kind {
            return Some(format!("it is filed as {:?}", stored.kind));
        }
        let change_set = decision.change_set_sha256;
        match &stored.change_set {
            None => self.changed(run_id, RunPart::ChangeSet, "it is missing"),
            Some(found) if *found != change_set.as_bytes() => {
                let detail = format!("decision {logged} has {change_set}");
                self.changed(run_id, RunPart::ChangeSet, detail);
            }
            Some(_) => {}
        }
        None
    }

    /// Says what is wrong with the segment at an entry, or with there being one or none.
    fn judge_segment(&mut self, row: &LogRow, entry: Option<&LogEntry>) {
        let Some(entry) = entry else { return };
        let sealed = match entry.kind {
            EntryKind::ExchangesSealed { count, root } => Some((count, root)),
            _ => None,
        };
        let problem = match (&row.segment, sealed) {
            (Joined::Absent, None) => None,
            (Joined::Absent, Some(_)) => Some("it is missing".to_owned()),
            (Joined::Unreadable, _) => Some(UNREADABLE.to_owned()),
            (Joined::Present(_), None) => Some(UNLOGGED.to_owned()),
            (Joined::Present(segment), Some((count, root))) => segment.problem(count, root),
        };
        if let Some(detail) = problem {
            let seq = row.seq;
            self.findings.add(StoreProblem::Segment { seq, detail });
        }
    }
}

/// What is wrong with the removal of a run's events.
fn erasure_problem(run_id: Uuid, row: &ErasureRow, has_events: bool) -> Option<&'static str> {
    let logged = StoredEntry::read(&row.entry, None);
    let kind = logged.entry().map(|entry| &entry.kind);
    match kind {
        Some(EntryKind::EventsErased { run_id: erased, .. }) if *erased == run_id => {
            let is_back = row.is_done && has_events;
            is_back.then_some("some are there although the log says that they were removed")
        }
        _ => Some("the log has no entry that removes them"),
    }
}

/// What is wrong with the change set of a run, given the hash in its receipt.
fn change_set_problem(vouched: Option<Hash>, stored: Option<&ChangeSetRow>) -> Option<String> {
    match (vouched, stored) {
        (None, None) => None,
        (Some(_), None) => Some("it is missing".to_owned()),
        (Some(vouched), Some(stored)) if stored.sha256 == vouched.as_bytes() => None,
        (Some(vouched), Some(_)) => Some(format!("the receipt has {vouched}")),
        // A run that was interrupted while its changes were applied has a receipt without them.
        (None, Some(stored))
            if stored.has_decisions || stored.state == ChangeSetState::Applying.as_str() =>
        {
            None
        }
        (None, Some(_)) => Some("the receipt has none".to_owned()),
    }
}

fn not_the_hash(found: Hash, logged: Hash) -> String {
    format!("its hash is {found}, logged is {logged}")
}
