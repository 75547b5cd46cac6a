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

/// An error or a warning, which may have what a server has said: the same, but backslashes stay.
pub(crate) fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => safe.push(c),
            _ => safe.extend(c.escape_debug()),
        }
    }
    safe
}

/// JSON in which no character acts on the terminal. Outside of ASCII there are characters in strings only, where an escape means
/// the same.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        let is_seen = c.is_ascii() || c.escape_debug().len() == 1;
        if is_seen && c != '\u{7f}' {
            safe.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            units
                .iter()
                .for_each(|unit| safe += &format!("\\u{unit:04x}"));
        }
    }
    safe
}

/// The same for a text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(plain).collect();
    lines.join("\n")
}

/// How long a lease has left.
pub(crate) fn left(duration: Duration) -> String {
    match duration {
        Duration::MAX => "forever".to_owned(),
        short if short < Duration::from_secs(60) => format!("{:.1}s", short.as_secs_f64()),
        long => humantime::format_duration(Duration::from_secs(long.as_secs())).to_string(),
    }
}

/// The widest column. A longer cell moves the rest of its own row alone.
const WIDEST: usize = 100;

/// A head and rows, in columns as wide as their content, up to a limit.
pub(crate) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<_> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rows: Vec<_> = iter::once(head).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).min(WIDEST)
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
    fn a_name_of_any_length_has_a_row() {
        let rows = [70_000, 1].map(|length| vec!["k".repeat(length), "read".into()]);
        let table = table(&["KEY", "MODE"], rows.into_iter());
        let lines: Vec<_> = table.lines().map(str::len).collect();
        assert_eq!(lines, [106, 70_006, 106]);
    }

    #[test]
    fn json_keeps_its_meaning_and_cannot_act_on_the_terminal() {
        let name = "a\u{9b}31m\u{202e}\u{7f}\u{e0041}é鍵\\\"\n";
        let json = serde_json::to_string(name).unwrap();
        let safe = harmless_json(&json);
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), name);
        assert_eq!(
            safe,
            "\"a\\u009b31m\\u202e\\u007f\\udb40\\udc41é鍵\\\\\\\"\\n\""
        );
    }

    #[test]
    fn a_message_of_a_server_cannot_act_on_the_terminal() {
        assert_eq!(
            harmless("ERR \u{1b}]0;x\u{7}\r\nit's \\"),
            "ERR \\u{1b}]0;x\\u{7}\\r\\nit's \\"
        );
    }

    #[test]
    fn a_lease_is_shown_as_precisely_as_a_person_needs_it() {
        assert_eq!(left(Duration::from_millis(27_345)), "27.3s");
        assert_eq!(left(Duration::from_millis(3_661_500)), "1h 1m 1s");
        assert_eq!(left(Duration::MAX), "forever");
    }
}
