//! The ways that a request can take, and how they are measured in turn.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use abp_dialect::Dialect;
use anyhow::{Context as _, Result, ensure};

use super::client::Target;
use super::dialogue::{ANSWER, CHUNKS, PIECE, Pace, Pair};
use super::peers::{Abp, Nginx, Plain};
use super::process::Process;

/// A way that a request can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Direct,
    Nginx,
    Hyper,
    Passthrough,
    ClaudeToOpenAi,
    OpenAiToClaude,
}

impl Way {
    pub(super) const TRANSLATED: [Self; 2] = [Self::ClaudeToOpenAi, Self::OpenAiToClaude];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct to the upstream",
            Self::Nginx => "nginx",
            Self::Hyper => "bare hyper",
            Self::Passthrough => "abp, openai → openai",
            Self::ClaudeToOpenAi => "abp, claude → openai",
            Self::OpenAiToClaude => "abp, openai → claude",
        }
    }

    fn pair(self) -> Pair {
        let (caller, upstream) = match self {
            Self::ClaudeToOpenAi => (Dialect::Claude, Dialect::OpenAi),
            Self::OpenAiToClaude => (Dialect::OpenAi, Dialect::Claude),
            Self::Direct | Self::Nginx | Self::Hyper | Self::Passthrough => {
                (Dialect::OpenAi, Dialect::OpenAi)
            }
        };
        Pair { caller, upstream }
    }

    pub(super) fn target(self, address: SocketAddr, key: &str, pace: Pace) -> Target {
        Target {
            address,
            request: self.pair().request(address, key, pace),
        }
    }
}

/// A way with its requests and the process whose time it costs.
#[derive(Debug)]
pub(super) struct Lane<'p> {
    pub(super) way: Way,
    pub(super) process: &'p Process,
    pub(super) json: Target,
    pub(super) stream: Target,
    pub(super) paced: Target,
}

/// All lanes of a run.
pub(super) fn lanes<'p>(
    upstream: &'p Plain,
    nginx: Option<&'p Nginx>,
    hyper: &'p Plain,
    abp: &'p Abp,
) -> Vec<Lane<'p>> {
    let plain = |way, server: &'p Plain| lane(way, &server.process, [server.address; 2], &abp.key);
    let nginx = nginx.map(|nginx| {
        let addresses = [nginx.address, nginx.streaming];
        lane(Way::Nginx, &nginx.process, addresses, &abp.key)
    });
    let own = |way| lane(way, &abp.process, [abp.address; 2], &abp.key);
    [plain(Way::Direct, upstream)]
        .into_iter()
        .chain(nginx)
        .chain([
            plain(Way::Hyper, hyper),
            own(Way::Passthrough),
            own(Way::ClaudeToOpenAi),
            own(Way::OpenAiToClaude),
        ])
        .collect()
}

fn lane<'p>(
    way: Way,
    process: &'p Process,
    [json, stream]: [SocketAddr; 2],
    key: &str,
) -> Lane<'p> {
    Lane {
        way,
        process,
        json: way.target(json, key, Pace::Whole),
        stream: way.target(stream, key, Pace::Unpaced),
        paced: way.target(stream, key, Pace::Paced),
    }
}

impl Lane<'_> {
    /// Fails where the lane does not answer what it should: then its figures would mean nothing.
    pub(super) async fn check(&self) -> Result<()> {
        let whole = body(&self.json).await?;
        ensure!(whole.contains(ANSWER), "the answer is another: {whole}");
        let stream = body(&self.stream).await?;
        let pieces = stream.matches(PIECE).count();
        ensure!(pieces == CHUNKS, "{pieces} pieces came: {stream}");
        Ok(())
    }
}

async fn body(target: &Target) -> Result<String> {
    let mut connection = target.connect().await?;
    let mut body = Vec::new();
    let status = connection
        .ask(&target.request, |piece| body.extend_from_slice(piece))
        .await?;
    let body = String::from_utf8(body)?;
    ensure!(status == 200, "it answers {status}: {body}");
    Ok(body)
}

/// Measures every lane in turn, round after round, so that what else the machine does meets all
/// alike. The first round warms up and does not count.
pub(super) async fn in_turn<T>(
    lanes: &[Lane<'_>],
    rounds: usize,
    slice: impl AsyncFn(&Lane<'_>) -> Result<T>,
) -> Result<BTreeMap<Way, Vec<T>>> {
    let mut all: BTreeMap<Way, Vec<T>> = BTreeMap::new();
    for round in 0..=rounds {
        for lane in lanes {
            let measured = slice(lane).await.context(lane.way.name())?;
            if round > 0 {
                all.entry(lane.way).or_default().push(measured);
            }
        }
    }
    Ok(all)
}
