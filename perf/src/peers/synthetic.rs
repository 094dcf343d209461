//! `perf source`: the synthetic cluster in a process of its own, with endless logs.

use std::path::Path;
use std::time::Duration;

use ::tests::process::{Process, tied};
use clap::Parser;
use tools::synthetic::{Cluster, Growth, NewBatch, Ring, Settings, serve};
use wire::ids::Offset;

pub const TOPIC: &str = "endless";

#[derive(Clone, Copy, Debug, Parser)]
#[command(no_binary_name = true)]
pub struct Shape {
    #[arg(long)]
    pub partitions: u32,
    /// Bytes over all partitions, about.
    #[arg(long)]
    pub bytes: u64,
    #[arg(long)]
    pub batch_bytes: usize,
}

const RECORD_BYTES: usize = 1_000;
/// Different batches, so that the source's memory is no smaller than a cache.
const RING_BYTES: usize = 16 << 20;

/// Serves until it is killed. Says where, and how much there is.
pub fn main(words: impl Iterator<Item = String>) -> Result<(), String> {
    let shape = Shape::try_parse_from(words).map_err(|error| error.to_string())?;
    let records = (shape.batch_bytes / RECORD_BYTES).max(1);
    let count = (RING_BYTES / shape.batch_bytes).max(1) as u64;
    let batches: Vec<_> =
        (0..count).map(|seed| NewBatch::filled(records, RECORD_BYTES, 0, seed)).collect();
    let ring_bytes: u64 = batches
        .iter()
        .map(|batch| batch.build(Offset(0), wire::ids::LeaderEpoch(0)).len() as u64)
        .sum();
    let ring_records = count * records as u64;
    let rounds = (shape.bytes / u64::from(shape.partitions)).div_ceil(ring_bytes).max(1);
    let end = i64::try_from(rounds * ring_records).map_err(|_| "too many records")?;
    let mut cluster = Cluster::new(Settings { broker_count: 1, ..Settings::default() });
    let partitions = i32::try_from(shape.partitions).map_err(|_| "too many partitions")?;
    let growth = Growth::Until(Offset(end));
    cluster.create_endless_topic(TOPIC, partitions, &Ring::of(&batches), growth);
    let running = serve::serve(cluster).map_err(|error| error.to_string())?;
    println!("{} {}", running.bootstrap(), ring_bytes * rounds * u64::from(shape.partitions));
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A synthetic source that runs.
pub struct Source {
    pub process: Process,
    pub address: String,
    /// Over all partitions.
    pub bytes: u64,
}

impl Source {
    pub fn start(folder: &Path, shape: Shape) -> Result<Self, String> {
        let mut command = tied(std::env::current_exe().map_err(|e| e.to_string())?);
        command.arg("source");
        command.args(["--partitions", &shape.partitions.to_string()]);
        command.args(["--bytes", &shape.bytes.to_string()]);
        command.args(["--batch-bytes", &shape.batch_bytes.to_string()]);
        let output = folder.join(format!("source-{}.output", shape.batch_bytes));
        let mut process = Process::start("synthetic source", command, &output)?;
        let line = tests::process::wait_until("the source", Duration::from_secs(30), || {
            if process.ended().is_some() {
                return Some(Err(process.explain("the source ended")));
            }
            let text = std::fs::read_to_string(&output).ok()?;
            text.ends_with('\n').then_some(Ok(text))
        })??;
        let (address, bytes) = line.trim().split_once(' ').ok_or("the source says nothing")?;
        let bytes = bytes.parse().map_err(|error| format!("{bytes}: {error}"))?;
        Ok(Self { process, address: address.to_owned(), bytes })
    }
}
