//! Text from the store, made safe for a terminal.

use std::iter;
use std::time::Duration;

/// A name in which control characters and invisible ones are written as escapes, so that they do not affect the
/// terminal.
pub(crate) fn plain(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '"' | '\'' => text.push(c),
            _ => text.extend(c.escape_debug()),
        }
    }
    text
}

/// The same for a text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(plain).collect();
    lines.join("\n")
}

/// How long a lease has left.
pub(crate) fn left(duration: Duration) -> String {
    match duration {
        Duration::MAX => "for ever".to_owned(),
        short if short < Duration::from_secs(60) => format!("{:.1}s", short.as_secs_f64()),
        long => humantime::format_duration(Duration::from_secs(long.as_secs())).to_string(),
    }
}

/// A head and rows, in columns as wide as their content.
pub(crate) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<_> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rows: Vec<_> = iter::once(head).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_act_on_the_terminal() {
        assert_eq!(plain("order:{42}/\"x\""), "order:{42}/\"x\"");
        assert_eq!(plain("\u{1b}[2J\n\u{202e}"), "\\u{1b}[2J\\n\\u{202e}");
        // A literal backslash is escaped, so that it does not look like an escape.
        assert_eq!(plain("\\n"), "\\\\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = vec!["é:long".into(), "read".into()];
        let table = table(&["KEY", "MODE"], iter::once(row));
        assert_eq!(table, "KEY     MODE\né:long  read\n");
    }

    #[test]
    fn a_lease_is_shown_as_precisely_as_a_person_needs_it() {
        assert_eq!(left(Duration::from_millis(27_345)), "27.3s");
        assert_eq!(left(Duration::from_millis(3_661_500)), "1h 1m 1s");
        assert_eq!(left(Duration::MAX), "for ever");
    }
}
