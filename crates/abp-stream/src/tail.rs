//! The newest events of a stream, bounded by bytes.
//!
//! A publisher pushes numbered items; followers read from any number on. What has been pushed out is not
//! lost: the follower is told that it is behind and reads it from the journal, which has everything.
//!
//! ```
//! use abp_stream::{EventTail, TailRead};
//!
//! let mut tail = EventTail::new(2);
//! for seq in 0..3 {
//!     tail.push(seq, 'a', 1);
//! }
//! assert_eq!(tail.read(0, 10), TailRead::Behind);
//! assert_eq!(tail.read(1, 10), TailRead::Items(vec![(1, 'a'), (2, 'a')]));
//! assert_eq!(tail.read(3, 10), TailRead::Nothing);
//! ```

use std::collections::VecDeque;

/// The newest items of a numbered stream.
#[derive(Debug, Clone)]
pub struct EventTail<T> {
    /// The number of the first item that is here; of the next one, where none is.
    first: u64,
    items: VecDeque<(T, usize)>,
    bytes: usize,
    max_bytes: usize,
}

/// What a tail has from a number on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailRead<T> {
    /// These, in order and without a gap.
    Items(Vec<(u64, T)>),
    /// Nothing yet: the number is the next one, or a later one.
    Nothing,
    /// The number was pushed out, or was never here: the journal has it.
    Behind,
}

/// What a follower of a live stream does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowStep<T> {
    /// It gives these on.
    Give(Vec<(u64, T)>),
    /// It reads the journal from its number on.
    ReadJournal,
    /// It waits until the tail grew or its publisher is gone.
    Wait,
    /// It leaves the tail, and asks the journal whether the stream has ended.
    Leave,
}

impl<T: Clone> EventTail<T> {
    /// An empty tail of a stream from its beginning. It holds so many bytes, and one item at least.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self::starting_at(0, max_bytes)
    }

    /// An empty tail of a stream whose next item has this number.
    #[must_use]
    pub fn starting_at(next: u64, max_bytes: usize) -> Self {
        Self {
            first: next,
            items: VecDeque::new(),
            bytes: 0,
            max_bytes,
        }
    }

    /// The number of the next item.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Adds an item. Where its number is not the next one, what is here does not lead to it and is
    /// forgotten: a follower never gets items across a gap.
    pub fn push(&mut self, seq: u64, item: T, size: usize) {
        if seq != self.next_seq() {
            self.items.clear();
            self.bytes = 0;
            self.first = seq;
        }
        self.items.push_back((item, size));
        self.bytes = self.bytes.saturating_add(size);
        while self.bytes > self.max_bytes && self.items.len() > 1 {
            if let Some((_, size)) = self.items.pop_front() {
                self.bytes = self.bytes.saturating_sub(size);
                self.first += 1;
            }
        }
    }

    /// What a follower does whose next item has the number `from`. `has_ended` says that the publisher was
    /// gone before this was asked, `journal_is_read` that the journal was just read and had nothing more.
    #[must_use]
    pub fn follow(
        &self,
        from: u64,
        limit: usize,
        has_ended: bool,
        journal_is_read: bool,
    ) -> FollowStep<T> {
        match self.read(from, limit) {
            TailRead::Items(items) => FollowStep::Give(items),
            TailRead::Behind if !journal_is_read => FollowStep::ReadJournal,
            // Nothing more comes, or nothing that would fill the gap.
            TailRead::Behind | TailRead::Nothing if has_ended => FollowStep::Leave,
            TailRead::Behind | TailRead::Nothing => FollowStep::Wait,
        }
    }

    /// The items from a number on, at most so many.
    #[must_use]
    pub fn read(&self, from: u64, limit: usize) -> TailRead<T> {
        if from < self.first {
            return TailRead::Behind;
        }
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        if skipped >= self.items.len() {
            return TailRead::Nothing;
        }
        let items = self.items.iter().skip(skipped).take(limit);
        TailRead::Items((from..).zip(items.map(|(item, _)| item.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty tail of a stream that began elsewhere sends its followers to the journal once it knows
    /// where it is.
    #[test]
    fn a_gap_sends_followers_to_the_journal() {
        let mut tail = EventTail::new(100);
        tail.push(0, 'a', 1);
        tail.push(5, 'f', 1);
        assert_eq!(tail.read(0, 9), TailRead::Behind);
        assert_eq!(tail.read(4, 9), TailRead::Behind);
        assert_eq!(tail.read(5, 9), TailRead::Items(vec![(5, 'f')]));
        assert_eq!(tail.next_seq(), 6);
    }

    #[test]
    fn an_item_larger_than_the_tail_is_its_only_one() {
        let mut tail = EventTail::new(10);
        tail.push(0, 'a', 4);
        tail.push(1, 'b', 40);
        assert_eq!(tail.read(0, 9), TailRead::Behind);
        assert_eq!(tail.read(1, 9), TailRead::Items(vec![(1, 'b')]));
        tail.push(2, 'c', 10);
        assert_eq!(tail.read(2, 1), TailRead::Items(vec![(2, 'c')]));
        assert_eq!(tail.read(1, 9), TailRead::Behind);
    }
}
