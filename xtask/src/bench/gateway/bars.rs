//! The bars: what the figures have to be, and what they should be.

use std::collections::BTreeMap;

use super::figures::millis;
use super::lane::Way;
use super::measure::{Json, Streams, later, most_delayed, ratio};
use super::pauses::Taken;
use super::{Memory, OpenStreams, Overload};
use crate::output::say;

/// What a figure has to be, and what it should be.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// No more than that.
    AtMost { bar: Option<f64>, goal: Option<f64> },
    /// No less than that.
    AtLeast(f64),
}

/// A figure and what is wanted of it.
#[derive(Debug)]
pub(super) struct Bar {
    what: String,
    /// `None` where it was not measured.
    figure: Option<f64>,
    wanted: Wanted,
    /// For how long the machine itself stood still, where the figure would show that too.
    pause: f64,
}

/// What there is to say of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Reached,
    Missed,
    /// The machine's own pauses are longer than what is asked.
    Untold,
}

impl Bar {
    fn at_most(what: impl Into<String>, figure: Option<f64>, bar: f64, goal: Option<f64>) -> Self {
        let bar = Some(bar);
        Self {
            what: what.into(),
            figure,
            wanted: Wanted::AtMost { bar, goal },
            pause: 0.0,
        }
    }

    fn goal(what: impl Into<String>, figure: Option<f64>, goal: f64) -> Self {
        let goal = Some(goal);
        Self {
            what: what.into(),
            figure,
            wanted: Wanted::AtMost { bar: None, goal },
            pause: 0.0,
        }
    }

    fn at_least(what: impl Into<String>, figure: f64, bar: f64) -> Self {
        Self {
            what: what.into(),
            figure: Some(figure),
            wanted: Wanted::AtLeast(bar),
            pause: 0.0,
        }
    }

    /// For a figure that is as bad as the worst moment of the machine: in the unit of the figure.
    fn while_paused(self, pause: f64) -> Self {
        Self { pause, ..self }
    }

    /// Whether it is as good as it has to be; `None` where nothing is asked, or nothing known.
    fn verdict(&self) -> Option<Verdict> {
        let figure = self.figure?;
        let (is_reached, is_untold) = match self.wanted {
            Wanted::AtMost { bar, .. } => (figure <= bar?, self.pause > bar?),
            Wanted::AtLeast(bar) => (figure >= bar, false),
        };
        Some(match (is_reached, is_untold) {
            (true, _) => Verdict::Reached,
            (false, true) => Verdict::Untold,
            (false, false) => Verdict::Missed,
        })
    }

    fn row(&self) -> String {
        let verdict = match self.verdict() {
            Some(Verdict::Reached) => "pass".to_owned(),
            Some(Verdict::Missed) => "**FAIL**".to_owned(),
            Some(Verdict::Untold) => {
                format!(
                    "cannot be told: the machine paused for {}",
                    number(self.pause)
                )
            }
            None => String::new(),
        };
        let figure = self
            .figure
            .map_or_else(|| "not measured".to_owned(), number);
        let (bar, goal) = match self.wanted {
            Wanted::AtMost { bar, goal } => (bar.map(|bar| format!("≤ {}", number(bar))), goal),
            Wanted::AtLeast(bar) => (Some(format!("≥ {}", number(bar))), None),
        };
        let goal = goal.map(|goal| {
            let is_met = self.figure.is_some_and(|figure| figure <= goal);
            format!("≤ {}{}", number(goal), if is_met { ", met" } else { "" })
        });
        let (bar, goal) = (bar.unwrap_or_default(), goal.unwrap_or_default());
        format!("| {verdict} | {} | {figure} | {bar} | {goal} |", self.what)
    }
}

fn number(figure: f64) -> String {
    if figure.abs() < 100.0 {
        format!("{figure:.2}")
    } else {
        format!("{figure:.0}")
    }
}

pub(super) fn of_json(figures: &BTreeMap<Way, Json>) -> Vec<Bar> {
    let cpu = |way, floor| ratio(figures, way, floor, |lane: &Json| &lane.cpu);
    let what = |way: Way, floor| format!("{}: CPU per request, × {floor}", way.name());
    let way = Way::Passthrough;
    let mut bars = vec![
        Bar::at_most(
            what(way, "bare hyper"),
            cpu(way, Way::Hyper),
            1.5,
            Some(1.2),
        ),
        Bar::goal(what(way, "nginx"), cpu(way, Way::Nginx), 1.5),
    ];
    for way in Way::TRANSLATED {
        bars.extend([
            Bar::at_most(what(way, "bare hyper"), cpu(way, Way::Hyper), 2.5, None),
            Bar::goal(what(way, "nginx"), cpu(way, Way::Nginx), 2.0),
        ]);
    }
    bars
}

pub(super) fn of_streams(figures: &BTreeMap<Way, Streams>) -> Vec<Bar> {
    let cpu = |way, floor| ratio(figures, way, floor, |lane: &Streams| &lane.cpu);
    let first = |way| later(figures, way, |lane: &Streams| &lane.first);
    let most = |way| later(figures, way, |lane: &Streams| &lane.most);
    let slowest = |way| later(figures, way, |lane: &Streams| &lane.slowest);
    let what = |way: Way, floor| format!("{}: CPU per chunk, × {floor}", way.name());
    let delay = |way: Way, which| format!("{}: {which} chunk later than direct, ms", way.name());
    let way = Way::Passthrough;
    let pause = figures.get(&way).map_or(0.0, |lane| lane.pause.median());
    let mut bars = vec![
        Bar::at_most(
            what(way, "bare hyper"),
            cpu(way, Way::Hyper),
            1.3,
            Some(1.1),
        ),
        Bar::at_most(delay(way, "first"), first(way), 1.0, None),
        Bar::at_most(
            delay(way, "99 of 100 chunks: the last"),
            most(way),
            1.0,
            None,
        ),
        Bar::at_most(
            delay(way, "most delayed"),
            most_delayed(figures, way),
            1.0,
            None,
        ),
        Bar::at_most(delay(way, "slowest"), slowest(way), 1.0, None).while_paused(pause),
    ];
    for way in Way::TRANSLATED {
        bars.extend([
            Bar::at_most(what(way, "bare hyper"), cpu(way, Way::Hyper), 2.0, None),
            Bar::goal(what(way, "nginx"), cpu(way, Way::Nginx), 1.5),
            Bar::at_most(delay(way, "first"), first(way), 1.0, None),
        ]);
    }
    bars
}

pub(super) fn of_memory(memory: &Memory) -> Vec<Bar> {
    let (ready, loaded) = (millis(memory.ready), memory.loaded_mb);
    vec![
        Bar::at_most("abp: start until ready, ms", Some(ready), 100.0, None),
        Bar::at_most("abp: memory under load, MB", Some(loaded), 40.0, Some(30.0)),
    ]
}

pub(super) fn of_open_streams(open: &OpenStreams, wanted: usize) -> Vec<Bar> {
    vec![
        Bar::at_least("open streams at once", open.count as f64, wanted as f64),
        Bar::at_most(
            "abp: memory per open stream, KB",
            Some(open.abp_kb),
            40.0,
            Some(20.0),
        ),
    ]
}

pub(super) fn of_overload(taken: &Taken<Overload>) -> Vec<Bar> {
    let (overload, pause) = (&taken.figure, millis(taken.pause));
    let share = overload.goodput / overload.peak;
    let refused = millis(overload.refused_p99);
    vec![
        Bar::at_least("overload: goodput, share of the peak", share, 0.9),
        Bar::at_most("overload: refusals, p99, ms", Some(refused), 10.0, None).while_paused(pause),
    ]
}

/// Prints every bar; how many are not seen to be reached. One that cannot be told is among them.
pub(super) fn tell(bars: &[Bar]) -> usize {
    say("");
    say("| | | figure | bar | goal |");
    say("|---|---|---|---|---|");
    for bar in bars {
        say(bar.row());
    }
    bars.iter()
        .filter(|bar| matches!(bar.verdict(), Some(Verdict::Missed | Verdict::Untold)))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_reached_or_not() {
        let cases = [
            (
                Bar::at_most("x", Some(1.5), 1.5, Some(1.2)),
                "| pass | x | 1.50 | ≤ 1.50 | ≤ 1.20 |",
            ),
            (
                Bar::at_most("x", Some(1.51), 1.5, None),
                "| **FAIL** | x | 1.51 | ≤ 1.50 |  |",
            ),
            (
                Bar::at_most("x", Some(1.4), 1.0, None).while_paused(2.5),
                "| cannot be told: the machine paused for 2.50 | x | 1.40 | ≤ 1.00 |  |",
            ),
            (
                Bar::at_most("x", Some(1.4), 1.0, None).while_paused(1.0),
                "| **FAIL** | x | 1.40 | ≤ 1.00 |  |",
            ),
            (
                Bar::at_most("x", Some(0.9), 1.0, None).while_paused(2.5),
                "| pass | x | 0.90 | ≤ 1.00 |  |",
            ),
            (
                Bar::goal("x", Some(1.0), 1.2),
                "|  | x | 1.00 |  | ≤ 1.20, met |",
            ),
            (
                Bar::goal("x", None, 1.2),
                "|  | x | not measured |  | ≤ 1.20 |",
            ),
            (
                Bar::at_least("x", 0.89, 0.9),
                "| **FAIL** | x | 0.89 | ≥ 0.90 |  |",
            ),
            (
                Bar::at_least("x", 8000.0, 8000.0),
                "| pass | x | 8000 | ≥ 8000 |  |",
            ),
        ];
        for (bar, expected) in &cases {
            assert_eq!(bar.row(), *expected);
        }
        let bars: Vec<Bar> = cases.into_iter().map(|(bar, _)| bar).collect();
        assert_eq!(tell(&bars), 4, "three are missed, one cannot be told");
    }
}
