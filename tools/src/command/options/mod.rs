//! What the operator says, in two stages: raw texts with the place where they were said, then a
//! checked [`engine::config::Config`]. Every mistake is found, not only the first.
//!
//! ```text
//!  flags ─┐
//!         ├─ raw::{NodeOptions, LogOptions, SourceOptions} ── check ──▶ Config | Mistakes
//!  file  ─┘   flags win
//! ```

mod check;
mod checker;
mod file;
mod given;
mod mistake;
mod parse;
mod raw;

use std::path::PathBuf;

use engine::config::Config;

pub use check::Purpose;
pub use given::{Given, Place};
pub use mistake::{Mistake, Mistakes};
pub use raw::{LogOptions, NodeOptions, Options, SourceOptions};

/// Reads the file, where there is one, lays the flags over it, and checks the whole.
///
/// # Errors
/// All mistakes in it, each with its place, what was said and what is allowed.
pub fn config(
    flags: Options,
    config_file: Option<&PathBuf>,
    purpose: Purpose,
) -> Result<Config, Mistakes> {
    let Some(path) = config_file else { return check::check(&flags, None, purpose) };
    let file = file::ConfigFile::read(path)?;
    let options = flags.or(file.parse()?);
    check::check(&options, Some(&file), purpose)
}

#[cfg(test)]
mod tests;
