//! Lays out elastic columns as Go's `text/tabwriter` does. kubectl uses `text/tabwriter` for its tables and for
//! `describe`.
//!
//! Invariants: pure. A cell ends with a tab. Text after the last tab of a line belongs to no column. A column
//! consists of adjacent lines that have a cell at the same place. So a line without a tab ends every column.

/// Lays out `text`. Each column is as wide as its widest cell plus `padding`, and at least `min_width`.
pub fn align(text: &str, min_width: usize, padding: usize) -> String {
    let lines: Vec<Vec<&str>> = text
        .split('\n')
        .map(|line| line.split('\t').collect())
        .collect();
    let mut out = String::with_capacity(text.len() * 2);
    layout(&lines, min_width, padding, &mut Vec::new(), &mut out);
    out.pop();
    out
}

/// Writes lines. `widths` has the widths of the columns further left, which all these lines share.
fn layout(
    lines: &[Vec<&str>],
    min_width: usize,
    padding: usize,
    widths: &mut Vec<usize>,
    out: &mut String,
) {
    let column = widths.len();
    let has_cell = |line: &Vec<&str>| column + 1 < line.len();
    let mut at = 0;
    while at < lines.len() {
        if !has_cell(&lines[at]) {
            write_line(&lines[at], widths, out);
            at += 1;
            continue;
        }
        let end = at + lines[at..].iter().take_while(|line| has_cell(line)).count();
        let widest = lines[at..end]
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0);
        widths.push((widest + padding).max(min_width));
        layout(&lines[at..end], min_width, padding, widths, out);
        widths.pop();
        at = end;
    }
}

fn write_line(cells: &[&str], widths: &[usize], out: &mut String) {
    for (i, cell) in cells.iter().enumerate() {
        out.push_str(cell);
        if i + 1 < cells.len() {
            let width = widths.get(i).copied().unwrap_or(0);
            out.extend(std::iter::repeat_n(
                ' ',
                width.saturating_sub(cell.chars().count()),
            ));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(align(text, 0, 2), expected);
    }

    #[test]
    fn columns_are_runs_of_adjacent_lines() {
        check("a\tb\nlonger\tc\n", "a       b\nlonger  c\n");
        check(
            "Name:\tx\nLong title:\ty\nplain\nq:\tz\n",
            "Name:        x\nLong title:  y\nplain\nq:  z\n",
        );
        check(
            "a\tb\tc\naa\tbb\n\tccc\tc\n",
            "a   b  c\naa  bb\n    ccc  c\n",
        );
    }

    #[test]
    fn widths_count_characters_and_have_a_minimum() {
        check("é\tb\naa\tc\n", "é   b\naa  c\n");
        assert_eq!(align("a\tb\n", 6, 3), "a     b\n");
        assert_eq!(align("no newline\tx", 0, 1), "no newline x");
    }
}
