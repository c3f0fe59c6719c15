//! Tables: each row passes when it is whole.

use super::{Flow, MAX_HELD, Paragraph, Progress, State};
use crate::present::plain::line::{head_of_table, interrupts, is_table, line_of};
use crate::present::plain::render::Render;

/// Every row is read with the head. Where that is longer than this, rows wait until they are as much
/// as the head, so that a wide head does not cost more than the rows.
const SMALL_HEAD: usize = 1024;
/// More rows than this do not wait.
const MAX_ROWS: usize = MAX_HELD / 2;

#[derive(Debug)]
pub(super) struct Table {
    /// The first two lines, which every row is read with.
    head: String,
    /// Whether something of the table was told already.
    is_told: bool,
    has_rows: bool,
}

impl Table {
    pub(super) fn new(head: String, is_told: bool) -> Self {
        Self {
            head,
            is_told,
            has_rows: false,
        }
    }
}

impl Flow {
    /// A line that begins like the row of a table; the next one tells.
    pub(super) fn table_or_text(&mut self, last: bool, out: &mut Render) -> Progress {
        let Some(lines) = head_of_table(&self.held, last) else {
            return Progress::Waiting;
        };
        if is_table(lines) {
            let table = Table::new(lines.to_owned(), false);
            self.release(table.head.len());
            self.state = State::Table(table);
        } else {
            self.begin_paragraph(Paragraph::without_table(), out);
        }
        Progress::Made
    }

    pub(super) fn table(&mut self, mut table: Table, last: bool, out: &mut Render) -> Progress {
        let Some(line) = line_of(self.rest(), last) else {
            self.state = State::Table(table);
            return Progress::Waiting;
        };
        let length = line.len();
        let row = line.trim_start_matches([' ', '\t']);
        if matches!(row.trim_ascii_end(), "" | "|") || interrupts(row) {
            self.end_table(&mut table, out);
            return Progress::Made;
        }
        self.at += length;
        if self.at >= table.head.len().min(MAX_ROWS) || table.head.len() < SMALL_HEAD {
            self.pass_rows(&mut table, out);
        }
        self.state = State::Table(table);
        Progress::Made
    }

    pub(super) fn end_table(&mut self, table: &mut Table, out: &mut Render) {
        self.pass_rows(table, out);
        if !table.is_told && !table.has_rows {
            out.block(&table.head);
        }
    }

    /// Converts the rows that are held.
    fn pass_rows(&mut self, table: &mut Table, out: &mut Render) {
        let rows = self.held.get(..self.at).unwrap_or_default();
        if !rows.is_empty() {
            table.is_told |= out.rows(&format!("{}{rows}", table.head), !table.is_told);
            table.has_rows = true;
        }
        self.release(self.at);
    }
}
