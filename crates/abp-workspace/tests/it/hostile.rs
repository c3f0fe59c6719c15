//! An agent with a repository of its own tries to hide what it did, and to have the host run its
//! code. Real git sets the traps, and shows on the way that they are armed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use abp_testkit::skip;
use abp_workspace::PreparedWorkspace;
use uuid::Uuid;

use crate::fixture::{
    Fixture, apply_set, build, chmod, fifo, image_of, snapshot, stored_change_set,
};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "*.log\n.env\n"),
    (".env", "secret"),
    ("a.txt", "one\ntwo\n"),
    ("d/b", "b"),
];

/// A name, what the agent does in its stage, and the status that must come of it.
type Trick<'a> = (&'a str, &'a dyn Fn(&Path), &'a str);

/// Runs git the way an agent does, with all its settings; its output, or none where there is no git.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=agent",
            "-c",
            "user.email=agent@example.com",
        ])
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A stage that is the agent's repository, with one commit of everything.
fn stage(fixture: &Fixture, run_id: Uuid) -> Option<PreparedWorkspace> {
    let workspace = fixture.prepare_run(run_id).expect("workspace");
    repository(workspace.root())?;
    Some(workspace)
}

fn repository(root: &Path) -> Option<()> {
    git(root, &["init", "--quiet"])?;
    git(root, &["add", "--all"])?;
    git(root, &["commit", "--quiet", "--message", "start"])?;
    Some(())
}

/// Makes a directory a repository inside the repository.
fn nest(root: &Path) {
    tell(root, &["rm", "-r", "--quiet", "--cached", "d"]);
    repository(&root.join("d")).expect("repository");
    tell(root, &["add", "d"]);
}

fn tell(root: &Path, arguments: &[&str]) {
    drop(git(root, arguments));
}

fn edit(root: &Path) {
    build(root, &[("a.txt", "ONE\ntwo\n")]);
}

fn everything(root: &Path) -> String {
    let shown = git(root, &["status", "--porcelain=v1"]).zip(git(root, &["diff", "--no-color"]));
    shown
        .map(|(status, diff)| status + &diff)
        .unwrap_or_default()
}

#[test]
fn d9_whatever_git_is_told_every_change_is_reported() {
    let tricks: [Trick<'_>; 9] = [
        (
            "commit",
            &|root| {
                edit(root);
                tell(root, &["commit", "--quiet", "--all", "--message", "hidden"]);
            },
            " M a.txt\n",
        ),
        (
            "everything ignored",
            &|root| build(root, &[(".gitignore", "*\n"), ("new", "")]),
            " M .gitignore\n?? new\n",
        ),
        (
            "info/exclude",
            &|root| build(root, &[(".git/info/exclude", "*\n"), ("new", "")]),
            "?? new\n",
        ),
        (
            "assume-unchanged",
            &|root| {
                tell(root, &["update-index", "--assume-unchanged", "a.txt"]);
                edit(root);
            },
            " M a.txt\n",
        ),
        (
            "skip-worktree",
            &|root| {
                tell(root, &["update-index", "--skip-worktree", "a.txt"]);
                edit(root);
            },
            " M a.txt\n",
        ),
        (
            "core.worktree",
            &|root| {
                tell(root, &["config", "core.worktree", "/var/empty"]);
                edit(root);
            },
            " M a.txt\n",
        ),
        (
            "no repository any more",
            &|root| {
                fs::remove_dir_all(root.join(".git")).expect("removed");
                edit(root);
            },
            " M a.txt\n",
        ),
        (
            "core.fileMode",
            &|root| {
                tell(root, &["config", "core.fileMode", "false"]);
                chmod(&root.join("a.txt"), 0o755);
            },
            " M a.txt\n",
        ),
        (
            "same size and time",
            &|root| {
                tell(root, &["config", "core.trustctime", "false"]);
                let path = root.join("a.txt");
                let time = fs::metadata(&path)
                    .and_then(|stat| stat.modified())
                    .expect("time");
                edit(root);
                let file = fs::File::options().write(true).open(&path).expect("file");
                file.set_modified(time).expect("time");
            },
            " M a.txt\n",
        ),
    ];
    check_reported("d9_whatever_git_is_told_every_change_is_reported", &tricks);
}

#[test]
fn d9_what_git_overlooks_is_reported() {
    let tricks: [Trick<'_>; 5] = [
        (
            "D10 hidden by the source's own rules",
            &|root| build(root, &[(".env", "leaked")]),
            " M .env\n",
        ),
        (
            "staged",
            &|root| {
                edit(root);
                tell(root, &["add", "--all"]);
            },
            " M a.txt\n",
        ),
        (
            "untracked",
            &|root| build(root, &[("new/file", "new\n")]),
            "?? new/file\n",
        ),
        (
            "nested repository",
            &|root| {
                build(root, &[("d/b", "B")]);
                repository(&root.join("d")).expect("repository");
            },
            " M d/b\n?? d/.git\n",
        ),
        (
            "what git does not know",
            &|root| {
                fifo(&root.join("pipe"));
                build(root, &[("empty/", "")]);
            },
            "?? empty/\n?? pipe\n",
        ),
    ];
    check_reported("d9_what_git_overlooks_is_reported", &tricks);
}

fn check_reported(test: &str, tricks: &[Trick<'_>]) {
    for (case, trick, expected) in tricks {
        let mut fixture = Fixture::new(TREE).with_git();
        fixture.spec.respect_gitignore = false;
        let Some(workspace) = stage(&fixture, Uuid::new_v4()) else {
            return skip(test, "git cannot be run");
        };
        trick(workspace.root());
        let status = workspace.changes().expect(case).git_status();
        let of_the_agent = |line: &&str| *line != "?? .git";
        let status: Vec<&str> = status.lines().filter(of_the_agent).collect();
        assert_eq!(status, expected.lines().collect::<Vec<_>>(), "D9 {case}");
    }
}

/// Sets a trap that leaves a mark when git runs.
type Trap<'a> = (&'a str, &'a dyn Fn(&Path, &str));

#[test]
fn d8_nothing_of_the_agent_runs_on_the_host() {
    let set = |root: &Path, key: &str, value: &str| tell(root, &["config", key, value]);
    let attributes = |root: &Path, text: &str| build(root, &[(".gitattributes", text)]);
    let traps: [Trap<'_>; 12] = [
        ("core.fsmonitor", &|root, trap| {
            set(root, "core.fsmonitor", trap);
        }),
        ("diff.external", &|root, trap| {
            set(root, "diff.external", trap);
        }),
        ("textconv", &|root, trap| {
            set(root, "diff.x.textconv", trap);
            attributes(root, "* diff=x\n");
        }),
        ("diff command", &|root, trap| {
            set(root, "diff.x.command", trap);
            attributes(root, "* diff=x\n");
        }),
        ("filter.clean", &|root, trap| {
            set(root, "filter.x.clean", trap);
            attributes(root, "* filter=x\n");
        }),
        ("filter.process", &|root, trap| {
            set(root, "filter.x.process", trap);
            attributes(root, "* filter=x\n");
        }),
        ("include.path", &|root, trap| {
            let included = format!("[filter \"x\"]\n\tclean = {trap}\n");
            build(root, &[("hidden", &included)]);
            set(root, "include.path", "../hidden");
            attributes(root, "* filter=x\n");
        }),
        ("file in place of the repository", &|root, trap| {
            set(root, "core.fsmonitor", trap);
            fs::rename(root.join(".git"), root.join("elsewhere")).expect("moved");
            build(root, &[(".git", "gitdir: elsewhere\n")]);
        }),
        ("nested fsmonitor", &|root, trap| {
            nest(root);
            set(&root.join("d"), "core.fsmonitor", trap);
        }),
        ("nested filter", &|root, trap| {
            nest(root);
            set(&root.join("d"), "filter.x.clean", trap);
            build(
                &root.join("d"),
                &[(".gitattributes", "* filter=x\n"), ("b", "B")],
            );
        }),
        ("hook", &|root, trap| {
            build(
                root,
                &[(
                    ".git/hooks/post-index-change",
                    &format!("#!/bin/sh\n{trap}\n"),
                )],
            );
            chmod(&root.join(".git/hooks/post-index-change"), 0o755);
        }),
        ("core.pager", &|root, trap| set(root, "core.pager", trap)),
    ];
    for (case, set_trap) in traps {
        let fixture = Fixture::new(TREE).with_git();
        fs::create_dir(fixture.outside()).expect("directory");
        let mark = fixture.outside().join("mark");
        let run_id = Uuid::new_v4();
        let Some(workspace) = stage(&fixture, run_id) else {
            return skip(
                "d8_nothing_of_the_agent_runs_on_the_host",
                "git cannot be run",
            );
        };
        set_trap(workspace.root(), &format!("touch {}", mark.display()));
        build(workspace.root(), &[("a.txt", "ONE\ntwo\n")]);
        drop(fs::remove_file(&mark));

        // Everything a host does with a stage, from the end of the run to the decision.
        let changes = workspace.changes().expect(case);
        assert!(changes.git_status().contains(" M a.txt\n"), "D8 {case}");
        assert!(changes.git_diff().contains("+ONE\n"), "D8 {case}");
        let (set, images) = stored_change_set(&workspace, &changes).expect(case);
        workspace.keep().expect(case);
        let stage = fixture.manager.claim(run_id).expect(case);
        let diff = set.git_diff(stage.tree(), image_of(&images)).expect(case);
        assert_eq!(diff, changes.git_diff(), "D8 {case}");
        apply_set(stage.tree(), &set, &[], &images).expect(case);
        assert!(!mark.exists(), "D8 {case}");
        let applied = snapshot(&fixture.source());
        assert!(
            !applied.keys().any(|path| path.ends_with(b".git")),
            "D8 {case}"
        );

        everything(stage.tree());
        // Reading alone does not always write the index, which is what one of the traps waits for.
        tell(stage.tree(), &["add", "a.txt"]);
        let armed = mark.exists() || case == "core.pager";
        assert!(armed, "the trap is not one: {case}");
        drop(fs::remove_file(&mark));
        stage.discard().expect(case);
        assert!(!mark.exists(), "D8 {case}");
    }
}
