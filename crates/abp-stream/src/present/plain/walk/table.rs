//! A table, line by line.

/// What stands between the cells of a row, and on a terminal.
const GAP: &str = ", ";
const BAR: &str = " │ ";

/// The longest head whose names are told with every row.
const MAX_NAMES: usize = 1024;

/// The open table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Whether the cells of a row are told with the names of their columns. They are not where the
    /// head begins without a bar: its beginning was prose before it was a head.
    is_named: bool,
    head: Vec<String>,
    row: Vec<String>,
    has_rows: bool,
    in_cell: bool,
    /// Whether cells stand beside each other, as on a terminal.
    has_bars: bool,
}

impl Table {
    pub(super) fn new(head: &str, has_bars: bool) -> Self {
        Self {
            is_named: head.starts_with('|') && head.len() <= MAX_NAMES && !has_bars,
            has_bars,
            ..Self::default()
        }
    }

    pub(super) fn start_cell(&mut self) {
        self.row.push(String::new());
        self.in_cell = true;
    }

    pub(super) fn end_cell(&mut self) {
        self.in_cell = false;
    }

    /// The open cell.
    pub(super) fn cell(&mut self) -> Option<&mut String> {
        self.row.last_mut().filter(|_| self.in_cell)
    }

    /// The head as a line, where its names are not told with the rows.
    pub(super) fn end_head(&mut self) -> Option<String> {
        self.head = std::mem::take(&mut self.row);
        (!self.is_named).then(|| self.head.join(self.gap()))
    }

    pub(super) fn end_row(&mut self) -> String {
        self.has_rows = true;
        let row = std::mem::take(&mut self.row);
        let cells = row.into_iter().enumerate();
        let cells = cells.filter(|(_, cell)| !cell.is_empty() || self.has_bars);
        let cells = cells.map(|(column, cell)| match self.head.get(column) {
            Some(name) if self.is_named && !name.is_empty() => format!("{name}: {cell}"),
            _ => cell,
        });
        cells.collect::<Vec<_>>().join(self.gap())
    }

    /// The head as a line, where there were no rows to tell its names with.
    pub(super) fn end(&self) -> Option<String> {
        (self.is_named && !self.has_rows).then(|| self.head.join(self.gap()))
    }

    fn gap(&self) -> &'static str {
        if self.has_bars { BAR } else { GAP }
    }
}
