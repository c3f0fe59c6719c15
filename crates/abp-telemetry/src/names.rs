//! A few series by name, found without a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most names that are told apart.
pub const MAX_NAMES: usize = 200;
/// The name of everything else.
pub const OTHER: &str = "other";

/// The longest name that is told apart.
const MAX_NAME_BYTES: usize = 128;
/// Places for names; twice as many as names, so that looking one up takes a step or two.
const SLOTS: usize = 2 * MAX_NAMES;

/// Series by name. Names are added and never removed, which is why no lock is needed: a place that
/// is taken stays as it is.
#[derive(Debug)]
pub(crate) struct Table<T> {
    hasher: RandomState,
    slots: Box<[Slot<T>]>,
    taken: AtomicUsize,
    other: Named<T>,
}

/// Where a series is; behind the last slot is that of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(usize);

type Slot<T> = OnceLock<Box<Named<T>>>;

#[derive(Debug)]
struct Named<T> {
    name: Box<str>,
    series: T,
}

impl<T: Default> Named<T> {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            series: T::default(),
        }
    }
}

impl<T: Default> Table<T> {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            slots: std::iter::repeat_with(OnceLock::new).take(SLOTS).collect(),
            taken: AtomicUsize::new(0),
            other: Named::new(OTHER),
        }
    }

    /// The series of a name that is known; that of the others where it is not.
    pub(crate) fn known(&self, name: &str) -> &T {
        self.at(self.place(name))
    }

    /// Where the series of a name is, for as long as the table lives.
    pub(crate) fn place(&self, name: &str) -> Place {
        for place in self.way(name) {
            match self.slot(place).and_then(OnceLock::get) {
                Some(found) if *found.name == *name => return place,
                Some(_) => {}
                None => break,
            }
        }
        Place(SLOTS)
    }

    /// The series at a place.
    pub(crate) fn at(&self, place: Place) -> &T {
        let named = self.slot(place).and_then(OnceLock::get);
        named.map_or(&self.other.series, |named| &named.series)
    }

    /// The series of a name, from now on its own where there is room for it.
    pub(crate) fn named(&self, name: &str) -> &T {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return &self.other.series;
        }
        for slot in self.way(name).filter_map(|place| self.slot(place)) {
            let found = match slot.get() {
                Some(found) => found,
                None if !self.take() => break,
                None => {
                    let mut added = false;
                    let found = slot.get_or_init(|| {
                        added = true;
                        Box::new(Named::new(name))
                    });
                    // Another thread was faster, with this name or another.
                    if !added {
                        self.taken.fetch_sub(1, Ordering::Relaxed);
                    }
                    found
                }
            };
            if *found.name == *name {
                return &found.series;
            }
        }
        &self.other.series
    }

    /// Every series with its name; that of the others comes last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let named = self
            .slots
            .iter()
            .filter_map(OnceLock::get)
            .map(AsRef::as_ref);
        named
            .chain([&self.other])
            .map(|Named { name, series }| (&**name, series))
    }

    /// The places where a name can be, the likeliest first.
    fn way(&self, name: &str) -> impl Iterator<Item = Place> + use<T> {
        let start = self.hasher.hash_one(name) as usize % SLOTS;
        (start..SLOTS).chain(0..start).map(Place)
    }

    fn slot(&self, Place(place): Place) -> Option<&Slot<T>> {
        self.slots.get(place)
    }

    /// Takes room for one more name.
    fn take(&self) -> bool {
        let more = |taken| (taken < MAX_NAMES).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}
