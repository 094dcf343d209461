//! What a scenario found: a table, ratios of pairs, a figure; for people and as JSON.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::machine::Machine;
use crate::options::Options;
use crate::scenario::Scenario;
use crate::statistics::Spread;
use crate::usage::Sample;

/// One subject and its runs, round by round.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub subject: String,
    pub mb_per_second: Spread,
    pub cpu_seconds_per_gb: Spread,
    pub resident_mb: Spread,
    pub strangers: Spread,
    pub others_cpu_seconds_per_gb: Vec<(String, Spread)>,
    runs: Vec<Sample>,
}

impl Row {
    pub fn new(subject: &str, runs: Vec<Sample>) -> Self {
        let spread = |number: &dyn Fn(&Sample) -> f64| Spread::of(runs.iter().map(number));
        let others = runs.first().map(|run| run.others_cpu_seconds.keys().cloned().collect());
        let others: Vec<String> = others.unwrap_or_default();
        let others_cpu_seconds_per_gb = others
            .into_iter()
            .map(|name| {
                let spread = Spread::of(runs.iter().filter_map(|run| run.other_cpu_per_gb(&name)));
                (name, spread)
            })
            .collect();
        Self {
            subject: subject.to_owned(),
            mb_per_second: spread(&Sample::mb_per_second),
            cpu_seconds_per_gb: spread(&Sample::cpu_per_gb),
            resident_mb: spread(&|run| run.resident_bytes as f64 / 1e6),
            strangers: spread(&|run| run.strangers),
            others_cpu_seconds_per_gb,
            runs,
        }
    }
}

/// One subject against another, from the pairs of runs that stood side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    one: String,
    other: String,
    speed: Spread,
    /// Of the one's processor time to the other's.
    cpu: Spread,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    scenario: String,
    machine: Option<Machine>,
    bytes: u64,
    rounds: usize,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    notes: Vec<String>,
    goals: Vec<Goal>,
    figure: String,
}

/// What must hold.
#[derive(Clone, Debug, Serialize)]
struct Goal {
    what: String,
    found: f64,
    wanted: f64,
    met: bool,
}

impl Report {
    pub fn new(rows: Vec<Row>) -> Self {
        Self { rows, ..Self::default() }
    }

    pub fn row(&self, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.subject == subject)
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Compares two subjects, where both took part: speed and processor time, `one` to `other`.
    pub fn compare(&mut self, one: &str, other: &str) -> Option<(f64, f64)> {
        let (first, second) = (self.row(one)?, self.row(other)?);
        let pairs = || first.runs.iter().zip(&second.runs);
        let speed = Spread::of(pairs().map(|(a, b)| a.mb_per_second() / b.mb_per_second()));
        let cpu = Spread::of(pairs().map(|(a, b)| a.cpu_per_gb() / b.cpu_per_gb()));
        let (one, other) = (one.to_owned(), other.to_owned());
        self.ratios.push(Ratio { one, other, speed, cpu });
        Some((speed.median, cpu.median))
    }

    /// `found` must not be below `wanted`.
    pub fn at_least(&mut self, what: &str, found: f64, wanted: f64) {
        self.goals.push(Goal { what: what.to_owned(), found, wanted, met: found >= wanted });
    }

    /// `found` must not be above `wanted`.
    pub fn at_most(&mut self, what: &str, found: f64, wanted: f64) {
        self.goals.push(Goal { what: what.to_owned(), found, wanted, met: found <= wanted });
    }

    pub fn figure(&mut self, figure: String) {
        self.figure = figure;
    }

    pub fn is_met(&self) -> bool {
        self.goals.iter().all(|goal| goal.met)
    }

    pub fn close(&mut self, scenario: &Scenario, options: &Options, machine: Machine) {
        scenario.name.clone_into(&mut self.scenario);
        self.machine = Some(machine);
        (self.bytes, self.rounds) = (options.bytes, options.rounds);
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        fs::write(path, text + "\n").map_err(|error| failed(&error))
    }

    /// The figure comes last.
    pub fn print(&self) {
        println!(
            "{}: {} MB, {} rounds; median (least..most)",
            self.scenario,
            self.bytes / 1_000_000,
            self.rounds
        );
        let width = self.rows.iter().map(|row| row.subject.len()).max().unwrap_or(0);
        println!(
            "{:width$}  {:<22} {:<20} {:<18} {:<18} others CPU s/GB",
            "", "MB/s", "CPU s/GB", "MB RAM", "strangers' CPUs"
        );
        for row in &self.rows {
            let others = row.others_cpu_seconds_per_gb.iter();
            let others: Vec<_> = others.map(|(name, cpu)| format!("{name} {cpu}")).collect();
            println!(
                "{:width$}  {:<22} {:<20} {:<18} {:<18} {}",
                row.subject,
                row.mb_per_second,
                row.cpu_seconds_per_gb,
                row.resident_mb,
                row.strangers,
                others.join(", ")
            );
        }
        for Ratio { one, other, speed, cpu } in &self.ratios {
            println!("{one} / {other}: speed {speed}, CPU per byte {cpu}");
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        for goal in &self.goals {
            let met = if goal.met { "met" } else { "MISSED" };
            println!("goal {met}: {}: {:.3}, wanted {:.3}", goal.what, goal.found, goal.wanted);
        }
        println!("{}", self.figure);
    }
}
