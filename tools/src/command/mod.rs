//! The program `farspan`: one file for each subcommand.
//!
//! | file       | what it is for                                                        |
//! |------------|-----------------------------------------------------------------------|
//! | `mirror`   | mirrors topics of a source cluster, and serves them                    |
//! | `serve`    | serves what was mirrored before                                       |
//! | `dump`     | shows and checks segment files                                        |
//! | `demo`     | shows all of it in one process, and proves that nothing was changed   |
//! | `options`  | flags and file, from texts to a checked configuration                 |
//! | `run`      | a node from its start to its clean end                                |
//! | `progress` | how far a node is, in one line                                        |
//! | `terminal` | log lines and the progress line on one terminal                       |
//! | `signals`  | the wish to stop                                                      |
//! | `quantity` | sizes, durations, counts, moments                                     |

pub mod demo;
pub mod dump;
mod mirror;
pub mod options;
pub mod progress;
pub mod quantity;
pub mod run;
mod serve;
pub mod signals;
pub mod terminal;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Mirrors Kafka topics over long distances, offset-exact and byte for byte.
///
/// Topics are kept as Kafka's own segment files and served to ordinary Kafka clients.
#[derive(Debug, Parser)]
#[command(name = "farspan", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mirror(Box<mirror::Arguments>),
    Serve(Box<serve::Arguments>),
    Dump(dump::Arguments),
    Demo(demo::Arguments),
}

/// Why the program ends other than well: what to print, if anything, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line or the file has mistakes: exit code 2.
    Usage(String),
    /// What was begun did not succeed: exit code 1.
    Runtime(String),
    /// The same, where everything was told already.
    Told,
}

impl Failure {
    /// The exit code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Runtime(_) | Self::Told => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Runtime(text) => f.write_str(text),
            Self::Told => Ok(()),
        }
    }
}

impl From<options::Mistakes> for Failure {
    fn from(mistakes: options::Mistakes) -> Self {
        Self::Usage(mistakes.to_string())
    }
}

impl Cli {
    /// Does what was asked for, and says how the process is to end.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Mirror(arguments) => mirror::run(*arguments),
            Command::Serve(arguments) => serve::run(*arguments),
            Command::Dump(arguments) => dump::run(&arguments),
            Command::Demo(arguments) => demo::run(&arguments),
        };
        let Err(failure) = result else { return ExitCode::SUCCESS };
        for line in failure.to_string().lines() {
            eprintln!("farspan: {line}");
        }
        ExitCode::from(failure.code())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
