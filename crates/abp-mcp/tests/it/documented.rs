//! The tables of `docs/mcp.md`, against the code.

use abp_mcp::{
    CapabilityFlag, ClientCapabilities, ClientFlag, Era, Method, Need, ProtocolVersion, RpcRefusal,
    ServerFlag, StateFault,
};

/// The rows of the table between two marks.
fn rows(mark: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once(&format!("<!-- {mark} -->")).unwrap();
    let (table, _) = table.split_once("<!-- end -->").unwrap();
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        let line = line.trim_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    lines.map(cells).collect()
}

fn versions<F: CapabilityFlag>(flag: F) -> String {
    let of_flag: Vec<_> = ProtocolVersion::ALL
        .into_iter()
        .filter(|version| flag.span().contains(*version))
        .collect();
    let (first, last) = (of_flag[0], of_flag[of_flag.len() - 1]);
    let is_first = first == ProtocolVersion::ALL[0];
    match (is_first, last == ProtocolVersion::LATEST) {
        (true, true) => "all".to_owned(),
        (true, false) => format!("up to {last}"),
        (false, true) => format!("since {first}"),
        (false, false) if first == last => first.to_string(),
        (false, false) => format!("{first} to {last}"),
    }
}

#[test]
fn the_flags_are_those_of_the_code() {
    fn listed<F: CapabilityFlag>(side: &'static str) -> impl Iterator<Item = Vec<String>> {
        let row = move |flag: &F| vec![format!("`{flag}`"), side.to_owned(), versions(*flag)];
        F::ALL.iter().map(row)
    }
    let expected: Vec<_> = listed::<ServerFlag>("server")
        .chain(listed::<ClientFlag>("client"))
        .collect();
    assert_eq!(rows("flags"), expected);
}

#[test]
fn the_refusals_are_those_of_the_code() {
    let text = String::new;
    // In the order of the document.
    let refusals = [
        RpcRefusal::NotJson { why: text() },
        RpcRefusal::TooMuch { why: text() },
        RpcRefusal::NotAMessage { what: "" },
        RpcRefusal::Batch,
        RpcRefusal::NotInitialized { method: text() },
        RpcRefusal::AlreadyInitialized,
        RpcRefusal::IdInUse,
        RpcRefusal::UnknownMethod { method: text() },
        RpcRefusal::NotAdvertised {
            method: Method::ToolsList,
            need: Need::Server(ServerFlag::Tools),
        },
        RpcRefusal::InvalidParams { what: text() },
        RpcRefusal::MissingMeta { key: "" },
        RpcRefusal::RequestState(StateFault::Forged),
        RpcRefusal::UnsupportedVersion {
            requested: text(),
            supported: Vec::new(),
        },
        RpcRefusal::MissingClientCapability {
            required: ClientCapabilities::none(),
        },
        RpcRefusal::HeaderMismatch { what: text() },
        RpcRefusal::UnknownResource { uri: text() },
        RpcRefusal::Internal { what: text() },
    ];
    let documented = rows("refusals");
    assert_eq!(documented.len(), refusals.len());
    for (row, refusal) in documented.iter().zip(&refusals) {
        let said = |era| {
            [
                refusal.code(era).to_string(),
                refusal.http_status(era).to_string(),
            ]
        };
        for (cells, era) in [(&row[1..3], Era::Legacy), (&row[3..5], Era::Modern)] {
            // A dash: it does not come up in that era.
            assert!(
                cells == ["-", "-"] || cells == said(era),
                "{row:?}, {era:?}"
            );
        }
    }
}
