//! Prints tables as kubectl does.

use std::io::{self, Write};

/// Writes rows of a table as kubectl does. Columns are at least six characters wide, with three spaces between
/// them. `widths` keeps the widths of the columns between calls, so columns never become narrower.
pub fn write_rows(
    rows: &[Vec<String>],
    widths: &mut Vec<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for row in rows {
        widths.resize(widths.len().max(row.len()), 6);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count() + 3);
        }
    }
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths.iter()) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
