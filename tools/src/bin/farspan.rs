//! farspan, the program.

use std::process::ExitCode;

use clap::Parser;
use tools::command::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
