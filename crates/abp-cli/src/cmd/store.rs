//! `abp migrate` and `abp nodes`: a store on Postgres.

use abp_control::store_location;
use abp_error::{AbpError, ExitStatus};
use abp_store::{MigrationState, NodeRecord, Store, StoreLocation, StoreOptions};
use serde_json::{Value, json};

use crate::args::{GlobalArgs, MigrateArgs};
use crate::cmd::runs::stored;
use crate::output::{BAD, DIM, GOOD, Output};
use crate::session::{Session, block_on};
use crate::text::one_line;

/// Brings the tables up to date, or says what there is to do.
pub(crate) fn migrate(
    args: &MigrateArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let postgres = match store_location(session.config())? {
        StoreLocation::Postgres(postgres) => postgres,
        StoreLocation::Directory(directory) => {
            let directory = directory.display().to_string();
            if output.is_json() {
                output.json(&json!({ "store": "file", "directory": directory }))?;
            } else {
                let directory = one_line(&directory);
                output.line(&format!(
                    "the store is a file in {directory}: it is brought up to date when it is opened"
                ));
            }
            return Ok(ExitStatus::Success);
        }
    };
    let state = block_on(async {
        let state = match args.check {
            true => Store::inspect_postgres(&postgres).await,
            false => Store::migrate_postgres(&postgres, &StoreOptions::default()).await,
        };
        state.map_err(stored)
    })?;
    tell(&state, args.check, output)?;
    Ok(match args.check && !state.is_current() {
        true => ExitStatus::Usage,
        false => ExitStatus::Success,
    })
}

fn tell(state: &MigrationState, is_check: bool, output: &mut Output) -> Result<(), AbpError> {
    let database = state.database.display().to_string();
    let (found, supported) = (state.found, state.supported);
    let is_current = state.is_current() || !is_check;
    if output.is_json() {
        return output.json(&json!({
            "store": "postgres",
            "database": database,
            "found": found,
            "supported": supported,
            "current": is_current,
        }));
    }
    let database = one_line(&database);
    if state.is_current() {
        output.line(&format!("{database} is up to date: version {found}"));
    } else if is_check {
        output.line(&format!(
            "{database} has version {found}, and this release needs {supported}: run `abp migrate`"
        ));
    } else {
        output.line(&format!(
            "{database} is brought from version {found} to {supported}"
        ));
    }
    Ok(())
}

/// Lists the processes that have the store open.
pub(crate) fn nodes(global: &GlobalArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let nodes = match store_location(session.config())? {
        StoreLocation::Directory(_) => Vec::new(),
        location @ StoreLocation::Postgres(_) => block_on(async {
            let Some(reader) = location.open_reader().await.map_err(stored)? else {
                return Ok(Vec::new());
            };
            let nodes = reader.nodes().await.map_err(stored);
            reader.close().await;
            nodes
        })?,
    };
    if output.is_json() {
        let nodes: Vec<Value> = nodes.iter().map(to_json).collect();
        output.json(&json!({ "nodes": nodes }))?;
        return Ok(ExitStatus::Success);
    }
    if nodes.is_empty() {
        output.note("no process has a store on Postgres open");
    }
    for node in &nodes {
        let (style, word) = match node.is_alive {
            true => (GOOD, "alive"),
            false => (BAD, "gone"),
        };
        let name = one_line(&node.name);
        output.line(&format!(
            "{style}{word:<5}{style:#} {name} {DIM}release {}, since {}, {}{DIM:#}",
            node.version, node.started_at, node.token
        ));
    }
    Ok(ExitStatus::Success)
}

fn to_json(node: &NodeRecord) -> Value {
    json!({
        "token": node.token,
        "name": node.name,
        "version": node.version,
        "started_at": node.started_at,
        "alive_until": node.alive_until,
        "alive": node.is_alive,
    })
}
