//! The subtraction: from marks and remarks to entries.

use std::borrow::Cow;
use std::ops::Range;

use abp_core::ir::Origin;
use abp_dialect::{Dialect, Fate, How, Made, Mark, Note, Reader, Seen};
use abp_json::{Kind, Limits, NodeId, Places, Tape, View};

use super::known::Written;
use super::{Action, EMPTY_VALUE, EXPLICIT_NULL, LedgerEntry, STRUCTURE, UNEXPLAINED};

/// Accounts for every leaf of a source and every leaf of its target.
pub(super) fn account(written: Written<'_>) -> Vec<LedgerEntry> {
    let mut books = Books::new(written.reader, written.output, written.target);
    books.enter_marks(written.marks);
    for notes in written.notes {
        books.enter_notes(notes);
    }
    books.settle();
    books.walk(written.reader.tape().root(), None, None);
    books.synthesised(written.marks);
    books.entries
}

/// What a codec wrote, which is JSON by construction; were it not, nothing would count as carried.
pub(super) fn parsed(output: &str) -> Option<Tape<'_>> {
    let limits = Limits {
        max_bytes: usize::MAX,
        max_depth: 512,
        max_nodes: usize::MAX,
    };
    Tape::parse_str(output, &limits).ok()
}

/// What is known of each node of the source.
#[derive(Debug, Clone, Copy, Default)]
struct Page<'n> {
    /// The gravest remark.
    fate: Option<&'n Fate>,
    /// Whether it, or anything below, has marks or remarks.
    touched: bool,
    /// Whether anything of it is in the target.
    arrived: bool,
    /// What was done with all of the leaves below, where it is the same.
    seen: Option<Seen>,
}

struct Books<'n, 't> {
    reader: &'t Reader<'t>,
    written: Option<&'t Tape<'t>>,
    source_places: Places,
    target_places: Option<Places>,
    target: Dialect,
    pages: Vec<Page<'n>>,
    /// In the order of the nodes.
    marks: Vec<MadeOf<'n>>,
    entries: Vec<LedgerEntry>,
}

/// A place in the target that is made of a node of the source.
#[derive(Debug, Clone, Copy)]
struct MadeOf<'n> {
    node: NodeId,
    at: usize,
    how: &'n How,
}

/// A mark that holds for everything below its node.
#[derive(Debug, Clone, Copy)]
struct Marked<'n, 't> {
    /// What is written for the mark's node.
    whole: Option<View<'t>>,
    /// The part of it that is written for the node that is looked at.
    here: Option<View<'t>>,
    how: &'n How,
}

impl<'n, 't> Books<'n, 't> {
    fn new(reader: &'t Reader<'t>, written: Option<&'t Tape<'t>>, target: Dialect) -> Self {
        Self {
            source_places: Places::of(reader.tape()),
            target_places: written.map(Places::of),
            reader,
            written,
            target,
            pages: vec![Page::default(); reader.tape().node_count()],
            marks: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn page(&mut self, node: NodeId) -> Option<&mut Page<'n>> {
        self.pages.get_mut(node.index())
    }

    fn enter_marks(&mut self, marks: &'n [Mark]) {
        self.marks.reserve(marks.len());
        for mark in marks {
            if let Made::From { node, how } = &mark.made
                && let Some(page) = self.page(*node)
            {
                (page.touched, page.arrived) = (true, true);
                let (node, at) = (*node, mark.at);
                self.marks.push(MadeOf { node, at, how });
            }
        }
        self.marks.sort_by_key(|mark| mark.node);
    }

    fn enter_notes(&mut self, notes: &'n [Note]) {
        for note in notes {
            if let Origin::Node(node) = note.origin
                && let Some(page) = self.page(node)
                && page
                    .fate
                    .is_none_or(|known| gravity(known) < gravity(&note.fate))
            {
                page.fate = Some(&note.fate);
            }
        }
    }

    /// Sums up for every container what is below it. Children come after their parents.
    fn settle(&mut self) {
        let nodes: Vec<_> = self.reader.tape().nodes().collect();
        for view in nodes.into_iter().rev().filter(|view| !view.is_key()) {
            let seen = self.reader.seen(view.id());
            let Some(page) = self.page(view.id()) else {
                continue;
            };
            let carried = matches!(page.fate, Some(Fate::Carried(_)));
            page.touched |= page.fate.is_some();
            page.arrived |= carried;
            if view.is_empty() {
                page.seen = Some(seen);
            }
            let (touched, arrived, seen) = (page.touched, page.arrived, page.seen);
            let Some(parent) = view.parent() else {
                continue;
            };
            let first = parent.subtree().end == view.subtree().end;
            if let Some(above) = self.page(parent.id()) {
                above.touched |= touched;
                above.arrived |= arrived;
                above.seen = if first {
                    seen
                } else {
                    above.seen.filter(|known| Some(*known) == seen)
                };
            }
        }
    }

    fn walk(&mut self, view: View<'t>, above: Option<Marked<'n, 't>>, remark: Option<&'n Fate>) {
        let Some(page) = self.page(view.id()) else {
            return;
        };
        let (fate, seen) = (page.fate, page.seen);
        let marks = self.marks_of(view.id());
        let remark = fate.or(remark);
        let leaf = view.is_empty();
        let touched = |child: View<'t>| {
            let page = self.pages.get(child.id().index());
            page.is_some_and(|page| page.touched)
        };
        let deeper = !leaf && children(view).any(touched);
        if !deeper && !marks.is_empty() {
            for index in marks {
                if let Some(marked) = self.marked(index) {
                    self.carried(view, marked, remark);
                }
            }
            return;
        }
        if marks.is_empty() && (leaf || (!deeper && uniform(seen, above, remark))) {
            match above {
                Some(marked) => self.carried(view, marked, remark),
                None => self.missing(view, seen, remark),
            }
            return;
        }
        let marked = self.marked(marks.start).filter(|_| !marks.is_empty());
        let marked = marked.or(above);
        for (child, here) in paired(view, marked.and_then(|marked| marked.here)) {
            let above = marked.map(|marked| Marked { here, ..marked });
            self.walk(child, above, remark);
        }
    }

    /// What a mark says of its own node.
    fn marked(&self, index: usize) -> Option<Marked<'n, 't>> {
        let mark = self.marks.get(index)?;
        let whole = self.written.and_then(|tape| tape.starting_at(mark.at));
        Some(Marked {
            whole,
            here: whole,
            how: mark.how,
        })
    }

    /// The pointer of a part of the target.
    fn target_pointer(&self, view: Option<View<'_>>) -> Option<String> {
        Some(self.target_places.as_ref()?.pointer(view?))
    }

    /// Where the marks of a node are.
    fn marks_of(&self, node: NodeId) -> Range<usize> {
        let start = self.marks.partition_point(|mark| mark.node < node);
        let of_node = self.marks.get(start..).unwrap_or_default();
        start..start + of_node.iter().take_while(|mark| mark.node == node).count()
    }

    /// An entry for what a mark says of the node itself, or of one below.
    fn carried(&mut self, view: View<'t>, marked: Marked<'n, 't>, remark: Option<&'n Fate>) {
        let Marked {
            whole,
            here: found,
            how,
        } = marked;
        let source = self.source_places.pointer(view);
        let target = self.target_pointer(found.or(whole));
        let how = match remark {
            Some(Fate::Carried(remarked)) if weight(remarked) > weight(how) => remarked,
            _ => how,
        };
        let equal = || found.is_some_and(|found| same_value(view, found));
        let (action, label, reason) = match how {
            How::AsIs if !equal() => (
                Action::Degraded,
                Some(Cow::Borrowed(UNEXPLAINED)),
                Some(Cow::Borrowed("the value changed and nothing says why")),
            ),
            How::AsIs if target.as_deref() == Some(source.as_str()) => (Action::Kept, None, None),
            How::AsIs => (Action::Renamed, None, None),
            How::Converted(label) => (Action::Renamed, Some(Cow::Borrowed(*label)), None),
            How::Emulated { label, reason } => (
                Action::Emulated,
                Some(Cow::Borrowed(*label)),
                Some(reason.clone()),
            ),
            How::Degraded { label, reason } => (
                Action::Degraded,
                Some(Cow::Borrowed(*label)),
                Some(reason.clone()),
            ),
        };
        let mut entry = LedgerEntry {
            action,
            source: Some(source),
            target,
            label,
            reason,
            unsupported: false,
            count: None,
        };
        // Written, and still remarked on as missing: part of it is.
        if let Some(Fate::Dropped { label, reason } | Fate::Unsupported { label, reason }) = remark
        {
            entry.action = Action::Degraded;
            entry.label = Some(label.clone());
            entry.reason = Some(reason.clone());
            entry.unsupported = matches!(remark, Some(Fate::Unsupported { .. }));
        }
        self.entries.push(entry);
    }

    /// An entry for a part of the source that no value of the target is made of.
    fn missing(&mut self, view: View<'t>, seen: Option<Seen>, remark: Option<&'n Fate>) {
        let mut entry = LedgerEntry {
            action: Action::Dropped,
            source: Some(self.source_places.pointer(view)),
            target: None,
            label: None,
            reason: None,
            unsupported: false,
            count: None,
        };
        match (remark, seen.unwrap_or(Seen::Taken)) {
            (Some(Fate::Dropped { label, reason }), _) => {
                entry.label = Some(label.clone());
                entry.reason = Some(reason.clone());
            }
            (Some(Fate::Unsupported { label, reason }), _) => {
                entry.label = Some(label.clone());
                entry.reason = Some(reason.clone());
                entry.unsupported = true;
            }
            (Some(Fate::Carried(how)), Seen::Taken | Seen::Vendor | Seen::Structure) => {
                let (action, label, reason) = remarked(how);
                entry.action = action;
                entry.label = label;
                entry.reason = reason;
            }
            (_, Seen::Structure) => {
                entry.label = Some(Cow::Borrowed(STRUCTURE));
                if self.surroundings_arrived(view) {
                    entry.action = Action::Renamed;
                }
            }
            (_, Seen::Repeats) => {
                entry.action = Action::Renamed;
                entry.label = Some(Cow::Borrowed("repeats"));
                entry.reason = Some(Cow::Borrowed("other parts of the source say the same"));
            }
            (_, Seen::Vendor) => {
                entry.label = Some(Cow::Owned(field_name(view)));
                entry.reason = Some(Cow::Owned(format!(
                    "{} has no counterpart",
                    self.target.label()
                )));
            }
            (_, Seen::Unread) => (entry.label, entry.reason) = unread(view),
            (_, Seen::Taken) => {
                entry.label = Some(Cow::Borrowed(UNEXPLAINED));
                entry.reason = Some(Cow::Borrowed("it was read and not written"));
            }
        }
        self.entries.push(entry);
    }

    /// Whether anything of the nearest object around a tag is in the target.
    fn surroundings_arrived(&self, view: View<'t>) -> bool {
        let mut around = view.parent();
        while let Some(container) = around {
            let page = self.pages.get(container.id().index());
            if page.is_some_and(|page| page.arrived) {
                return true;
            }
            // An object of tags only stands or falls with what holds it.
            if page.and_then(|page| page.seen) != Some(Seen::Structure) {
                return false;
            }
            around = container.parent();
        }
        false
    }

    /// Entries for what only the target has.
    fn synthesised(&mut self, marks: &[Mark]) {
        for mark in marks {
            let (label, reason) = match &mark.made {
                Made::From { .. } => continue,
                Made::Structure => (Cow::Borrowed(STRUCTURE), None),
                Made::Synthesised { label, reason } => (label.clone(), Some(reason.clone())),
            };
            let place = self.written.and_then(|tape| tape.starting_at(mark.at));
            self.entries.push(LedgerEntry {
                action: Action::Synthesised,
                source: None,
                target: self.target_pointer(place),
                label: Some(label),
                reason,
                unsupported: false,
                count: None,
            });
        }
    }
}

/// The values in a container.
fn children(view: View<'_>) -> impl Iterator<Item = View<'_>> {
    view.entries().map(|(_, value)| value).chain(view.items())
}

/// Whether one entry speaks for a container and everything below it.
fn uniform(seen: Option<Seen>, above: Option<Marked<'_, '_>>, remark: Option<&Fate>) -> bool {
    above.is_none()
        && (matches!(
            remark,
            Some(Fate::Dropped { .. } | Fate::Unsupported { .. })
        ) || matches!(seen, Some(Seen::Unread | Seen::Vendor | Seen::Repeats)))
}

fn remarked(how: &How) -> (Action, Option<Cow<'static, str>>, Option<Cow<'static, str>>) {
    match how {
        How::AsIs => (Action::Renamed, None, None),
        How::Converted(label) => (Action::Renamed, Some(Cow::Borrowed(*label)), None),
        How::Emulated { label, reason } => (
            Action::Emulated,
            Some(Cow::Borrowed(*label)),
            Some(reason.clone()),
        ),
        How::Degraded { label, reason } => (
            Action::Degraded,
            Some(Cow::Borrowed(*label)),
            Some(reason.clone()),
        ),
    }
}

fn unread(view: View<'_>) -> (Option<Cow<'static, str>>, Option<Cow<'static, str>>) {
    let (label, reason) = if view.is_null() {
        (EXPLICIT_NULL, "null says that nothing is set")
    } else if matches!(view.kind(), Kind::Array | Kind::Object) && view.is_empty() {
        (EMPTY_VALUE, "an empty list or object says nothing")
    } else {
        ("unknown_field", "ABP does not know this field")
    };
    (Some(Cow::Borrowed(label)), Some(Cow::Borrowed(reason)))
}

/// The name of the vendor's field a node is in: the nearest key.
fn field_name(view: View<'_>) -> String {
    let mut place = Some(view);
    while let Some(view) = place {
        if let Some(name) = view.key().and_then(View::as_str) {
            return name.into_owned();
        }
        place = view.parent();
    }
    "vendor_field".to_owned()
}

fn gravity(fate: &Fate) -> u8 {
    match fate {
        Fate::Carried(how) => weight(how),
        Fate::Dropped { .. } => 4,
        Fate::Unsupported { .. } => 5,
    }
}

fn weight(how: &How) -> u8 {
    match how {
        How::AsIs => 0,
        How::Converted(_) => 1,
        How::Emulated { .. } => 2,
        How::Degraded { .. } => 3,
    }
}

/// The values in a container, each with its counterpart in another one: the member of the same name, the
/// item at the same place. Members are looked for where they stand in the first place.
fn paired<'t>(
    view: View<'t>,
    other: Option<View<'t>>,
) -> impl Iterator<Item = (View<'t>, Option<View<'t>>)> {
    let mut members = other.map(View::entries);
    let mut items = other.map(View::items);
    let entries = view.entries().map(move |(key, value)| {
        let name = key.as_str_lossy();
        let next = members.as_mut().and_then(Iterator::next);
        let found = match next {
            Some((key, value)) if key.as_str_lossy() == name => Some(value),
            _ => other.zip(name).and_then(|(other, name)| other.get(&name)),
        };
        (value, found)
    });
    let all_items = view.items().map(move |item| {
        let found = items.as_mut().and_then(Iterator::next);
        (item, found)
    });
    entries.chain(all_items)
}

/// Whether two values are the same: numbers by their spelling, strings by their text, members in any
/// order.
pub(crate) fn same_value(left: View<'_>, right: View<'_>) -> bool {
    if left.kind() != right.kind() {
        return false;
    }
    if left.raw() == right.raw() {
        return true;
    }
    match left.kind() {
        Kind::Null => true,
        Kind::Bool | Kind::Number => false,
        Kind::String => left.as_str_lossy() == right.as_str_lossy(),
        Kind::Array | Kind::Object => {
            left.len() == right.len()
                && paired(left, Some(right))
                    .all(|(left, right)| right.is_some_and(|right| same_value(left, right)))
        }
    }
}
