//! The results of a run, and their targets.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Instant;

use crate::samples::digits;

/// Collects the rows of the summary, and shows progress.
pub(crate) struct Report {
    began: Instant,
    rows: Vec<Row>,
    /// What stands below the summary in RESULTS.md.
    appendix: String,
}

/// A line of the summary.
struct Row {
    what: String,
    /// `None`: the figure is for comparison only.
    target: Option<Target>,
    measured: Option<f64>,
    beside: String,
}

/// The target of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

use Target::{AtLeast, AtMost};

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            rows: Vec::new(),
            appendix: String::new(),
        }
    }

    /// Shows progress, on one line that the next call replaces.
    pub(crate) fn progress(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs();
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K[{seconds:>4} s] {what}");
        } else {
            eprintln!("[{seconds:>4} s] {what}");
        }
    }

    /// A result without a target.
    pub(crate) fn note(&self, line: &str) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        println!("{line}");
    }

    /// A result with a target. `beside` has the absolute figures.
    pub(crate) fn row(&mut self, what: &str, target: Target, measured: f64, beside: String) {
        self.push(
            what,
            Some(target),
            Some(measured).filter(|measured| measured.is_finite()),
            beside,
        );
    }

    /// A result without a target, in the table.
    pub(crate) fn fact(&mut self, what: &str, measured: f64, beside: String) {
        self.push(what, None, Some(measured), beside);
    }

    /// A result that could not be measured.
    pub(crate) fn missing(&mut self, what: &str, target: Target, why: &str) {
        self.push(what, Some(target), None, why.to_owned());
    }

    fn push(&mut self, what: &str, target: Option<Target>, measured: Option<f64>, beside: String) {
        let row = Row {
            what: what.to_owned(),
            target,
            measured,
            beside,
        };
        self.note(&format!(
            "  {} {}: {} ({})",
            row.verdict(),
            row.what,
            row.figure(),
            row.beside
        ));
        self.rows.push(row);
    }

    /// Adds a text in Markdown below the summary.
    pub(crate) fn append(&mut self, text: &str) {
        self.appendix.push('\n');
        self.appendix.push_str(text);
    }

    pub(crate) fn appendix(&self) -> &str {
        &self.appendix
    }

    /// The summary, as a table in Markdown.
    pub(crate) fn table(&self) -> String {
        let head = ["what", "target", "measured", "in absolute figures", "met"].map(str::to_owned);
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let widths: Vec<_> = (0..head.len())
            .map(|column| {
                rows.iter()
                    .chain([&head])
                    .map(|cells| cells[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut table = String::new();
        let mut line = |cells: &[String]| {
            let cells = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let _ = writeln!(table, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        };
        line(&head);
        line(
            &widths
                .iter()
                .map(|&width| "-".repeat(width))
                .collect::<Vec<_>>(),
        );
        rows.iter().for_each(|cells| line(cells));
        let judged = self.rows.iter().filter(|row| row.target.is_some()).count();
        let met = self
            .rows
            .iter()
            .filter(|row| row.verdict() == "yes")
            .count();
        let _ = writeln!(
            table,
            "\n{met} of {judged} met, in {} s.",
            self.began.elapsed().as_secs()
        );
        table
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        // As precise as the figure that is shown beside it.
        let shown = |measured: f64| digits(measured).parse().unwrap_or(measured);
        let is_met = |measured: f64| match self.target? {
            AtLeast(target) => Some(shown(measured) >= target),
            AtMost(target) => Some(shown(measured) <= target),
        };
        match self.measured.map(is_met) {
            Some(Some(true)) => "yes",
            Some(Some(false)) => "NO",
            Some(None) => "",
            None => "?",
        }
    }

    fn figure(&self) -> String {
        self.measured.map_or("NOT MEASURED".into(), digits)
    }

    fn cells(&self) -> [String; 5] {
        let target = match self.target {
            Some(AtLeast(target)) => format!("≥ {target}"),
            Some(AtMost(target)) => format!("≤ {target}"),
            None => String::new(),
        };
        [
            self.what.clone(),
            target,
            self.figure(),
            self.beside.clone(),
            self.verdict().into(),
        ]
    }
}
