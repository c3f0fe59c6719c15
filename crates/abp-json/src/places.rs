//! Where the items of a tape's arrays are, for whoever names many of them.

use crate::tape::Tape;
use crate::view::{USUAL_POINTER, View};

/// The place of every item in its array. A [`View::pointer`] counts the items before it each time; of
/// many items in one array that makes a square.
#[derive(Clone, Debug)]
pub struct Places(Vec<u32>);

impl Places {
    /// Counts the items of all arrays.
    #[must_use]
    pub fn of(tape: &Tape<'_>) -> Self {
        let mut places = vec![0; tape.node_count()];
        for array in tape.nodes() {
            for (place, item) in (0..).zip(array.items()) {
                if let Some(known) = places.get_mut(item.id().index()) {
                    *known = place;
                }
            }
        }
        Self(places)
    }

    /// Builds the JSON pointer of a node of this tape, as [`View::pointer`] does.
    #[must_use]
    pub fn pointer(&self, view: View<'_>) -> String {
        let mut pointer = String::with_capacity(USUAL_POINTER);
        view.write_pointer_by(&mut pointer, &|item, _| {
            let place = self.0.get(item.id().index());
            place.map_or(0, |place| *place as usize)
        });
        pointer
    }
}
