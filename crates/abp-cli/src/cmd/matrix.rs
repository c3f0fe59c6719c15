//! `abp matrix`.

use std::fmt::Write as _;

use abp_dialect::Dialect;
use abp_error::{AbpError, ExitStatus};
use abp_mapping::{Feature, Fidelity, MappingRule, known_rules};
use serde_json::json;

use crate::args::MatrixArgs;
use crate::output::Output;

pub(crate) fn run(args: &MatrixArgs, output: &mut Output) -> Result<ExitStatus, AbpError> {
    let rules = known_rules();
    let asked = |rule: &&MappingRule| {
        args.from.is_none_or(|from| from == rule.source_dialect)
            && args.to.is_none_or(|to| to == rule.target_dialect)
    };
    if output.is_json() {
        let rules: Vec<_> = rules.iter().filter(asked).collect();
        output.json(&json!({ "rules": rules }))?;
        return Ok(ExitStatus::Success);
    }
    if let (Some(from), Some(to)) = (args.from, args.to) {
        for feature in Feature::ALL {
            if let Some(rule) = rules.lookup(from, to, feature) {
                let (symbol, words) = (rule.fidelity.symbol(), words(&rule.fidelity));
                output.line(&format!("{symbol} {:<20} {words}", feature.as_str()));
            }
        }
        return Ok(ExitStatus::Success);
    }
    let targets: Vec<_> = columns(args.to);
    let mut head = format!("{:<21}{:<9}", "feature", "from");
    for to in &targets {
        write_cell(&mut head, to.as_str());
    }
    output.line(head.trim_end());
    for feature in Feature::ALL {
        for from in columns(args.from) {
            let cells: Vec<_> = targets
                .iter()
                .map(|to| rules.lookup(from, *to, feature))
                .map(|rule| rule.map_or(".", |rule| rule.fidelity.symbol()))
                .collect();
            if cells.iter().all(|cell| *cell == ".") {
                continue;
            }
            let mut line = format!("{:<21}{:<9}", feature.as_str(), from.as_str());
            for cell in cells {
                write_cell(&mut line, cell);
            }
            output.line(line.trim_end());
        }
    }
    output.line("");
    output.line("= lossless   ~ with a labelled loss   x refused   . no such feature");
    output.line("Name both sides for the reasons: abp matrix --from openai --to gemini");
    Ok(ExitStatus::Success)
}

fn columns(only: Option<Dialect>) -> Vec<Dialect> {
    only.map_or_else(|| Dialect::ALL.to_vec(), |dialect| vec![dialect])
}

fn write_cell(line: &mut String, cell: &str) {
    // Writing to a string cannot fail.
    let _ = write!(line, "{cell:<9}");
}

fn words(fidelity: &Fidelity) -> &str {
    match fidelity {
        Fidelity::Lossless => "",
        Fidelity::LossyLabeled { warning } => warning,
        Fidelity::Unsupported { reason } => reason,
    }
}
