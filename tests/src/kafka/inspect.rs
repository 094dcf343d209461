//! Kafka's own opinion of the files of a partition.
use std::path::{Path, PathBuf};

use super::install::{Installation, run};
use super::joined::files;

/// What the tool says of files that are not as they should be. It exits with 0 all the same.
const COMPLAINTS: [&str; 9] = [
    "isvalid: false",
    "Mismatches in",
    "imestamp mismatch in",
    "Found out of order timestamp",
    "Non-consecutive offsets",
    "invalid bytes at the end",
    "sanity check failed",
    "Exception",
    "orrupt",
];

/// What the tool printed.
#[derive(Clone, Debug)]
pub struct Dump {
    pub text: String,
}

impl Dump {
    /// The lines that say that something is wrong.
    pub fn complaints(&self) -> Vec<&str> {
        let wrong = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
        self.text.lines().filter(wrong).collect()
    }

    /// The lines that begin with this, without it: `baseOffset: ` gives the batches.
    pub fn lines_with<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(start))
    }
}

/// Runs `DumpLogSegments` over any files of partitions, with the given arguments beside `--files`.
pub fn dump(java: &Installation, paths: &[PathBuf], arguments: &[&str]) -> Result<Dump, String> {
    let class = java
        .first_class(&["org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"])?;
    let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let mut tool = java.tool(&class);
    tool.args(arguments).arg("--files").arg(names.join(","));
    let text = run("DumpLogSegments", &mut tool)?;
    Ok(Dump { text })
}

/// Every record of every segment.
pub fn dump_logs(java: &Installation, partition: &Path) -> Result<Dump, String> {
    let arguments = ["--deep-iteration", "--print-data-log"];
    dump(java, &files(partition, "log")?, &arguments)
}

/// Everything Kafka can check in a partition folder: records, both indexes against the log,
/// aborted transactions and producer snapshots. The dump's complaints should be empty.
///
/// Kafka truncates the indexes only when a segment is rolled or a broker stops in order; for the
/// files of a killed broker ask for [`dump_logs`] alone.
pub fn check_partition(java: &Installation, partition: &Path) -> Result<Dump, String> {
    check_partitions(java, &[partition.to_owned()])
}

/// As [`check_partition`], for many with two starts of a JVM.
pub fn check_partitions(java: &Installation, partitions: &[PathBuf]) -> Result<Dump, String> {
    let (mut paths, mut indexes) = (Vec::new(), Vec::new());
    for partition in partitions {
        for ending in ["log", "index", "timeindex", "txnindex", "snapshot"] {
            paths.extend(files(partition, ending)?);
        }
        indexes.extend(files(partition, "index")?);
    }
    let mut all = dump(java, &paths, &["--deep-iteration"])?;
    if !indexes.is_empty() {
        // Also what a broker checks when it opens them.
        all.text += &dump(java, &indexes, &["--index-sanity-check"])?.text;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_not_valid_is_a_complaint_and_a_valid_one_is_none() {
        let text = "baseOffset: 0 isvalid: true\nbaseOffset: 3 isvalid: false\n".to_owned();
        let dump = Dump { text };
        assert_eq!(dump.complaints(), ["baseOffset: 3 isvalid: false"]);
        assert_eq!(dump.lines_with("baseOffset: ").count(), 2);
    }
}
