//! Whole-system measurements: farspan and its peers on one machine, in one run, in turns.
//!
//! ```text
//! cargo run --release -p perf -- list            what there is
//! cargo run --release -p perf -- catch-up        one scenario; its figure is the last line
//! cargo run --release -p perf -- all --quick     every scenario, in a minute or two each
//! ```
//!
//! The exit code is 1 where a scenario's goal is missed.

mod calm;
mod machine;
mod options;
mod peers;
mod report;
mod scenario;
mod statistics;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use options::{Arguments, Options};
use report::Report;
use scenario::{ALL, Scenario};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let outcome = match words.next().as_deref() {
        // Children of a scenario, which are measured as processes of their own.
        Some("node") => peers::node::main(words),
        Some("source") => peers::synthetic::main(words),
        _ => return measure(Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn measure(arguments: Arguments) -> ExitCode {
    if arguments.name == "list" {
        for scenario in ALL {
            println!("{:<10} {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<&Scenario> =
        ALL.iter().filter(|each| arguments.name == "all" || arguments.name == each.name).collect();
    if chosen.is_empty() {
        return fail(&format!(
            "there is no scenario {}; `list` shows what there is",
            arguments.name
        ));
    }
    let mut missed = Vec::new();
    for scenario in chosen {
        match run(scenario, &arguments) {
            Ok(report) if report.is_met() => {}
            Ok(_) => missed.push(scenario.name),
            Err(error) => return fail(&format!("{}: {error}", scenario.name)),
        }
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(scenario: &Scenario, arguments: &Arguments) -> Result<Report, String> {
    let options = Options::of(arguments)?;
    let machine = machine::Machine::look();
    let mut report = (scenario.run)(&options)?;
    report.close(scenario, &options, machine);
    let path = options.json_path(scenario.name);
    report.write(&path)?;
    eprintln!("all numbers: {}", path.display());
    report.print();
    Ok(report)
}

fn fail(error: &str) -> ExitCode {
    eprintln!("perf: {error}");
    ExitCode::FAILURE
}
