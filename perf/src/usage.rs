//! What a process has used, and what one run has cost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::tests::process;
use serde::Serialize;

use crate::calm::Everybody;

/// One run of one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub bytes: u64,
    pub seconds: f64,
    /// Of the subject itself, with the kernel's workers that belong to it.
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    /// Processors that strangers kept busy meanwhile.
    pub strangers: f64,
    /// Of others that took part, by name.
    pub others_cpu_seconds: BTreeMap<String, f64>,
}

impl Sample {
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    pub fn cpu_per_gb(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / 1e9)
    }

    pub fn other_cpu_per_gb(&self, other: &str) -> Option<f64> {
        Some(self.others_cpu_seconds.get(other)? / (self.bytes as f64 / 1e9))
    }
}

/// Processes under a watch: time and processor time from its start on.
pub struct Watch {
    started: Instant,
    everybody: Everybody,
    /// The subject first.
    processes: Vec<(&'static str, u32, f64)>,
}

impl Watch {
    /// `processes` are names and pids, the subject first. One that starts with the watch has used
    /// nothing yet.
    pub fn start(processes: &[(&'static str, u32)]) -> Self {
        let used = |&(name, pid): &(&'static str, u32)| {
            (name, pid, process::cpu_seconds(pid).unwrap_or(0.0))
        };
        let processes = processes.iter().map(used).collect();
        Self { started: Instant::now(), everybody: Everybody::start(), processes }
    }

    /// The subject is a process that was started after the watch.
    pub fn put_first(&mut self, name: &'static str, pid: u32) {
        self.processes.insert(0, (name, pid, 0.0));
    }

    pub fn stop(self, bytes: u64) -> Result<Sample, String> {
        let seconds = self.started.elapsed().as_secs_f64();
        let mut used = Vec::new();
        for (name, pid, before) in &self.processes {
            let now = process::cpu_seconds(*pid).ok_or_else(|| format!("{name} is gone"))?;
            used.push(((*name).to_owned(), now - before));
        }
        let resident_bytes = process::resident_bytes_max(self.processes[0].1).unwrap_or(0);
        let ours: f64 = used.iter().map(|(_, seconds)| seconds).sum();
        let strangers = ((self.everybody.cpu_seconds() - ours) / seconds).max(0.0);
        let cpu_seconds = used.remove(0).1;
        let others_cpu_seconds = used.into_iter().collect();
        Ok(Sample { bytes, seconds, cpu_seconds, resident_bytes, strangers, others_cpu_seconds })
    }
}

/// Processor time of the calling thread, in seconds, to the nanosecond.
pub fn thread_cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// Memory that stays free when the page cache was filled.
const FREE_BYTES_LEFT: u64 = 512 << 20;

/// Pages that nobody needs, in all memory that is free: as the page cache of every server that has run
/// for a while is filled. A run takes its memory from there. Free memory in its place is memory that a
/// virtual machine's host may have to find first, and to whom that happens is chance.
#[derive(Debug)]
pub struct PageCache {
    folder: PathBuf,
    /// What holds the pages; where the kernel wants them it takes them.
    holes: RefCell<Vec<File>>,
}

impl PageCache {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), holes: RefCell::default() }
    }

    /// Takes what has become free.
    pub fn fill(&self) -> Result<(), String> {
        let free = memory_free_bytes().saturating_sub(FREE_BYTES_LEFT);
        if free == 0 {
            return Ok(());
        }
        let filled = || -> std::io::Result<File> {
            // A file of nothing but a hole costs no disk; its pages are as good as any.
            let mut file = tempfile::tempfile_in(&self.folder)?;
            file.set_len(free)?;
            let mut chunk = vec![0; 1 << 20];
            while file.read(&mut chunk)? > 0 {}
            Ok(file)
        };
        let file = filled().map_err(|error| format!("{}: {error}", self.folder.display()))?;
        self.holes.borrow_mut().push(file);
        Ok(())
    }
}

fn memory_free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The bytes in the segment files of some partitions of a topic.
pub fn log_bytes(data: &Path, topic: &str, partitions: u32) -> u64 {
    (0..partitions).map(|index| folder_log_bytes(&data.join(format!("{topic}-{index}")))).sum()
}

fn folder_log_bytes(partition: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(partition) else { return 0 };
    let logs =
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".log"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Looks again and again, rarely enough to cost nothing, until `done`.
pub fn poll(
    what: &str,
    within: Duration,
    mut done: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + within;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("waited {} s for {what}", within.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}
