//! Policies, models, prices and backends of a configuration.

use abp_control::{
    ControlPlane, OrderDraft, PolicyChoice, Submission, configured_models, first_configured_model,
    usual_policy,
};
use abp_core::{PolicyProfile, WorkOrder, WorkOrderBuilder, WorkspaceMode};
use abp_error::ErrorCode;
use serde_json::{Value, json};

use crate::lab::Lab;

fn profile(value: Value) -> PolicyProfile {
    serde_json::from_value(value).unwrap()
}

fn order() -> WorkOrder {
    WorkOrderBuilder::new("t").build()
}

/// Whatever policy is chosen, the operator's restrictions hold, and protections are dropped only on
/// request.
#[test]
fn policies_add_up() {
    let config = json!({
        "restrictions": {"deny_write": ["fixed/**"]},
        "policies": {"strict": {"deny_read": ["strict/**"], "allowed_tools": ["Read"]}},
    });
    let lab = Lab::new(&[], config);
    let also = || profile(json!({"deny_read": ["mine/**", "**/.env"], "allowed_tools": ["Grep"]}));
    let usual = usual_policy(&order());
    let cases = [
        (PolicyChoice::Default, &[][..], &[][..], true),
        (PolicyChoice::Also(also()), &["mine/**"], &["Grep"], true),
        (
            PolicyChoice::Named("strict".to_owned()),
            &["strict/**"],
            &["Read"],
            true,
        ),
        (
            PolicyChoice::Only(also()),
            &["mine/**", "**/.env"],
            &["Grep"],
            false,
        ),
        (
            PolicyChoice::Unless(also()),
            &["mine/**", "**/.env"],
            &["Grep"],
            false,
        ),
    ];
    for (choice, reads, tools, is_protected) in cases {
        let place = format!("{choice:?}");
        let built = OrderDraft::of(order())
            .policy(choice)
            .build(&lab.plane)
            .unwrap()
            .policy;
        let mut expected = match is_protected {
            true => usual.deny_read.clone(),
            false => Vec::new(),
        };
        expected.extend(reads.iter().map(|&read| read.to_owned()));
        assert_eq!(built.deny_read, expected, "{place}");
        assert_eq!(built.allowed_tools, tools, "{place}");
        assert!(built.deny_write.contains(&"fixed/**".to_owned()), "{place}");
        assert_eq!(
            built.deny_write.contains(&"**/.git/**".to_owned()),
            is_protected,
            "{place}"
        );
    }
    let unknown = PolicyChoice::Named("none".to_owned());
    let refused = OrderDraft::of(order())
        .policy(unknown)
        .build(&lab.plane)
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ValidationFailed);

    // A configured default replaces what would be used for lack of it.
    let config = json!({"default_policy": "mine", "policies": {"mine": {"deny_read": ["own/**"]}}});
    let lab = Lab::new(&[], config);
    assert_eq!(lab.plane.default_policy().unwrap().deny_read, ["own/**"]);
    for choice in [PolicyChoice::Default, PolicyChoice::Unless(also())] {
        let built = OrderDraft::of(order())
            .policy(choice)
            .build(&lab.plane)
            .unwrap();
        assert_eq!(built.policy.deny_read, ["own/**"]);
    }
}

/// In place, changes need approval; MCP tools are for orders that ask for servers.
#[test]
fn the_usual_policy_depends_on_the_order() {
    let mut in_place = order();
    in_place.workspace.mode = WorkspaceMode::PassThrough;
    assert_eq!(
        usual_policy(&in_place).require_approval_for,
        ["Bash", "Write", "Edit"]
    );
    assert!(usual_policy(&order()).require_approval_for.is_empty());
    let mcp = "mcp__*__*".to_owned();
    assert!(usual_policy(&order()).disallowed_tools.contains(&mcp));
    let mut asking = order();
    asking.config.vendor = serde_json::from_value(json!({"abp": {"mcp": true}})).unwrap();
    let asks = matches!(asking.config.mcp_ask(), Ok(Some(_)));
    assert_eq!(usual_policy(&asking).disallowed_tools.contains(&mcp), !asks);
}

fn upstreams() -> Value {
    json!({
        "prices": {"list": {
            "vendor-big": {"input_usd_per_mtok": 5.0, "output_usd_per_mtok": 6.0},
            "*": {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0},
        }},
        "upstreams": {
            "a": {"dialect": "openai", "base_url": "http://127.0.0.1:9/v1", "models": ["m-*", "plain"],
                "aliases": {"big": "vendor-big", "plain": "vendor-plain"}, "prices": "list", "priority": 7},
            "b": {"dialect": "claude", "base_url": "http://127.0.0.1:9", "models": ["n"],
                "api_key_env": "ABP_TEST_NO_SUCH_KEY"},
        },
    })
}

#[test]
fn models_are_listed_with_their_prices() {
    let lab = Lab::new(&[], upstreams());
    let config = lab.plane.config();
    let listed: Vec<_> = configured_models(config)
        .into_iter()
        .map(|model| {
            let rate = model.price.map(|price| price.input_usd_per_mtok);
            (model.name, model.upstream, model.vendor_name, rate)
        })
        .collect();
    let expected = [
        ("m-*", "a", None, Some(1.0)),
        ("big", "a", Some("vendor-big"), Some(5.0)),
        ("plain", "a", Some("vendor-plain"), Some(1.0)),
        ("n", "b", None, None),
        ("mock", "mock", None, Some(1.0)),
        ("mock-*", "mock", None, Some(1.0)),
    ];
    assert_eq!(listed, expected);
    assert_eq!(first_configured_model(config), Some("big"));
    let bare = Lab::new(&[], json!({}));
    let names: Vec<_> = configured_models(bare.plane.config())
        .iter()
        .map(|model| model.name)
        .collect();
    assert_eq!(names, ["mock", "*"]);
    assert_eq!(first_configured_model(bare.plane.config()), Some("mock"));
}

/// The model that is asked for is the one named, under its vendor's name, or the first of the upstream.
#[test]
fn the_model_of_a_run_is_settled_before_it_is_planned() {
    let lab = Lab::new(&[], upstreams());
    let cases = [
        ("upstream:a", None, Some("vendor-plain")),
        ("upstream:a", Some("big"), Some("vendor-big")),
        ("upstream:a", Some("m-1"), Some("m-1")),
        ("upstream:b", None, Some("n")),
        ("upstream:mock", None, Some("mock")),
        ("mock", None, None),
        ("mock", Some("big"), Some("big")),
    ];
    for (backend, asked, expected) in cases {
        let mut order = order();
        order.config.model = asked.map(str::to_owned);
        let submission = Submission {
            backend: Some(backend.to_owned()),
            ..Submission::new(order)
        };
        let plan = lab.plane.plan(submission).unwrap();
        assert_eq!(
            plan.order().config.model.as_deref(),
            expected,
            "{backend} {asked:?}"
        );
    }
    let chosen = Submission {
        backend: Some("auto".to_owned()),
        ..Submission::new(order())
    };
    let plan = lab.plane.plan(chosen).unwrap();
    assert_eq!(
        plan.projection().selected_backend,
        "upstream:a",
        "its priority is higher"
    );
}

/// Backends are checked without opening them.
#[test]
fn backends_say_why_they_cannot_be_opened() {
    let mut config = upstreams();
    config["backends"] = json!({
        "here": {"type": "sidecar", "command": "sh"},
        "gone": {"type": "sidecar", "command": "no-such-program-anywhere"},
        "elsewhere": {"type": "sidecar", "command": "sh", "env": {"PATH": "/nonexistent"}},
        "scripted": {"type": "mock"},
    });
    config["default_backend"] = json!("gone");
    let lab = Lab::new(&[], config);
    let all = lab.plane.check_backends();
    let of = |name: &str| all.iter().find(|one| one.name == name).unwrap();
    for (name, is_fine) in [
        ("here", true),
        ("gone", false),
        ("elsewhere", false),
        ("scripted", true),
        ("mock", true),
        ("upstream:mock", true),
        ("upstream:a", true),
        ("upstream:b", false),
    ] {
        let found = of(name);
        assert_eq!(found.problem.is_none(), is_fine, "{found:?}");
        assert_eq!(found.is_default, name == "gone", "{found:?}");
    }
    assert!(of("here").reached_by.ends_with("/sh"), "{:?}", of("here"));
    assert_eq!(of("upstream:a").reached_by, "http://127.0.0.1:9/v1");
    assert_eq!(of("mock").reached_by, "this process");
    assert!(
        of("upstream:b")
            .problem
            .as_ref()
            .unwrap()
            .contains("ABP_TEST_NO_SUCH_KEY")
    );
    assert_eq!(lab.plane.backend(None).unwrap(), "gone");
    assert_eq!(lab.plane.backend(Some("mock")).unwrap(), "mock");
    let bare = Lab::new(&[], json!({}));
    assert_eq!(bare.plane.backend(None).unwrap(), "mock");
    // Hosts that are not installed are listed, and not chosen.
    for host in ControlPlane::known_backends().filter(|name| name.starts_with("sidecar:")) {
        if bare.plane.registry().get(host).is_none() {
            assert_eq!(
                bare.plane.backend(Some(host)).unwrap_err().code(),
                ErrorCode::BackendUnavailable
            );
            let all = bare.plane.check_backends();
            assert!(
                all.iter()
                    .any(|one| one.name == host && one.problem.is_some()),
                "{host}"
            );
        }
    }
    let known: Vec<_> = ControlPlane::known_backends().collect();
    assert!(known.contains(&"mock") && known.contains(&"upstream:mock"));
}

/// The gateway has every configured upstream with its models, and the embedded one last.
#[tokio::test]
async fn the_gateway_serves_what_is_configured() {
    let mut config = upstreams();
    config["upstreams"]["b"]["api_key_env"] = Value::Null;
    let lab = Lab::new(&[], config);
    let gateway = lab.plane.gateway().await.unwrap();
    let served: Vec<_> = gateway
        .upstreams()
        .into_iter()
        .map(|one| (one.name, one.models))
        .collect();
    let names: Vec<_> = served.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "mock"]);
    assert!(served[0].1.contains(&"m-*".to_owned()), "{served:?}");
    assert_eq!(served[2].1, ["mock", "mock-*"]);
    let bare = Lab::new(&[], json!({}));
    let gateway = bare.plane.gateway().await.unwrap();
    assert_eq!(gateway.upstreams()[0].models, ["mock", "*"]);
    // A key that cannot be had is an error of the gateway, and of the run that needs it.
    let lab = Lab::new(&[], upstreams());
    let refused = lab.plane.gateway().await.unwrap_err();
    assert!(
        refused.message().contains("ABP_TEST_NO_SUCH_KEY"),
        "{refused}"
    );
}

/// Keys are read from files without their line ends; an empty one is none.
#[test]
fn keys_of_upstreams_come_from_files() {
    let lab = Lab::new(&[], json!({}));
    let file = lab.home.path().join("vendor.key");
    let mut config = upstreams();
    config["upstreams"]["b"] = json!({
        "dialect": "claude", "base_url": "http://127.0.0.1:9", "models": ["n"], "api_key_file": file,
    });
    for (content, is_fine) in [
        (Some("secret-key\n"), true),
        (Some(" \n"), false),
        (None, false),
    ] {
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let plane = Lab::new(&[], config.clone()).plane;
        let all = plane.check_backends();
        let found = all.iter().find(|one| one.name == "upstream:b").unwrap();
        assert_eq!(found.problem.is_none(), is_fine, "{content:?}: {found:?}");
    }
}
