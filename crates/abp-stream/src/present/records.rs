//! What was changed: one record for each kind of change, with its number.

use abp_core::Adaptation;

use super::plain::Counts;

#[derive(Debug, Default)]
pub(super) struct Records {
    told: Vec<Adaptation>,
    untold: Vec<Adaptation>,
}

impl Records {
    pub(super) fn add(&mut self, change: Adaptation) {
        merge(&mut self.untold, change);
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

fn merge(records: &mut Vec<Adaptation>, change: Adaptation) {
    match records.iter_mut().find(|record| record.is_like(&change)) {
        Some(record) => record.count += change.count,
        None => records.push(change),
    }
}
