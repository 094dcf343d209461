//! Where items and faults go: as text or JSON, or only counted.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::item::Item;
use crate::command::quantity::{Bytes, Exactly};

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub file: PathBuf,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Of the batch or entry there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    pub what: String,
}

impl Fault {
    pub(super) fn new(file: &Path, what: impl Into<String>) -> Self {
        Self { file: file.into(), position: None, offset: None, what: what.into() }
    }

    pub(super) const fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    pub(super) const fn offset(mut self, offset: i64) -> Self {
        self.offset = Some(offset);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FAULT {}", self.file.display())?;
        if let Some(position) = self.position {
            write!(f, " at position {position}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What was looked at, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub partitions: u64,
    pub files: u64,
    pub batches: u64,
    /// Records as the batches count them, markers among them.
    pub records: u64,
    /// Of batches.
    pub bytes: u64,
    pub faults: u64,
    /// The first faults, up to [`FAULTS_KEPT`].
    #[serde(skip)]
    pub first_faults: Vec<Fault>,
}

/// How many faults a [`Summary`] remembers.
pub const FAULTS_KEPT: usize = 16;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (partitions, files) = (Exactly(self.partitions), Exactly(self.files));
        let (batches, records) = (Exactly(self.batches), Exactly(self.records));
        write!(
            f,
            "{partitions} partitions, {files} files, {batches} batches, {records} records, {}: ",
            Bytes(self.bytes)
        )?;
        match self.faults {
            0 => f.write_str("no fault"),
            1 => f.write_str("1 FAULT"),
            faults => write!(f, "{} FAULTS", Exactly(faults)),
        }
    }
}

/// A line of JSON: what it is about stands beside the file it is from.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a Path,
    #[serde(flatten)]
    item: &'a Item<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told<'a> {
    Fault(&'a Fault),
    Summary(&'a Summary),
}

/// Shows items and faults, and counts.
pub(super) struct Report<'w> {
    out: &'w mut dyn Write,
    json: bool,
    quiet: bool,
    /// The file whose items are being shown.
    file: PathBuf,
    pub(super) summary: Summary,
}

impl<'w> Report<'w> {
    pub(super) fn new(out: &'w mut dyn Write, json: bool, quiet: bool) -> Self {
        Self { out, json, quiet, file: PathBuf::new(), summary: Summary::default() }
    }

    /// Whether items are shown at all.
    pub(super) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(super) fn item(&mut self, file: &Path, item: &Item<'_>) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.json {
            serde_json::to_writer(&mut self.out, &Line { file, item })?;
            return self.out.write_all(b"\n");
        }
        if self.file != file {
            self.file = file.into();
            writeln!(self.out, "{}", file.display())?;
        }
        writeln!(self.out, "  {item}")
    }

    pub(super) fn fault(&mut self, fault: Fault) -> io::Result<()> {
        self.summary.faults += 1;
        self.told(&Told::Fault(&fault), &fault)?;
        if self.summary.first_faults.len() < FAULTS_KEPT {
            self.summary.first_faults.push(fault);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<Summary> {
        let summary = std::mem::take(&mut self.summary);
        self.told(&Told::Summary(&summary), &summary)?;
        Ok(summary)
    }

    fn told(&mut self, told: &Told<'_>, text: &dyn fmt::Display) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.out, told)?;
            self.out.write_all(b"\n")
        } else {
            writeln!(self.out, "{text}")
        }
    }
}
