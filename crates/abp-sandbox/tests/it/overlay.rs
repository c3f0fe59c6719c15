//! Workspaces that are layers of directories.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use abp_sandbox::{Exit, Overlay, SandboxRequest, SpawnError};

use crate::support::{kernel, request, run};

const NOBODY: u32 = 65534;
/// Set in the process that runs the tests as another user.
const ELSEWHERE: &str = "ABP_TEST_OVERLAY_ELSEWHERE";

fn lacks_overlays(what: &str) -> bool {
    let kernel = kernel();
    let refused = kernel.overlay.and(kernel.seccomp).err();
    if let Some(reason) = &refused {
        abp_testkit::skip(what, reason);
    }
    refused.is_some()
}

/// A source, and a stage over it.
struct Layers {
    place: tempfile::TempDir,
}

impl Layers {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for directory in ["source/src", "source/.github", "tree", "work", "mask"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for (file, content) in [
            ("src/lib.rs", "one\n"),
            (".github/ci", "ci\n"),
            ("gone", "x"),
        ] {
            fs::write(place.path().join("source").join(file), content).unwrap();
        }
        Self { place }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(path)
    }

    fn request(&self) -> SandboxRequest {
        let overlay = Overlay {
            target: self.at("tree"),
            lower: vec![self.at("mask"), self.at("source")],
            upper: self.at("tree"),
            work: self.at("work"),
        };
        SandboxRequest {
            protected: vec![self.at("tree/.github")],
            overlays: vec![overlay],
            ..request(&self.at("tree"))
        }
    }
}

async fn changes_go_to_the_top_layer() {
    let layers = Layers::new();
    let script = "cat src/lib.rs; echo two >> src/lib.rs; rm gone; mkdir -p new/deep; echo n > new/deep/file; \
                  chmod 700 src; echo no > .github/ci || echo held; mv .github away || echo stays; ls -A";
    let (exit, output, errors) = run(&layers.request(), script).await.unwrap();
    assert_eq!(exit, Exit::Code(0), "{errors}");
    assert_eq!(output, "one\nheld\nstays\n.github\nnew\nsrc\n", "{errors}");
    let read = |path: &str| fs::read_to_string(layers.at(path)).unwrap();
    assert_eq!(read("source/src/lib.rs"), "one\n");
    assert_eq!(read("source/.github/ci"), "ci\n");
    assert!(layers.at("source/gone").exists());
    assert_eq!(read("tree/src/lib.rs"), "one\ntwo\n");
    assert_eq!(read("tree/new/deep/file"), "n\n");
    let mode = fs::metadata(layers.at("tree/src")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    let whiteout = fs::symlink_metadata(layers.at("tree/gone")).unwrap();
    assert!(whiteout.file_type().is_char_device(), "removals are marked");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = layers.place.path().display().to_string();
    assert!(!mounts.contains(&place), "nothing is mounted outside");
}

#[tokio::test]
async fn changes_in_an_overlay_go_to_its_top_layer_and_held_paths_stay() {
    if lacks_overlays("overlays") {
        return;
    }
    changes_go_to_the_top_layer().await;
}

#[tokio::test]
async fn an_overlay_that_the_kernel_refuses_is_told_apart_from_other_failures() {
    if lacks_overlays("refused overlays") {
        return;
    }
    let layers = Layers::new();
    let mut request = layers.request();
    // The kernel wants both on one file system.
    request.overlays[0].work = PathBuf::from("/dev/shm");
    let refused = run(&request, "true").await.unwrap_err();
    assert!(matches!(refused, SpawnError::Overlay(_)), "{refused}");
    request.overlays[0].work = layers.at("absent");
    let refused = run(&request, "true").await.unwrap_err();
    assert!(matches!(refused, SpawnError::Overlay(_)), "{refused}");
    // A link on the way to a layer is not followed.
    std::os::unix::fs::symlink(layers.at("source"), layers.at("link")).unwrap();
    let mut request = layers.request();
    request.overlays[0].lower[1] = layers.at("link");
    let refused = run(&request, "true").await.unwrap_err();
    assert!(matches!(refused, SpawnError::Overlay(_)), "{refused}");
}

/// Runs only where another test starts it as another user.
#[tokio::test]
async fn overlays_elsewhere() {
    if std::env::var_os(ELSEWHERE).is_some() && !lacks_overlays("overlays of another user") {
        changes_go_to_the_top_layer().await;
    }
}

#[test]
fn overlays_of_a_user_without_privileges() {
    if !rustix::process::geteuid().is_root() {
        return abp_testkit::skip("another user", "it takes root to become one");
    }
    let temporary = tempfile::tempdir().unwrap();
    chown(temporary.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = std::env::current_exe().unwrap();
    let passed = as_nobody(&program, temporary.path(), "overlay::overlays_elsewhere");
    assert!(passed.contains("1 passed"), "{passed}");
}

fn as_nobody(program: &Path, temporary: &Path, test: &str) -> String {
    let output = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env("TMPDIR", temporary)
        .env("HOME", temporary)
        .env(ELSEWHERE, "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}
