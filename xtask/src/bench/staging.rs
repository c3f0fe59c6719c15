//! Staging and verifying a workspace, beside `cp -a` and `sha256sum` on the same files.
//!
//! All programs run in turn within a round, and the medians of the rounds are compared, so the
//! ratios hold even where the machine is shared. In memory where that is possible, so that the disk
//! has no say. Nothing is asserted.

mod decisions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::output::say;
use crate::workspace::{cargo, root};

const ROUNDS: usize = 5;
const COPY_BAR: f64 = 1.5;
const VERIFY_BAR: f64 = 1.0;
const FILES_PER_DIRECTORY: usize = 50;
/// Files, and bytes in each.
const TREES: [(usize, usize); 2] = [(10_000, 4_096), (100_000, 1_024)];

/// The times of one tree, a vector of rounds for each program.
#[derive(Default)]
struct Times {
    copy: Vec<Duration>,
    stage: Vec<Duration>,
    hash: Vec<Duration>,
    verify: Vec<Duration>,
    with_git: Vec<Duration>,
}

pub(crate) fn run() -> Result<()> {
    let built = cargo()
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "abp-workspace",
        ])
        .args(["--example", "stage"])
        .status()?;
    ensure!(
        built.success(),
        "the example of abp-workspace does not build"
    );
    let program = root()?.join("target/release/examples/stage");
    for (files, bytes) in TREES {
        let desk = Desk::new()?;
        desk.fill(files, bytes)?;
        let times = desk.measure(&program)?;
        report(files, files * bytes, times);
    }
    decisions::run()
}

fn report(files: usize, bytes: usize, times: Times) {
    let [copy, stage, hash, verify, with_git] = [
        times.copy,
        times.stage,
        times.hash,
        times.verify,
        times.with_git,
    ]
    .map(median);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ratio = |ours: Duration, theirs: Duration| ours.as_secs_f64() / theirs.as_secs_f64();
    say(format_args!(
        "{files} files, {:.0} MB, median of {ROUNDS}",
        bytes as f64 / 1e6
    ));
    say(format_args!(
        "  copy and manifest {:7.0} ms   cp -a     {:7.0} ms   ratio {:.2} (bar: ≤ {COPY_BAR})",
        ms(stage),
        ms(copy),
        ratio(stage, copy),
    ));
    say(format_args!(
        "  verification      {:7.0} ms   sha256sum {:7.0} ms   ratio {:.2} (bar: ≤ {VERIFY_BAR})",
        ms(verify),
        ms(hash),
        ratio(verify, hash),
    ));
    if with_git > stage {
        let git = with_git.saturating_sub(stage);
        say(format_args!(
            "  git baseline      {:7.0} ms   on top of the copy; with it {:.2} × cp -a",
            ms(git),
            ratio(with_git, copy),
        ));
    }
}

/// A directory for one tree and its copies, in memory where there is such a place.
struct Desk {
    path: PathBuf,
}

impl Desk {
    fn new() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = place.join(format!("abp-bench-staging-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Text that compresses as source code does, different in every file.
    fn fill(&self, files: usize, bytes: usize) -> Result<()> {
        for file in 0..files {
            let directory = self
                .source()
                .join(format!("dir-{}", file / FILES_PER_DIRECTORY));
            if file % FILES_PER_DIRECTORY == 0 {
                fs::create_dir_all(&directory)?;
            }
            let mut text = String::with_capacity(bytes + 80);
            let mut line = 0;
            while text.len() < bytes {
                let noise = (file * 7_919 + line).wrapping_mul(2_654_435_761) & 0xffff_ffff;
                text.push_str(&format!("let value_{line} = compute({noise:x}, {file});\n"));
                line += 1;
            }
            text.truncate(bytes);
            fs::write(directory.join(format!("file-{file}.rs")), text)?;
        }
        Ok(())
    }

    fn measure(&self, program: &Path) -> Result<Times> {
        let mut times = Times::default();
        for _ in 0..ROUNDS {
            times.copy.push(self.copy()?);
            let (stage, verify) = self.stage(program, &[])?;
            times.stage.push(stage);
            times.verify.push(verify);
            times.hash.push(self.hash()?);
            times.with_git.push(self.stage(program, &["--git"])?.0);
        }
        Ok(times)
    }

    fn copy(&self) -> Result<Duration> {
        let target = self.path.join("copy");
        let started = Instant::now();
        let status = Command::new("cp")
            .arg("-a")
            .args([self.source(), target.clone()])
            .status()
            .context("cannot run cp")?;
        let took = started.elapsed();
        ensure!(status.success(), "cp ended with {status}");
        fs::remove_dir_all(target)?;
        Ok(took)
    }

    fn hash(&self) -> Result<Duration> {
        let started = Instant::now();
        let status = Command::new("sh")
            .args(["-c", "find . -type f -print0 | xargs -0 sha256sum"])
            .current_dir(self.source())
            .stdout(Stdio::null())
            .status()
            .context("cannot run sha256sum")?;
        let took = started.elapsed();
        ensure!(status.success(), "sha256sum ended with {status}");
        Ok(took)
    }

    /// How long staging and verifying took, by the program's own clock.
    fn stage(&self, program: &Path, flags: &[&str]) -> Result<(Duration, Duration)> {
        let output = Command::new(program)
            .args([self.source(), self.path.join("stages")])
            .args(flags)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        ensure!(
            output.status.success(),
            "staging ended with {}",
            output.status
        );
        let text = String::from_utf8(output.stdout)?;
        let mut figures = text.split_whitespace().map(str::parse);
        let mut figure = || figures.next().context("a figure is missing");
        let (stage, verify) = (figure()??, figure()??);
        Ok((Duration::from_micros(stage), Duration::from_micros(verify)))
    }

    fn source(&self) -> PathBuf {
        self.path.join("source")
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            say(format_args!(
                "{} could not be removed: {error}",
                self.path.display()
            ));
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
