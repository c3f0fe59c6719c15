//! Mutation testing: changes the source in small ways, one at a time, and lists the changes that no test
//! notices. Opt-in, because a crate takes from minutes to hours.
//!
//! The work is done by cargo-mutants on a copy of the repository, so that nothing is left changed when it
//! is interrupted. Builds of dependencies are kept below `target` between runs.

mod outcome;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::output::{progress, say};
use crate::workspace::{Metadata, cargo, root};
use outcome::Report;

/// The version whose outcome file is read here.
const VERSION: &str = "27.1.0";

/// What is tested where no crate is named, as far as it exists: whatever decides about runs and receipts.
const DEFAULT_CRATES: [&str; 7] = [
    "abp-policy",
    "abp-runtime",
    "abp-workspace",
    "abp-store",
    "abp-receipt",
    "abp-json",
    "abp-control",
];

/// How cargo-mutants ends when mutants survived or took too long: its report says which.
const FOUND_SOMETHING: [i32; 2] = [2, 3];

/// Arguments of `cargo xtask mutants`.
#[derive(Debug, Args)]
pub(crate) struct MutantsArgs {
    /// The crates to change; those that decide about runs and receipts when omitted.
    crates: Vec<String>,
    /// Test only the k-th of n parts, from 0: `0/8`.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// The longest that the tests of one mutant may take, in seconds.
    #[arg(long, default_value_t = 120)]
    timeout: u32,
    /// How many mutants to test at once.
    #[arg(long, short, default_value_t = 1)]
    jobs: u32,
    /// Fail where fewer than this share of the mutants is noticed, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    at_least: Option<u8>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Tests the mutants, prints the result and stores it below `target/mutants`.
pub(crate) fn run(args: &MutantsArgs) -> Result<ExitCode> {
    let root = root()?;
    let crates = chosen(&args.crates, &Metadata::load(&root)?)?;
    let folder = root.join("target/mutants");
    fs::create_dir_all(&folder)?;
    let program = installed(&root)?;
    let part = args.shard.as_deref().unwrap_or("0/1");
    progress(format_args!(
        "mutants: changing {} (part {part}); a mutant takes seconds to minutes",
        crates.join(", ")
    ));
    let outcomes = folder.join("mutants.out/outcomes.json");
    // Left from an earlier run, it would be reported again.
    if outcomes.exists() {
        fs::remove_file(&outcomes)?;
    }
    test_mutants(&program, &root, &folder, &crates, args)?;
    let text = fs::read_to_string(&outcomes)
        .with_context(|| format!("cargo-mutants wrote no {}", outcomes.display()))?;
    let report = Report::read(&text)?;
    let lines = report.lines().join("\n");
    fs::write(folder.join("report.txt"), format!("{lines}\n"))?;
    let json = serde_json::to_string_pretty(&report.to_json())?;
    fs::write(folder.join("report.json"), &json)?;
    say(if args.json { &json } else { &lines });
    Ok(match args.at_least {
        Some(least) if !report.reaches(least) => {
            progress(format_args!("mutants: fewer than {least} % were noticed"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

fn chosen(named: &[String], metadata: &Metadata) -> Result<Vec<String>> {
    let exists = |name: &str| metadata.members().any(|package| package.name == name);
    if let Some(unknown) = named.iter().find(|name| !exists(name)) {
        bail!("there is no crate {unknown}");
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let known = DEFAULT_CRATES.into_iter().filter(|name| exists(name));
    Ok(known.map(str::to_owned).collect())
}

/// The program, which is installed below `target` where it is missing there.
fn installed(root: &Path) -> Result<PathBuf> {
    let tools = root.join("target/tools");
    let program = tools.join("bin/cargo-mutants");
    let version = Command::new(&program)
        .args(["mutants", "--version"])
        .output();
    let wanted = format!("cargo-mutants {VERSION}");
    if version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == wanted) {
        return Ok(program);
    }
    progress(format_args!(
        "mutants: installing {wanted}, which takes a few minutes"
    ));
    let status = cargo()
        .args(["install", "--locked", "--quiet", "--force", "cargo-mutants"])
        .args(["--version", VERSION, "--root"])
        .arg(&tools)
        .stdout(Stdio::null())
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("{wanted} cannot be installed (is a package registry within reach?)");
    }
    Ok(program)
}

fn test_mutants(
    program: &Path,
    root: &Path,
    folder: &Path,
    crates: &[String],
    args: &MutantsArgs,
) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("mutants").arg("--output").arg(folder);
    for name in crates {
        command.args(["--package", name]);
    }
    if let Some(shard) = &args.shard {
        // A part is then a sample of all files, not the first few of them.
        command.args(["--shard", shard, "--sharding", "round-robin"]);
    }
    // Long enough to build, and a limit of its own for the tests: a mutant that loops is noticed by it.
    command.args(["--timeout", &args.timeout.to_string()]);
    command.args(["--jobs", &args.jobs.to_string(), "--no-times"]);
    if has_nextest() {
        command.args(["--test-tool", "nextest"]);
    }
    if args.jobs == 1 {
        // Copies have other paths each time; what comes from the registry need not be built again.
        command.env("CARGO_TARGET_DIR", folder.join("build"));
    }
    // Its progress must not mix with our result.
    let status = command
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("cargo-mutants cannot be started")?;
    match status.code() {
        Some(code) if code == 0 || FOUND_SOMETHING.contains(&code) => Ok(()),
        _ => bail!(
            "cargo-mutants ended with {status}; see {}",
            folder.join("mutants.out/log").display()
        ),
    }
}

fn has_nextest() -> bool {
    let version = cargo().args(["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}
