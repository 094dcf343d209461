//! One file for each scenario, and one line for each in the table. A scenario sets up what it needs,
//! runs its subjects in turns and says what it found.

mod catch_up;
mod engine;
mod serve;

use crate::calm;
use crate::options::Options;
use crate::report::{Report, Row};
use crate::usage::Sample;

pub struct Scenario {
    pub name: &'static str,
    pub what: &'static str,
    pub run: fn(&Options) -> Result<Report, String>,
}

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "catch-up",
        what: "a stock broker's topic from empty, beside a stock follower and a bare receive-and-write",
        run: catch_up::run,
    },
    Scenario {
        name: "engine",
        what: "the engine on a synthetic source, beside a bare receive-and-write",
        run: engine::run,
    },
    Scenario {
        name: "serve",
        what: "consumers read from farspan and from a stock broker",
        run: serve::run,
    },
];

/// A subject and how it does one run.
pub type Subject<'a> = (String, Box<dyn FnMut() -> Result<Sample, String> + 'a>);

/// Runs all subjects in turns, so that what else happens on the machine hits all alike. The first
/// round warms up and is thrown away; every round begins with another subject.
pub fn in_turns(options: &Options, mut subjects: Vec<Subject<'_>>) -> Result<Vec<Row>, String> {
    subjects.retain(|(name, _)| options.wants(name));
    let mut runs: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    let count = subjects.len();
    for round in 0..=options.rounds {
        for step in 0..count {
            let index = (round + step) % count;
            let (name, run) = &mut subjects[index];
            calm::wait(options.patience);
            let sample = run().map_err(|error| format!("{name}: {error}"))?;
            eprintln!(
                "round {round}: {name}: {:.0} MB/s, {:.3} CPU s/GB, {:?}, strangers {:.1}",
                sample.mb_per_second(),
                sample.cpu_per_gb(),
                sample.others_cpu_seconds,
                sample.strangers
            );
            if round > 0 {
                runs[index].push(sample);
            }
        }
    }
    Ok(subjects.iter().zip(runs).map(|((name, _), runs)| Row::new(name, runs)).collect())
}
