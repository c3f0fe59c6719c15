//! Plans, without a kernel.

use proptest::prelude::*;

use super::*;

fn kernel() -> KernelFeatures {
    KernelFeatures {
        namespaces: Ok(()),
        overlay: Ok(()),
        landlock: Ok(7),
        seccomp: Ok(()),
    }
}

fn system() -> SystemLayout {
    SystemLayout {
        directories: vec!["/usr".into(), "/etc/ssl/certs".into()],
        links: vec![("/bin".into(), "usr/bin".into())],
        home: Some("/users/ann".into()),
        toolchains: vec!["/users/ann/.cargo/bin".into()],
        user: "user".to_owned(),
        uid: 1000,
        gid: 1000,
    }
}

fn request() -> SandboxRequest {
    SandboxRequest {
        engine: EngineChoice::Auto,
        workspace: "/stages/7/tree".into(),
        protected: Vec::new(),
        concealed: Vec::new(),
        read_only: Vec::new(),
        overlays: Vec::new(),
        network: Network::Closed,
        scratch_bytes: None,
        scratch_dir: None,
        home: None,
        has_usual_paths: false,
    }
}

fn plan(request: &SandboxRequest) -> SandboxPlan {
    SandboxPlan::new(request, &system(), &kernel()).unwrap()
}

fn paths(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

#[test]
fn a_small_plan_prints_each_path_once_directories_first() {
    let request = SandboxRequest {
        protected: paths(&["/stages/7/tree/a/b/.github"]),
        concealed: paths(&["/stages/7/tree/.env"]),
        read_only: paths(&["/opt/agent", "/usr/lib/node"]),
        network: Network::Proxied(PROXY_PORT),
        ..request()
    };
    let expected = "\
engine   namespaces
link     /bin -> usr/bin
devices  /dev
made     /etc/group
made     /etc/hostname
made     /etc/hosts
made     /etc/nsswitch.conf
made     /etc/passwd
made     /etc/resolv.conf
read     /etc/ssl/certs
read     /opt/agent
own      /proc
write    /stages/7/tree
hidden   /stages/7/tree/.env
write    /stages/7/tree/a
write    /stages/7/tree/a/b
read     /stages/7/tree/a/b/.github
private  /tmp (1024 MiB in memory)
private  /users/ann (1024 MiB in memory)
read     /users/ann/.cargo/bin
read     /usr
private  /var/tmp (1024 MiB in memory)
network  through the egress proxy
";
    assert_eq!(plan(&request).to_string(), expected);
}

#[test]
fn a_plan_of_landlock_alone_prints_what_it_leaves_open_and_holds_nothing_inside() {
    let protected = PathBuf::from("/stages/7/tree/.github");
    let request = SandboxRequest {
        engine: EngineChoice::Landlock,
        protected: vec![protected.clone()],
        scratch_dir: Some("/stages/7/scratch".into()),
        scratch_bytes: Some(5 << 20),
        network: Network::Open,
        ..request()
    };
    let alone = plan(&request);
    assert!(!alone.holds(&protected));
    let text = alone.to_string();
    for line in [
        "engine   landlock",
        "write    /stages/7/scratch",
        "network  as the machine",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    let open = text.lines().filter(|line| line.starts_with("open "));
    assert_eq!(open.count(), alone.gaps().len());
    assert_eq!(
        alone.layers(),
        [
            "landlock abi 7",
            "seccomp",
            "no capabilities",
            "no_new_privs"
        ]
    );
    // With namespaces there are no gaps, and the directory is not needed.
    let engine = EngineChoice::Namespaces;
    let whole = plan(&SandboxRequest { engine, ..request });
    assert!(whole.holds(&protected) && whole.gaps().is_empty());
    assert!(!whole.mounts().contains_key(Path::new("/stages/7/scratch")));
    // The machine's own network is no namespace.
    assert!(!whole.layers().contains(&"network namespace".to_owned()));
}

#[test]
fn a_workspace_that_holds_more_than_work_is_refused() {
    for (workspace, word) in [
        ("/", "root"),
        ("/users/ann", "home"),
        ("/users", "home"),
        ("/usr", "system"),
        ("/usr/src/x", "system"),
        ("/etc", "system"),
        ("/etc/x", "system"),
        ("/proc/1", "system"),
        ("/sys/fs", "system"),
        ("/dev/shm/x", "system"),
        ("/run/user/1000", "system"),
        ("/tmp", "system"),
        ("/var", "system"),
        ("/var/tmp", "system"),
        ("work", "absolute"),
        ("/job/..", "absolute"),
        ("/job/../users/ann", "absolute"),
    ] {
        let workspace = workspace.into();
        let request = SandboxRequest {
            workspace,
            ..request()
        };
        let refused = SandboxPlan::new(&request, &system(), &kernel());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    for workspace in ["/users/ann/project", "/tmp/x", "/var/tmp/x", "/work"] {
        let workspace = workspace.into();
        let request = SandboxRequest {
            workspace,
            ..request()
        };
        assert_eq!(plan(&request).workspace(), request.workspace);
    }
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in ["/stages/7/tree/../secret", "/stages/7/tree/a/../../x", "a"] {
        for field in 0..4 {
            let mut request = request();
            match field {
                0 => request.protected = paths(&[path]),
                1 => request.concealed = paths(&[path]),
                2 => request.read_only = paths(&[path]),
                _ => request.scratch_dir = Some(path.into()),
            }
            let refused = SandboxPlan::new(&request, &system(), &kernel());
            let path = path.into();
            assert_eq!(refused, Err(SandboxError::Unclear { path }));
        }
    }
    for path in ["/stages/7/tree", "/stages/7", "/stages/7/tree2/x", "/etc/x"] {
        let request = SandboxRequest {
            protected: paths(&[path]),
            ..request()
        };
        let refused = SandboxPlan::new(&request, &system(), &kernel());
        let path = path.into();
        assert_eq!(refused, Err(SandboxError::Outside { path }));
    }
}

#[test]
fn a_private_home_hides_what_is_lent_around_it_but_not_in_it() {
    let request = SandboxRequest {
        read_only: paths(&[
            "/users/ann/agent",
            "/users/ann/.cargo/bin/x",
            "/usr/share/y",
            "/stages/7/tree/vendor/lib",
        ]),
        ..request()
    };
    let plan = plan(&request);
    let kind = |path: &str| plan.mounts().get(Path::new(path));
    let lent = |path: &str| Some(MountKind::ReadOnly(path.into()));
    assert_eq!(kind("/users/ann"), Some(&MountKind::Temporary(1 << 30)));
    assert_eq!(kind("/users/ann/agent"), lent("/users/ann/agent").as_ref());
    // These are in what is lent anyway.
    assert_eq!(kind("/users/ann/.cargo/bin/x"), None);
    assert_eq!(kind("/usr/share/y"), None);
    // In the workspace it is held, and so is the directory around it.
    let path = "/stages/7/tree/vendor";
    assert_eq!(kind(path), Some(&MountKind::Writable(path.into())));
    assert!(plan.holds(Path::new("/stages/7/tree/vendor/lib/x")));
    assert!(!plan.holds(Path::new("/stages/7/tree/vendor")));
}

#[test]
fn a_workspace_in_a_lent_or_private_directory_stays_writable() {
    for workspace in ["/users/ann/project", "/opt/agent/work", "/tmp/x"] {
        let request = SandboxRequest {
            workspace: workspace.into(),
            read_only: paths(&["/opt/agent"]),
            ..request()
        };
        let plan = plan(&request);
        let kind = MountKind::Writable(workspace.into());
        assert_eq!(plan.mounts().get(Path::new(workspace)), Some(&kind));
        let order: Vec<_> = plan.mounts().keys().collect();
        let outer = Path::new(workspace).parent().unwrap();
        let place = |path: &Path| order.iter().position(|one| *one == path);
        assert!(place(outer) < place(Path::new(workspace)));
    }
}

#[test]
fn too_many_paths_are_refused() {
    let many = |count: usize| SandboxRequest {
        protected: (0..count)
            .map(|number| format!("/stages/7/tree/f{number}").into())
            .collect(),
        ..request()
    };
    let own = plan(&request()).mounts().len();
    let most = MAX_MOUNTS - own;
    assert_eq!(plan(&many(most)).mounts().len(), MAX_MOUNTS);
    let refused = SandboxPlan::new(&many(most + 1), &system(), &kernel());
    let count = MAX_MOUNTS + 1;
    assert_eq!(refused, Err(SandboxError::TooMany { count }));
}

#[test]
fn d17_an_engine_that_cannot_be_had_is_an_error_with_the_reason() {
    let no = |reason: &str| Err(reason.to_owned());
    let whole = kernel();
    let without_namespaces = KernelFeatures {
        namespaces: no("no namespaces"),
        ..kernel()
    };
    let without_both = KernelFeatures {
        landlock: Err("no landlock".to_owned()),
        ..without_namespaces.clone()
    };
    let old_landlock = KernelFeatures {
        landlock: Ok(3),
        ..without_namespaces.clone()
    };
    let without_seccomp = KernelFeatures {
        seccomp: no("no filters"),
        ..kernel()
    };
    let without_landlock = KernelFeatures {
        landlock: Err("no landlock".to_owned()),
        ..kernel()
    };
    let (auto, namespaces, landlock) = (
        EngineChoice::Auto,
        EngineChoice::Namespaces,
        EngineChoice::Landlock,
    );
    let cases = [
        (&whole, auto, Ok(Engine::Namespaces)),
        (&whole, landlock, Ok(Engine::Landlock)),
        (&without_namespaces, auto, Ok(Engine::Landlock)),
        (&without_namespaces, namespaces, Err("no namespaces")),
        (&without_both, auto, Err("no namespaces")),
        (&without_both, landlock, Err("no landlock")),
        (&old_landlock, auto, Err("no namespaces")),
        (&old_landlock, landlock, Err("version 3")),
        (&without_seccomp, auto, Err("no filters")),
        (&without_seccomp, namespaces, Err("no filters")),
        (&without_seccomp, landlock, Err("no filters")),
        (&without_landlock, auto, Ok(Engine::Namespaces)),
    ];
    for (kernel, engine, expected) in cases {
        let request = SandboxRequest {
            engine,
            ..request()
        };
        match (SandboxPlan::new(&request, &system(), kernel), expected) {
            (Ok(plan), Ok(engine)) => {
                assert_eq!(plan.engine(), engine);
                assert_eq!(plan.landlock(), kernel.landlock.clone().ok());
            }
            (Err(error), Err(reason)) => {
                assert!(error.to_string().contains(reason), "{error}");
            }
            (planned, expected) => panic!("{kernel:?}: {planned:?}, not {expected:?}"),
        }
    }
}

#[test]
fn the_variables_lead_to_the_private_home_and_to_the_proxy() {
    let variables = |request: &SandboxRequest| {
        let plan = plan(request);
        let variables = plan
            .environment()
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
        variables.collect::<Vec<_>>()
    };
    assert_eq!(variables(&request()), ["HOME=/users/ann", "TMPDIR=/tmp"]);
    let scratch_dir = Some("/s".into());
    let engine = EngineChoice::Landlock;
    let alone = SandboxRequest {
        scratch_dir: scratch_dir.clone(),
        engine,
        ..request()
    };
    assert_eq!(variables(&alone), ["HOME=/s", "TMPDIR=/s"]);
    let proxied = SandboxRequest {
        network: Network::Proxied(81),
        scratch_dir,
        ..request()
    };
    let expected = [
        "HOME=/users/ann",
        "TMPDIR=/tmp",
        "HTTP_PROXY=http://127.0.0.1:81",
        "HTTPS_PROXY=http://127.0.0.1:81",
        "http_proxy=http://127.0.0.1:81",
        "https_proxy=http://127.0.0.1:81",
        "NO_PROXY=127.0.0.1,localhost",
        "no_proxy=127.0.0.1,localhost",
        "NODE_USE_ENV_PROXY=1",
    ];
    assert_eq!(variables(&proxied), expected);
}

#[test]
fn a_plan_arrives_as_it_was_sent() {
    let request = SandboxRequest {
        protected: paths(&["/stages/7/tree/a/b"]),
        network: Network::Proxied(PROXY_PORT),
        ..request()
    };
    let plan = plan(&request);
    let sent = serde_json::to_vec(&plan).unwrap();
    assert_eq!(serde_json::from_slice::<SandboxPlan>(&sent).unwrap(), plan);
}

/// A path of few names, so that paths often lie in one another.
fn inner_path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..5).prop_map(|names| {
        let mut path = PathBuf::from("/stages/7/tree");
        path.extend(names);
        path
    })
}

proptest! {
    /// Whatever is protected, concealed and lent, in whatever order: each path is held, and each directory
    /// between it and the workspace is a mount that cannot be renamed.
    #[test]
    fn every_protected_path_is_held_and_its_directories_are_pinned(
        protected in prop::collection::vec(inner_path(), 0..6),
        concealed in prop::collection::vec(inner_path(), 0..4),
        lent in prop::collection::vec(inner_path(), 0..3),
    ) {
        let request = SandboxRequest {
            protected: protected.clone(),
            concealed: concealed.clone(),
            read_only: lent.clone(),
            ..request()
        };
        let plan = plan(&request);
        let workspace = plan.workspace();
        for path in protected.iter().chain(&concealed).chain(&lent) {
            prop_assert!(plan.holds(path), "{} is not held", path.display());
            // The outermost directory that is held; in it nothing can be renamed.
            let inside = path.ancestors().take_while(|ancestor| *ancestor != workspace);
            let is_held = |path: &&Path| {
                !matches!(plan.mounts().get(*path), None | Some(MountKind::Writable(_)))
            };
            let holder = inside.clone().filter(is_held).last();
            let holder = holder.expect("one of them holds it");
            for ancestor in holder.ancestors().take_while(|ancestor| *ancestor != workspace) {
                prop_assert!(plan.mounts().contains_key(ancestor), "{}", ancestor.display());
            }
        }
        for path in &concealed {
            let mut inside = path.ancestors().take_while(|ancestor| *ancestor != workspace);
            let is_concealed = |path| matches!(plan.mounts().get(path), Some(MountKind::Concealed(_)));
            prop_assert!(inside.any(is_concealed), "{} is seen", path.display());
        }
    }

    /// Nothing beneath a protected path may be written, and nothing beneath a concealed one be seen.
    #[test]
    fn nothing_beneath_a_protected_or_concealed_path_is_laid_open(
        protected in prop::collection::vec(inner_path(), 0..6),
        concealed in prop::collection::vec(inner_path(), 0..4),
    ) {
        let request = SandboxRequest {
            protected: protected.clone(),
            concealed: concealed.clone(),
            ..request()
        };
        let plan = plan(&request);
        for (target, kind) in plan.mounts() {
            let beneath = |paths: &[PathBuf]| {
                paths.iter().any(|path| target.starts_with(path) && target != path)
            };
            let writable = matches!(kind, MountKind::Writable(_));
            prop_assert!(!(writable && beneath(&protected)), "{} is writable", target.display());
            let seen = !matches!(kind, MountKind::Concealed(_));
            prop_assert!(!(seen && beneath(&concealed)), "{} is seen", target.display());
        }
    }
}

#[test]
fn a_program_with_a_home_of_its_own_sees_the_same_paths_in_every_run() {
    let wanted = |has_usual_paths, engine| SandboxRequest {
        engine,
        protected: paths(&["/stages/7/tree/a/kept"]),
        home: Some("/homes/7".into()),
        scratch_dir: Some("/stages/7/scratch".into()),
        has_usual_paths,
        ..request()
    };
    let cases = [
        (true, EngineChoice::Namespaces, "/workspace", "/agent"),
        (
            false,
            EngineChoice::Namespaces,
            "/stages/7/tree",
            "/homes/7",
        ),
        // Without a root of its own a path is where it is.
        (true, EngineChoice::Landlock, "/stages/7/tree", "/homes/7"),
    ];
    for (has_usual_paths, engine, workspace, home) in cases {
        let plan = plan(&wanted(has_usual_paths, engine));
        let case = format!("{has_usual_paths} {engine:?}");
        let kind = |path: &str| plan.mounts().get(Path::new(path));
        let writable = |path: &str| MountKind::Writable(path.into());
        assert_eq!(kind(workspace), Some(&writable("/stages/7/tree")), "{case}");
        assert_eq!(kind(home), Some(&writable("/homes/7")), "{case}");
        let kept = format!("{workspace}/a/kept");
        let lent = MountKind::ReadOnly("/stages/7/tree/a/kept".into());
        assert_eq!(kind(&kept), Some(&lent), "{case}");
        let holds = plan.holds(Path::new("/stages/7/tree/a/kept"));
        assert_eq!(holds, engine == EngineChoice::Namespaces, "{case}");
        let below = plan.inside(Path::new("/stages/7/tree/x"));
        assert_eq!(below, Path::new(workspace).join("x"), "{case}");
        assert_eq!(
            plan.inside(Path::new("/elsewhere")),
            Path::new("/elsewhere")
        );
        let variables = plan.environment().iter();
        let homes: Vec<_> = variables.filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes, [&("HOME".into(), home.into())], "{case}");
    }
}
