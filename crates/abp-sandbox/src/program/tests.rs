//! Where programs are found, and where never.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// A workspace and two other directories with programs in them; all are removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let root = std::env::temp_dir().join(format!("sidecar-kit-program-{name}-{id}"));
        let tree = Self(root);
        for program in [
            "first/other",
            "second/tool",
            "ws/tool",
            "ws/bin/tool",
            "ws/only",
        ] {
            tree.plant(program);
        }
        tree
    }

    fn plant(&self, program: &str) {
        let path = self.0.join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn search(&self, variable: &str) -> SearchPath {
        let variable = variable.replace('@', self.0.to_str().unwrap());
        SearchPath::new(OsStr::new(&variable), &self.0.join("ws"))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_name_is_never_found_where_an_agent_writes() {
    let tree = Tree::new("names");
    symlink(tree.at("ws/bin"), tree.at("linked")).unwrap();
    fs::create_dir(tree.at("links")).unwrap();
    symlink(tree.at("ws/tool"), tree.at("links/tool")).unwrap();
    // A file that cannot be executed is no program.
    fs::write(tree.at("first/tool"), "").unwrap();
    let found = tree.at("second/tool");
    for (variable, cleaned) in [
        ("@/second", Some("@/second")),
        (":@/second", Some("@/second")),
        ("@/second:", Some("@/second")),
        (".:./bin:bin:@/second", Some("@/second")),
        ("@/ws:@/ws/bin:@/first:@/second", Some("@/first:@/second")),
        ("@/first/../ws:@/second", Some("@/second")),
        ("@/linked:@/second", Some("@/second")),
        (
            "@/links:@/nowhere:@/second",
            Some("@/links:@/nowhere:@/second"),
        ),
    ] {
        let search = tree.search(variable);
        assert_eq!(search.find("tool".as_ref()).unwrap(), found, "{variable}");
        let cleaned = cleaned.map(|path| path.replace('@', tree.0.to_str().unwrap()).into());
        assert_eq!(search.to_variable(), cleaned, "{variable}");
    }
    for variable in ["", ".", "::", "@/ws", "@/linked", "@/links"] {
        let search = tree.search(variable);
        let error = search.find("tool".as_ref()).unwrap_err();
        assert!(matches!(error, ProgramError::NotFound { .. }), "{variable}");
    }
    assert_eq!(tree.search(".:@/ws").to_variable(), None);
}

#[test]
fn a_path_is_taken_only_when_it_is_absolute() {
    let tree = Tree::new("paths");
    let search = tree.search("@/ws:@/second");
    for program in ["./tool", "bin/tool", "../ws/tool", "tool/", "..", ".", ""] {
        let error = search.find(program.as_ref()).unwrap_err();
        assert!(matches!(error, ProgramError::Relative { .. }), "{program}");
    }
    let path = tree.at("ws/tool");
    assert_eq!(search.find(path.as_ref()).unwrap(), path);
    for missing in ["ws/missing", "second"] {
        let error = search.find(tree.at(missing).as_ref()).unwrap_err();
        assert!(matches!(error, ProgramError::Unusable { .. }), "{missing}");
    }
}

#[test]
fn the_error_says_what_was_looked_for_where() {
    let tree = Tree::new("words");
    let error = tree.search(".:@/ws:@/first:@/second").find("only".as_ref());
    let root = tree.0.display();
    assert_eq!(
        error.unwrap_err().to_string(),
        format!(
            "\"only\" was not found on PATH in {root}/first, {root}/second; passed over: \".\" (not absolute), {root}/ws (inside the workspace)"
        )
    );
}
