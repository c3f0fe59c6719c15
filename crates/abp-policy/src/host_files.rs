//! Paths that take effect on the developer's machine by being there.
//!
//! A change to source code does something when a person builds or runs it. A change to one of these
//! files does something when a person opens the directory, commits, pushes, or starts a tool in it.
//! Applying such a change is therefore a decision of its own.
//!
//! Every pattern is looked for at any depth, also where its tool only reads the root of a
//! repository: a workspace may hold several repositories, or be a part of one. Names are compared
//! without regard to case and to the characters some file systems ignore, because on such a file
//! system `.Git/hooks` is `.git/hooks`.
//!
//! Instruction files of coding agents (`AGENTS.md`, `CLAUDE.md` and the like) hold no code, and are
//! listed all the same: the next agent that starts in the directory obeys them with the permissions
//! of the developer, so one run could give orders to all later ones.

use std::path::{Component, Path};

/// Successive components of a path, in lower case, and why they matter. The components may stand
/// anywhere in the path; everything beneath the last one counts as well. A `*` at the end of a
/// component stands for any rest, at its beginning for any start.
type HostFile = (&'static [&'static str], &'static str);

const GIT: &str = "git reads it, and settings and hooks in it run programs";
const HOOK: &str = "its hooks run on commit or push";
const AGENT_SETTINGS: &str = "it configures a coding agent, with hooks and permissions";
const AGENT_INSTRUCTIONS: &str = "coding agents obey the instructions in it";
const MCP: &str = "it names MCP servers that an agent starts";
const EDITOR: &str = "an editor runs tasks and settings in it";
const SHELL: &str = "a shell runs it on entering the directory";
const CI: &str = "a CI system runs it";
const BUILD: &str = "a build tool reads programs to run from it";
const DEBUGGER: &str = "a debugger runs it at its start";
const PYTHON: &str = "Python runs it at its start";
const BACKPLANE: &str = "the backplane reads programs to start from it";

const HOST_FILES: &[HostFile] = &[
    (&[".git"], GIT),
    (&[".githooks"], HOOK),
    (&[".husky"], HOOK),
    (&[".huskyrc*"], HOOK),
    (&[".pre-commit-config.yaml"], HOOK),
    (&[".pre-commit-config.yml"], HOOK),
    (&[".pre-commit-hooks.yaml"], HOOK),
    (&["lefthook*.yml"], HOOK),
    (&["lefthook*.yaml"], HOOK),
    (&["lefthook*.toml"], HOOK),
    (&["lefthook*.json"], HOOK),
    (&[".lefthook*"], HOOK),
    (&[".overcommit.yml"], HOOK),
    (&[".lintstagedrc*"], HOOK),
    (&[".simple-git-hooks.*"], HOOK),
    (&[".claude"], AGENT_SETTINGS),
    (&[".claude.json"], AGENT_SETTINGS),
    (&[".codex"], AGENT_SETTINGS),
    (&[".gemini"], AGENT_SETTINGS),
    (&[".cursor"], AGENT_SETTINGS),
    (&[".windsurf"], AGENT_SETTINGS),
    (&[".kimi"], AGENT_SETTINGS),
    (&[".qwen"], AGENT_SETTINGS),
    (&[".copilot"], AGENT_SETTINGS),
    (&[".continue"], AGENT_SETTINGS),
    (&[".roo"], AGENT_SETTINGS),
    (&[".kiro"], AGENT_SETTINGS),
    (&[".junie"], AGENT_SETTINGS),
    (&[".opencode"], AGENT_SETTINGS),
    (&["opencode.json*"], AGENT_SETTINGS),
    (&[".aider.conf.yml"], AGENT_SETTINGS),
    (&[".agents"], AGENT_SETTINGS),
    (&[".mcp.json"], MCP),
    (&["mcp.json"], MCP),
    (&["agents.md"], AGENT_INSTRUCTIONS),
    (&["agents.override.md"], AGENT_INSTRUCTIONS),
    (&["claude.md"], AGENT_INSTRUCTIONS),
    (&["claude.local.md"], AGENT_INSTRUCTIONS),
    (&["gemini.md"], AGENT_INSTRUCTIONS),
    (&["qwen.md"], AGENT_INSTRUCTIONS),
    (&[".cursorrules"], AGENT_INSTRUCTIONS),
    (&[".windsurfrules"], AGENT_INSTRUCTIONS),
    (&[".clinerules"], AGENT_INSTRUCTIONS),
    (&[".goosehints"], AGENT_INSTRUCTIONS),
    (&[".github", "copilot-instructions.md"], AGENT_INSTRUCTIONS),
    (&[".github", "instructions"], AGENT_INSTRUCTIONS),
    (&[".vscode"], EDITOR),
    (&["*.code-workspace"], EDITOR),
    (&[".idea"], EDITOR),
    (&[".fleet"], EDITOR),
    (&[".zed"], EDITOR),
    (&[".devcontainer"], EDITOR),
    (&[".devcontainer.json"], EDITOR),
    (&[".vimrc"], EDITOR),
    (&[".nvimrc"], EDITOR),
    (&[".nvim.lua"], EDITOR),
    (&[".exrc"], EDITOR),
    (&[".dir-locals*.el"], EDITOR),
    (&[".sublime-project"], EDITOR),
    (&[".envrc"], SHELL),
    (&[".mise.toml"], SHELL),
    (&["mise.toml"], SHELL),
    (&[".mise"], SHELL),
    (&[".autoenv*"], SHELL),
    (&[".github", "workflows"], CI),
    (&[".github", "actions"], CI),
    (&[".gitea", "workflows"], CI),
    (&[".forgejo", "workflows"], CI),
    (&[".gitlab-ci.yml"], CI),
    (&[".gitlab-ci.yaml"], CI),
    (&[".gitlab", "ci"], CI),
    (&[".circleci"], CI),
    (&["jenkinsfile*"], CI),
    (&[".travis.yml"], CI),
    (&["azure-pipelines*"], CI),
    (&[".azure-pipelines"], CI),
    (&["bitbucket-pipelines.yml"], CI),
    (&[".drone.*"], CI),
    (&[".woodpecker*"], CI),
    (&["appveyor.yml"], CI),
    (&[".appveyor.yml"], CI),
    (&[".buildkite"], CI),
    (&[".teamcity"], CI),
    (&[".semaphore"], CI),
    (&[".cirrus.*"], CI),
    (&["cloudbuild.yaml"], CI),
    (&["buildspec.yml"], CI),
    (&[".cargo", "config"], BUILD),
    (&[".cargo", "config.toml"], BUILD),
    (&[".npmrc"], BUILD),
    (&[".yarnrc*"], BUILD),
    (&[".bazelrc"], BUILD),
    (&[".gdbinit"], DEBUGGER),
    (&[".lldbinit"], DEBUGGER),
    (&["sitecustomize.py"], PYTHON),
    (&["usercustomize.py"], PYTHON),
    (&[".agent-backplane"], BACKPLANE),
    (&["backplane.toml"], BACKPLANE),
];

/// The reason why a file at this path, relative to a workspace, runs code or steers tools on the
/// machine that has the workspace; none for every other path.
#[must_use]
pub fn host_execution_reason(path: &Path) -> Option<&'static str> {
    let components: Vec<String> = path.components().filter_map(folded).collect();
    let holds = |pattern: &[&str]| {
        components.windows(pattern.len()).any(|window| {
            let mut pairs = window.iter().zip(pattern);
            pairs.all(|(name, pattern)| matches(name, pattern))
        })
    };
    let mut found = HOST_FILES.iter().filter(|(pattern, _)| holds(pattern));
    found.next().map(|(_, reason)| *reason)
}

/// A component as a file system sees it that ignores case and invisible characters.
fn folded(component: Component<'_>) -> Option<String> {
    let Component::Normal(name) = component else {
        return None;
    };
    let name = name.to_string_lossy();
    let visible = name.chars().filter(|character| !is_ignorable(*character));
    let folded: String = visible.flat_map(char::to_lowercase).collect();
    // Windows drops dots and spaces at the end of a name.
    Some(folded.trim_end_matches(['.', ' ']).to_owned())
}

/// The characters HFS+ ignores in names.
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

fn matches(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_take_effect_by_being_there_have_a_reason() {
        let cases: &[(&str, Option<&str>)] = &[
            (".git/hooks/pre-commit", Some(GIT)),
            (".git/config", Some(GIT)),
            ("vendor/lib/.git", Some(GIT)),
            (".GIT/config", Some(GIT)),
            (".gi\u{200c}t/config", Some(GIT)),
            (".git./config", Some(GIT)),
            (".gitignore", None),
            (".gitattributes", None),
            (".husky/pre-push", Some(HOOK)),
            (".pre-commit-config.yaml", Some(HOOK)),
            ("lefthook.yml", Some(HOOK)),
            ("lefthook-local.yml", Some(HOOK)),
            ("lefthook.md", None),
            (".claude/settings.json", Some(AGENT_SETTINGS)),
            ("packages/a/.claude/settings.json", Some(AGENT_SETTINGS)),
            (".codex/config.toml", Some(AGENT_SETTINGS)),
            (".gemini/settings.json", Some(AGENT_SETTINGS)),
            (".cursor/rules/a.mdc", Some(AGENT_SETTINGS)),
            (".mcp.json", Some(MCP)),
            ("sub/.MCP.json", Some(MCP)),
            ("AGENTS.md", Some(AGENT_INSTRUCTIONS)),
            ("crates/a/CLAUDE.md", Some(AGENT_INSTRUCTIONS)),
            ("docs/agents.md.txt", None),
            (".github/copilot-instructions.md", Some(AGENT_INSTRUCTIONS)),
            (".vscode/tasks.json", Some(EDITOR)),
            ("a.code-workspace", Some(EDITOR)),
            (".idea/workspace.xml", Some(EDITOR)),
            (".devcontainer/devcontainer.json", Some(EDITOR)),
            (".envrc", Some(SHELL)),
            (".env", None),
            (".github/workflows/ci.yml", Some(CI)),
            (".github/ISSUE_TEMPLATE.md", None),
            ("workflows/ci.yml", None),
            (".gitlab-ci.yml", Some(CI)),
            (".circleci/config.yml", Some(CI)),
            ("Jenkinsfile", Some(CI)),
            ("build/Jenkinsfile.release", Some(CI)),
            (".cargo/config.toml", Some(BUILD)),
            ("config.toml", None),
            (".yarnrc.yml", Some(BUILD)),
            ("lib/sitecustomize.py", Some(PYTHON)),
            ("models/weights.pth", None),
            ("sub/.agent-backplane/keys", Some(BACKPLANE)),
            ("backplane.toml", Some(BACKPLANE)),
            ("src/main.rs", None),
            ("Makefile", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(
                host_execution_reason(Path::new(path)),
                *expected,
                "{path:?}"
            );
        }
    }

    #[test]
    fn every_pattern_is_in_the_form_that_names_are_folded_to() {
        for (pattern, _) in HOST_FILES {
            for component in *pattern {
                let name = component.replace('*', "x");
                assert_eq!(name, name.to_lowercase(), "{pattern:?}");
            }
            let path = pattern.join("/").replace('*', "x");
            assert!(host_execution_reason(Path::new(&path)).is_some(), "{path}");
        }
    }
}
