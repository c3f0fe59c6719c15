//! What was changed: one record for each kind of change, with its number.

use abp_core::Adaptation;

use super::plain::Counts;

/// How many kinds of changes are told apart, and how long a name in a record may be. The names come
/// from the run, which could otherwise make a record of any size.
const MAX_KINDS: usize = 256;
const MAX_NAME: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Records {
    told: Vec<Adaptation>,
    untold: Vec<Adaptation>,
}

impl Records {
    pub(super) fn add(&mut self, mut change: Adaptation) {
        shorten(&mut change.event);
        shorten(&mut change.from);
        shorten(&mut change.reason);
        let mut known = self.untold.iter().chain(&self.told);
        if !known.any(|record| record.is_like(&change)) && self.is_full() {
            change = Adaptation {
                count: change.count,
                ..Adaptation::new(
                    "other",
                    "other",
                    "other",
                    "there are too many kinds to name",
                )
            };
        }
        merge(&mut self.untold, change);
    }

    fn is_full(&self) -> bool {
        self.untold.len() + self.told.len() >= MAX_KINDS
    }

    /// Adds what was changed in the text of an event.
    pub(super) fn add_text(&mut self, event: &str, counts: &Counts) {
        for (construct, count) in counts.made() {
            let [from, to, reason] = construct.describe();
            self.add(Adaptation {
                count,
                ..Adaptation::new(event, from, to, reason)
            });
        }
    }

    /// What was changed since the last time.
    pub(super) fn tell(&mut self) -> Vec<Adaptation> {
        let news = std::mem::take(&mut self.untold);
        for change in &news {
            merge(&mut self.told, change.clone());
        }
        news
    }

    /// Everything that was told.
    pub(super) fn told(&self) -> &[Adaptation] {
        &self.told
    }
}

fn shorten(name: &mut String) {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
        name.push('…');
    }
}

fn merge(records: &mut Vec<Adaptation>, change: Adaptation) {
    match records.iter_mut().find(|record| record.is_like(&change)) {
        Some(record) => record.count += change.count,
        None => records.push(change),
    }
}
