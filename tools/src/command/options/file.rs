//! The configuration file: TOML with a table for each kind of option, its keys named like the flags.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::mistake::Mistakes;
use super::raw::Options;

/// The largest file that is read; a real one has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file's text, kept so that mistakes can name their line.
#[derive(Clone, Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    pub(super) fn read(path: &Path) -> Result<Self, Mistakes> {
        let refused = |wrong: &dyn std::fmt::Display| {
            Mistakes::one(format!("--config \"{}\"", path.display()), wrong.to_string())
        };
        let file = std::fs::File::open(path).map_err(|error| refused(&error))?;
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        let length = read.map_err(|error| refused(&error))?;
        if length as u64 > FILE_BYTES_MAX {
            return Err(refused(&format_args!(
                "more than {FILE_BYTES_MAX} bytes are no configuration file"
            )));
        }
        Ok(Self { path: path.into(), text })
    }

    pub(super) fn parse(&self) -> Result<Options, Mistakes> {
        toml::from_str(&self.text).map_err(|error: toml::de::Error| {
            let position = error.span().map_or(0, |span| span.start);
            Mistakes::one(self.place(position), error.message())
        })
    }

    /// `farspan.toml:3`, for what stands at a byte of the file.
    pub(super) fn place(&self, position: usize) -> String {
        let before = self.text.as_bytes().iter().take(position);
        let line = before.filter(|&&byte| byte == b'\n').count() + 1;
        format!("{}:{line}", self.path.display())
    }
}
