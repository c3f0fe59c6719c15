//! The tables, step by step.

/// What makes each version out of the one before it; the first makes an empty database version 1.
/// A step that was released is never changed.
pub(super) const STEPS: &[&str] = &[
    "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        idempotency_key TEXT UNIQUE,
        accepted_at INTEGER NOT NULL,
        work_order TEXT NOT NULL,
        work_order_sha256 TEXT NOT NULL,
        backend TEXT NOT NULL,
        owner TEXT NOT NULL,
        stage TEXT,
        ended_at INTEGER,
        outcome TEXT
    ) STRICT;
    CREATE INDEX unfinished_runs ON runs (id) WHERE ended_at IS NULL;
    CREATE INDEX staged_runs ON runs (id) WHERE stage IS NOT NULL;
    CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES runs (id),
        seq INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY,
        entry TEXT NOT NULL,
        leaf BLOB NOT NULL
    ) STRICT;
    CREATE TABLE receipts (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        log_seq INTEGER NOT NULL UNIQUE REFERENCES log (seq),
        sha256 TEXT NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE TABLE checkpoints (
        size INTEGER PRIMARY KEY,
        note TEXT NOT NULL
    ) STRICT;
    CREATE TABLE head (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        origin TEXT NOT NULL,
        first_key TEXT NOT NULL,
        key TEXT NOT NULL,
        frontier TEXT NOT NULL,
        probes INTEGER NOT NULL DEFAULT 0
    ) STRICT;
",
    "
    ALTER TABLE runs ADD COLUMN request_sha256 TEXT;
    DROP INDEX staged_runs;
    ALTER TABLE runs DROP COLUMN stage;
",
    "
    ALTER TABLE head ADD COLUMN keys_version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE head ADD COLUMN exchange_crashes INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE api_keys (
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        sha256 BLOB NOT NULL UNIQUE,
        models TEXT NOT NULL,
        requests_per_minute INTEGER,
        tokens_per_minute INTEGER,
        budget INTEGER,
        token_budget INTEGER,
        max_output_tokens INTEGER,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) STRICT;
    CREATE TABLE budgets (
        key TEXT NOT NULL PRIMARY KEY REFERENCES api_keys (id),
        spent INTEGER NOT NULL DEFAULT 0,
        spent_tokens INTEGER NOT NULL DEFAULT 0,
        reserved INTEGER NOT NULL DEFAULT 0,
        reserved_tokens INTEGER NOT NULL DEFAULT 0,
        requests INTEGER NOT NULL DEFAULT 0,
        abandoned INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE reservations (
        exchange BLOB NOT NULL PRIMARY KEY,
        key TEXT NOT NULL REFERENCES budgets (key),
        cost INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        owner TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE answers (
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        upstream TEXT NOT NULL,
        native INTEGER NOT NULL,
        model TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        input_items TEXT NOT NULL,
        answer TEXT NOT NULL,
        previous TEXT,
        PRIMARY KEY (principal, id)
    ) STRICT;
    CREATE INDEX answers_by_age ON answers (created_at);
    CREATE TABLE reasoning (
        principal TEXT NOT NULL,
        vendor TEXT NOT NULL,
        call_id TEXT NOT NULL,
        model TEXT NOT NULL,
        kept_at INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (principal, vendor, call_id, model)
    ) STRICT;
    CREATE INDEX reasoning_by_age ON reasoning (kept_at);
    CREATE TABLE exchange_segments (
        seq INTEGER PRIMARY KEY REFERENCES log (seq),
        first_started_at INTEGER NOT NULL,
        min_id BLOB NOT NULL,
        max_id BLOB NOT NULL,
        count INTEGER NOT NULL,
        root BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX segments_by_id ON exchange_segments (max_id, min_id);
    CREATE TABLE exchange_writers (owner TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE TABLE ledgers (
        sha256 BLOB NOT NULL PRIMARY KEY,
        json TEXT NOT NULL
    ) STRICT;
",
    // Every run is joined to the entry of its start, also runs of older releases. An entry that is
    // damaged costs its own run that link and nothing else.
    "
    ALTER TABLE runs ADD COLUMN log_seq INTEGER REFERENCES log (seq);
    ALTER TABLE runs ADD COLUMN project_path TEXT;
    ALTER TABLE runs ADD COLUMN project_inode INTEGER;
    ALTER TABLE runs ADD COLUMN project_born INTEGER;
    ALTER TABLE runs ADD COLUMN principal TEXT;
    ALTER TABLE runs ADD COLUMN backend_asked TEXT;
    ALTER TABLE runs ADD COLUMN alive_at INTEGER;
    CREATE TEMP TABLE starts (run_id TEXT PRIMARY KEY, seq INTEGER) WITHOUT ROWID;
    INSERT OR IGNORE INTO starts
        SELECT json_extract(entry, '$.kind.run_id'), seq FROM log
        WHERE CASE WHEN json_valid(entry)
            THEN json_extract(entry, '$.kind.type') = 'run_started'
                AND json_extract(entry, '$.kind.run_id') IS NOT NULL
            ELSE 0 END
        ORDER BY seq;
    UPDATE runs SET log_seq = (SELECT seq FROM starts WHERE starts.run_id = runs.run_id);
    DROP TABLE starts;
    CREATE UNIQUE INDEX runs_by_start ON runs (log_seq);
    CREATE INDEX runs_by_project ON runs (project_path) WHERE project_path IS NOT NULL;
    CREATE TABLE run_blobs (
        run INTEGER NOT NULL REFERENCES runs (id),
        sha256 BLOB NOT NULL,
        chunk INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        UNIQUE (run, sha256, chunk)
    ) STRICT;
    CREATE TABLE change_sets (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        sha256 BLOB NOT NULL,
        state TEXT NOT NULL,
        state_at INTEGER NOT NULL,
        state_by TEXT NOT NULL
    ) STRICT;
    CREATE INDEX undecided_change_sets ON change_sets (run)
        WHERE state IN ('proposed', 'applying', 'conflict');
    CREATE TABLE applications (
        id TEXT NOT NULL PRIMARY KEY,
        run INTEGER NOT NULL UNIQUE REFERENCES change_sets (run),
        owner TEXT NOT NULL,
        decided_by TEXT NOT NULL,
        via TEXT NOT NULL,
        begun_at INTEGER NOT NULL,
        paths TEXT NOT NULL,
        journal BLOB NOT NULL
    ) STRICT;
    CREATE TABLE decisions (
        log_seq INTEGER PRIMARY KEY REFERENCES log (seq),
        run INTEGER NOT NULL REFERENCES runs (id),
        kind TEXT NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE INDEX decisions_by_run ON decisions (run, log_seq);
",
    "
    ALTER TABLE api_keys ADD COLUMN max_concurrent INTEGER;
    ALTER TABLE api_keys ADD COLUMN max_sessions INTEGER;
",
    // Runs of older releases that have not ended are running: the process that has them, or recovery, ends
    // them. Their lease has no end, so only the end of that process makes them interrupted.
    "
    ALTER TABLE runs ADD COLUMN state TEXT NOT NULL DEFAULT 'running' CHECK (state IN
        ('queued', 'running', 'awaiting_approval', 'complete', 'partial', 'failed', 'cancelled'));
    ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN lease_until INTEGER;
    ALTER TABLE runs ADD COLUMN pinned_to TEXT;
    ALTER TABLE runs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN max_attempts INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN notify TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE runs ADD COLUMN cancel_at INTEGER;
    ALTER TABLE runs ADD COLUMN cancel_by TEXT;
    ALTER TABLE runs ADD COLUMN cancel_via TEXT;
    ALTER TABLE runs ADD COLUMN cancel_reason TEXT;
    UPDATE runs SET state = CASE
        WHEN outcome IN ('complete', 'partial', 'failed', 'cancelled') THEN outcome
        ELSE 'failed' END
    WHERE ended_at IS NOT NULL;
    CREATE INDEX queued_runs ON runs (id) WHERE state = 'queued';
    CREATE INDEX active_runs ON runs (principal) WHERE state = 'running';
    CREATE INDEX runs_by_principal ON runs (principal, id) WHERE principal IS NOT NULL;
    CREATE TABLE submissions (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        sealed BLOB NOT NULL
    ) STRICT;
    CREATE TABLE approvals (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        run INTEGER NOT NULL REFERENCES runs (id),
        epoch INTEGER NOT NULL,
        rule TEXT,
        tool TEXT NOT NULL,
        target TEXT,
        reason TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        verdict TEXT CHECK (verdict IN ('approved', 'denied', 'expired', 'withdrawn')),
        answered_at INTEGER,
        answered_by TEXT,
        answered_via TEXT,
        answer_reason TEXT,
        used_epoch INTEGER
    ) STRICT;
    CREATE INDEX approvals_by_run ON approvals (run, seq);
    CREATE INDEX open_approvals ON approvals (seq) WHERE verdict IS NULL;
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (id),
        destination TEXT NOT NULL,
        topic TEXT NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        claimed_by TEXT,
        claimed_until INTEGER
    ) STRICT;
    CREATE INDEX outbox_by_due ON outbox (due_at, id);
    ALTER TABLE api_keys ADD COLUMN scopes TEXT NOT NULL DEFAULT '[\"models\",\"assist\"]';
",
    // Rows of events are deleted many transactions after the entry that says so.
    "
    CREATE TABLE erasures (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        log_seq INTEGER NOT NULL UNIQUE REFERENCES log (seq),
        is_done INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX open_erasures ON erasures (run) WHERE is_done = 0;
",
    // Every submission counts the queue, and without this it reads every queued row.
    "
    CREATE INDEX queued_by_principal ON runs (state, principal) WHERE state = 'queued';
",
];
