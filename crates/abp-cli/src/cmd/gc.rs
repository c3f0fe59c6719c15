//! `abp gc`: removing what runs that have ended left behind.

use abp_control::{GarbageKind, GarbageMode, GarbageReport};
use abp_error::{AbpError, ExitStatus};

use crate::args::{GcArgs, GlobalArgs};
use crate::output::Output;
use crate::session::{Session, block_on};
use crate::text::size;

pub(crate) fn run(
    args: &GcArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    let session = Session::open(global, &[], output)?;
    let mode = match args.dry_run {
        true => GarbageMode::DryRun,
        false => GarbageMode::Remove,
    };
    let is_watched = output.is_watched() && !output.is_json();
    let report = block_on(async {
        let done = session
            .plane
            .collect_garbage(mode, |report| {
                if is_watched {
                    output.clear_status();
                    output.status(&summary(report));
                }
            })
            .await;
        session.plane.close().await;
        done
    });
    if is_watched {
        output.clear_status();
    }
    let report = report?;
    if output.is_json() {
        output.json(&report)?;
        return Ok(ExitStatus::Success);
    }
    let label = if report.dry_run {
        "would go"
    } else {
        "removed"
    };
    output.field(label, &summary(&report));
    if report.trash_left > 0 {
        let left = format!(
            "{} discarded stages: run it again, or leave it to `abp serve`",
            report.trash_left
        );
        output.field("left", &left);
    }
    Ok(ExitStatus::Success)
}

fn summary(report: &GarbageReport) -> String {
    let parts: Vec<String> = report
        .removed
        .iter()
        .map(|(kind, count)| {
            let items = count.items;
            let what = match kind {
                GarbageKind::ChangeSets => format!("undecided changes of {items} runs"),
                GarbageKind::Events => format!("events of {items} runs"),
                GarbageKind::Homes => format!("{items} home directories"),
                GarbageKind::Uploads => format!("{items} uploads"),
                GarbageKind::Trash => format!("{items} discarded stages"),
            };
            match count.bytes {
                0 => what,
                bytes => format!("{what} ({})", size(bytes)),
            }
        })
        .collect();
    match parts.is_empty() {
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}
