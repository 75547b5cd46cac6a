//! The dashboard and the alarms in `ops` name metrics that exist, and each alarm has a section in docs/operations.md.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::project::{read, root};

/// The names of metrics in a text, without the suffixes of histograms.
fn metrics(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("distributed_lock_") {
        let name = text[at..].split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let name = name.into_iter().next().unwrap_or_default();
        let name = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        found.insert(name.to_owned());
    }
    found
}

#[test]
fn every_metric_of_the_dashboard_and_the_alarms_is_documented() {
    let documented = metrics(&read("src/telemetry.rs"));
    assert!(documented.len() > 10, "{documented:?}");
    for file in ["ops/dashboard.json", "ops/alerts.yml", "docs/operations.md"] {
        let unknown: Vec<_> = metrics(&read(file))
            .difference(&documented)
            .cloned()
            .collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let mut shown = metrics(&read("ops/dashboard.json"));
    shown.insert("distributed_lock_".to_owned());
    let missing: Vec<_> = metrics(&read("src/telemetry.rs"))
        .difference(&shown)
        .cloned()
        .collect();
    assert!(missing.is_empty(), "the dashboard misses {missing:?}");
}

#[test]
fn the_dashboard_is_json_and_shows_what_is_measured() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("ops/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            assert!(!metrics(target["expr"].as_str().expect("a query")).is_empty());
        }
    }
}

#[test]
fn every_alarm_names_its_section_of_the_runbook() {
    let alarms = read("ops/alerts.yml");
    let runbook = read("docs/operations.md");
    let tests = read("ops/alerts_test.yml");
    let sections: BTreeSet<_> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-").replace(',', ""))
        .collect();
    let mut count = 0;
    for alarm in alarms.split("- alert: ").skip(1) {
        let name = alarm.lines().next().expect("a name");
        let link = alarm.split("/docs/operations.md#").nth(1);
        let section = link.and_then(|link| link.lines().next()).expect("a link");
        assert!(sections.contains(section), "{name} names #{section}");
        assert!(
            runbook.contains(name),
            "docs/operations.md does not name {name}"
        );
        assert!(
            tests.contains(name),
            "ops/alerts_test.yml does not test {name}"
        );
        count += 1;
    }
    assert!(count >= 10, "only {count} alarms were found");
}

/// The runbook says what to do about a reason in the words of the log.
#[test]
fn the_runbook_has_every_reason_of_a_loss() {
    let runbook = read("docs/operations.md");
    let (_, table) = runbook
        .split_once("| reason | what happened | look at |")
        .expect("a table");
    let (table, _) = table.split_once("\n\n").expect("it ends");
    let cells = table
        .lines()
        .skip(2)
        .filter_map(|row| row.split('|').nth(1));
    let listed = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let listed: BTreeSet<_> = listed.map(str::to_owned).collect();
    let mut reasons = BTreeSet::new();
    let files = [
        "src/hold/due.rs",
        "src/keeper.rs",
        "src/keeper/checks.rs",
        "src/keeper/renewals.rs",
        "src/release.rs",
        "src/release/ending.rs",
    ];
    let searched = Command::new("grep")
        .args([
            "-rlF",
            "-e",
            "core.lose(",
            "-e",
            "report_loss(",
            "-e",
            "telemetry::lost(",
            "src",
        ])
        .current_dir(root())
        .output()
        .expect("grep runs");
    assert!(searched.status.success(), "{searched:?}");
    for file in String::from_utf8_lossy(&searched.stdout).lines() {
        assert!(files.contains(&file), "{file} also gives reasons");
    }
    for file in files {
        let code = read(file);
        let gives = [
            "lose(",
            "report_loss(",
            "Lease::Fixed(_) => ",
            "Lease::Renewed(_) => ",
            "is_at_limit(&self.state.lock()) => ",
        ];
        let lines = code
            .lines()
            .filter(|line| gives.iter().any(|gives| line.contains(gives)));
        reasons.extend(
            lines
                .filter_map(|line| line.split('"').nth(1))
                .map(str::to_owned),
        );
    }
    assert_eq!(listed, reasons);
}

#[test]
fn the_alarms_fire_when_they_should() {
    let run = Command::new("promtool")
        .args(["test", "rules", "alerts_test.yml"])
        .current_dir(root().join("ops"))
        .output();
    let run = run.expect("promtool runs: sudo apt-get install prometheus (scripts/test does it)");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
}
