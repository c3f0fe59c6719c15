//! What is measured of every lane, and the tables that tell it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::Plan;
use super::closed::closed_loop;
use super::dialogue::CHUNKS;
use super::figures::{Series, micros, millis, percentile};
use super::lane::{Lane, Way, in_turn};
use super::paced::{OnTheWay, follow};
use super::pauses::{Taken, Witnesses};
use crate::output::say;

/// How many callers there are where throughput counts.
const CALLERS: usize = 32;

/// Figures of whole answers.
#[derive(Debug)]
pub(super) struct Json {
    /// The time of an answer where one caller asks, in microseconds.
    p50: Series,
    p99: Series,
    /// Microseconds of processor time for each request.
    pub(super) cpu: Series,
    per_second: Series,
}

/// Figures of streamed answers.
#[derive(Debug)]
pub(super) struct Streams {
    /// Microseconds of processor time for each chunk.
    pub(super) cpu: Series,
    chunks_per_second: Series,
    /// How long the first chunk of a paced stream is on its way, in milliseconds.
    pub(super) first: Series,
    /// The same for all but one in a hundred.
    pub(super) most: Series,
    /// The same for the slowest of all: the machine's worst moment as much as the lane's.
    pub(super) slowest: Series,
    /// Every chunk of every stream, round by round.
    each: Vec<Vec<f64>>,
    /// The longest pause of the machine itself meanwhile, in milliseconds.
    pub(super) pause: Series,
}

pub(super) async fn json(plan: &Plan, lanes: &[Lane<'_>]) -> Result<BTreeMap<Way, Json>> {
    let mut alone = in_turn(lanes, plan.rounds, async |lane: &Lane<'_>| {
        let mut slice = closed_loop(&lane.json, lane.process, 1, plan.slice / 2).await?;
        let mut at = |share| micros(percentile(&mut slice.times, share));
        Ok((at(0.5), at(0.99)))
    })
    .await?;
    let busy = in_turn(lanes, plan.rounds, async |lane: &Lane<'_>| {
        let slice = closed_loop(&lane.json, lane.process, CALLERS, plan.slice).await?;
        Ok((slice.cpu_micros_each(), slice.per_second()))
    })
    .await?;
    let figures = busy.into_iter().map(|(way, busy)| {
        let alone = alone.remove(&way).unwrap_or_default();
        let (p50, p99) = alone.into_iter().unzip();
        let (cpu, per_second) = busy.into_iter().unzip();
        let figures = Json {
            p50,
            p99,
            cpu,
            per_second,
        };
        (way, figures)
    });
    Ok(figures.collect())
}

pub(super) async fn streams(
    plan: &Plan,
    witnesses: &Witnesses,
    lanes: &[Lane<'_>],
) -> Result<BTreeMap<Way, Streams>> {
    let busy = in_turn(lanes, plan.rounds, async |lane: &Lane<'_>| {
        let slice = closed_loop(&lane.stream, lane.process, CALLERS, plan.slice).await?;
        let chunks = CHUNKS as f64;
        Ok((
            slice.cpu_micros_each() / chunks,
            slice.per_second() * chunks,
        ))
    })
    .await?;
    let mut paced = in_turn(lanes, plan.paced_rounds, async |lane: &Lane<'_>| {
        let follow = async || follow(&lane.paced).await;
        witnesses.undisturbed(plan.tries, follow).await
    })
    .await?;
    let figures = busy.into_iter().map(|(way, busy)| {
        let paced = paced.remove(&way).unwrap_or_default();
        let (cpu, chunks_per_second) = busy.into_iter().unzip();
        let series = |of: fn(&OnTheWay) -> Duration| {
            let rounds = paced.iter().map(|round| of(&round.figure));
            rounds.map(millis).collect()
        };
        let each = |round: &Taken<OnTheWay>| {
            let each = round.figure.each.iter().copied();
            each.map(millis).collect()
        };
        let figures = Streams {
            cpu,
            chunks_per_second,
            first: series(|round| round.first),
            most: series(|round| round.most),
            slowest: series(|round| round.slowest),
            each: paced.iter().map(each).collect(),
            pause: paced.iter().map(|round| millis(round.pause)).collect(),
        };
        (way, figures)
    });
    Ok(figures.collect())
}

/// Medians of rounds; what is compared is compared round by round.
pub(super) fn tell_json(figures: &BTreeMap<Way, Json>) {
    say("");
    say(format_args!(
        "| whole answers | added p50 / p99 µs, 1 caller | CPU µs per request, {CALLERS} callers | × bare hyper | × nginx | requests/s |"
    ));
    say("|---|---|---|---|---|---|");
    for (way, lane) in figures {
        let added = figures.get(&Way::Direct).map(|direct| {
            let added = |ours: &Series, floor| ours.minus(floor).median();
            let (p50, p99) = (added(&lane.p50, &direct.p50), added(&lane.p99, &direct.p99));
            format!("{p50:.0} / {p99:.0}")
        });
        say(format_args!(
            "| {} | {} | {} | {} | {} | {:.0} |",
            way.name(),
            added.unwrap_or_default(),
            processor(*way, &lane.cpu),
            told(ratio(figures, *way, Way::Hyper, |lane| &lane.cpu)),
            told(ratio(figures, *way, Way::Nginx, |lane| &lane.cpu)),
            lane.per_second.median(),
        ));
    }
}

pub(super) fn tell_streams(figures: &BTreeMap<Way, Streams>) {
    say("");
    say(format_args!(
        "| streams of {CHUNKS} chunks | chunks/s, {CALLERS} callers | CPU µs per chunk | × bare hyper | × nginx | first chunk later, ms | 99 of 100 later | most delayed one | slowest of a round | machine paused |"
    ));
    say("|---|---|---|---|---|---|---|---|---|---|");
    for (way, lane) in figures {
        say(format_args!(
            "| {} | {:.0} | {} | {} | {} | {} | {} | {} | {} | {:.2} |",
            way.name(),
            lane.chunks_per_second.median(),
            processor(*way, &lane.cpu),
            told(ratio(figures, *way, Way::Hyper, |lane| &lane.cpu)),
            told(ratio(figures, *way, Way::Nginx, |lane| &lane.cpu)),
            told(later(figures, *way, |lane| &lane.first)),
            told(later(figures, *way, |lane| &lane.most)),
            told(most_delayed(figures, *way)),
            told(later(figures, *way, |lane| &lane.slowest)),
            lane.pause.median(),
        ));
    }
}

/// How many times as much as a floor; `None` where one of them was not measured, or is the upstream.
pub(super) fn ratio<T>(
    figures: &BTreeMap<Way, T>,
    way: Way,
    floor: Way,
    series: impl Fn(&T) -> &Series,
) -> Option<f64> {
    let between = (way != Way::Direct).then_some(way)?;
    let (ours, floor) = (figures.get(&between)?, figures.get(&floor)?);
    Some(series(ours).over(series(floor)).median())
}

/// How much more than direct.
pub(super) fn later<T>(
    figures: &BTreeMap<Way, T>,
    way: Way,
    series: impl Fn(&T) -> &Series,
) -> Option<f64> {
    let (ours, direct) = (figures.get(&way)?, figures.get(&Way::Direct)?);
    Some(series(ours).minus(series(direct)).median())
}

/// How much later than direct the chunk comes that is delayed most: for each chunk of each stream the
/// median of the rounds, and of those the greatest. Whoever holds a certain chunk back is found out;
/// moments in which the machine does something else meet another chunk every time.
pub(super) fn most_delayed(figures: &BTreeMap<Way, Streams>, way: Way) -> Option<f64> {
    let (ours, direct) = (&figures.get(&way)?.each, &figures.get(&Way::Direct)?.each);
    let chunks = ours.iter().chain(direct).map(Vec::len).min()?;
    let of = |rounds: &[Vec<f64>], chunk: usize| -> Series {
        rounds
            .iter()
            .filter_map(|round| round.get(chunk).copied())
            .collect()
    };
    let later = (0..chunks).map(|chunk| of(ours, chunk).minus(&of(direct, chunk)).median());
    later.reduce(f64::max)
}

/// Processor time; in brackets where it is the upstream's own.
fn processor(way: Way, cpu: &Series) -> String {
    let cpu = cpu.median();
    match way {
        Way::Direct => format!("({cpu:.1})"),
        _ => format!("{cpu:.1}"),
    }
}

fn told(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"))
}
