//! Samples, their table and their JSON file.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// A figure: its samples and what is to be reached.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    samples: Vec<f64>,
    /// The median is to be at most this.
    target: Option<f64>,
}

/// What a bench found.
pub(crate) struct Report {
    bench: &'static str,
    /// What is measured.
    program: PathBuf,
    rows: Vec<Row>,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// Something that is to hold.
struct Check {
    name: String,
    holds: bool,
    found: String,
}

/// The sample at that share of the sorted ones (nearest rank).
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

impl Report {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self {
            bench,
            program: super::program(),
            rows: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Of a bench that measures the library in its own processes.
    pub(crate) fn of_itself(bench: &'static str) -> Self {
        Self {
            program: std::env::current_exe().unwrap(),
            ..Self::new(bench)
        }
    }

    /// Adds samples to the row of that name, which comes into being with its first.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, target: Option<f64>, sample: f64) {
        match self.rows.iter_mut().find(|r| r.name == name) {
            Some(row) => row.samples.push(sample),
            None => self.rows.push(Row {
                name: name.into(),
                unit,
                samples: vec![sample],
                target,
            }),
        }
    }

    /// Says at once whether something holds that is to hold, and keeps it for the end.
    pub(crate) fn check(&mut self, name: &str, holds: bool, found: impl Into<String>) {
        let check = Check {
            name: name.into(),
            holds,
            found: found.into(),
        };
        println!("  {check}");
        self.checks.push(check);
    }

    /// Whether every check has held.
    pub(crate) fn all_hold(&self) -> bool {
        self.checks.iter().all(|c| c.holds)
    }

    /// Said below the table.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// The median of a row.
    pub(crate) fn median(&self, name: &str) -> f64 {
        median(
            &self
                .rows
                .iter()
                .find(|r| r.name == name)
                .unwrap_or_else(|| panic!("no row {name}"))
                .samples,
        )
    }

    /// A row of one value: how many times the median of one row is the median of another.
    pub(crate) fn ratio(&mut self, name: &str, of: &str, to: &str, target: Option<f64>) {
        let ratio = self.median(of) / self.median(to);
        self.add(name, "×", target, ratio);
    }

    /// Prints the table and writes `target/bench/<bench>.json`.
    pub(crate) fn finish(&self) {
        self.print();
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        let program = &self.program;
        let text = json!({
            "bench": self.bench,
            "program": program.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(program),
            "olderThanSources": super::is_stale(program),
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "loadAverage": load(),
            "rows": rows,
            "checks": self.checks.iter().map(|c| json!({"name": c.name, "holds": c.holds, "found": c.found})).collect::<Vec<_>>(),
            "notes": self.notes,
        });
        let file = super::out_dir().join(format!("{}.json", self.bench));
        std::fs::write(&file, serde_json::to_vec_pretty(&text).unwrap()).unwrap();
    }

    fn print(&self) {
        let program = &self.program;
        let stale = if super::is_stale(program) {
            "; OLDER THAN THE SOURCES"
        } else {
            ""
        };
        println!(
            "\n== {} ({}{stale}; load {})",
            self.bench,
            program.display(),
            load()
        );
        let width = self
            .rows
            .iter()
            .map(|r| r.name.chars().count())
            .max()
            .unwrap_or(0);
        println!(
            "{:width$}  {:>5}  {:>4}  {:>9} {:>9} {:>9} {:>9}  to reach",
            "", "", "n", "min", "median", "p90", "max"
        );
        for r in &self.rows {
            let [min, mid, p90, max] = r.spread().map(|v| format!("{v:>9.3}"));
            println!(
                "{:width$}  {:>5}  {:>4}  {min} {mid} {p90} {max}  {}",
                r.name,
                r.unit,
                r.samples.len(),
                r.verdict()
            );
        }
        self.notes.iter().for_each(|n| println!("  {n}"));
        self.checks.iter().for_each(|c| println!("  {c}"));
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}  {}: {}",
            if self.holds { "pass" } else { "FAIL" },
            self.name,
            self.found
        )
    }
}

impl Row {
    fn spread(&self) -> [f64; 4] {
        let s = &self.samples;
        [
            quantile(s, 0.0),
            median(s),
            quantile(s, 0.9),
            quantile(s, 1.0),
        ]
    }

    fn verdict(&self) -> String {
        match self.target {
            None => String::new(),
            Some(t) if median(&self.samples) <= t => format!("<= {t}: yes"),
            Some(t) => format!("<= {t}: NO"),
        }
    }

    fn to_json(&self) -> Value {
        let [min, median, p90, max] = self.spread();
        json!({"name": self.name, "unit": self.unit, "n": self.samples.len(), "min": min, "median": median, "p90": p90, "max": max,
            "target": self.target, "reached": self.target.map(|t| median <= t), "samples": self.samples})
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
