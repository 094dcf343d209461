//! How fast and how cheaply a topic of a stock broker is copied from nothing: by farspan from the
//! start of its process, by a stock follower that has just started from the moment it is told to, and by a thread that
//! only receives and writes.

use std::fs;

use ::tests::kafka::joined::first_difference;

use super::{Subject, in_turns};
use crate::options::{Options, Variant};
use crate::peers::farspan::{self, Work};
use crate::peers::raw;
use crate::peers::stock::{PARTITIONS, Stock, TOPIC};
use crate::report::Report;
use crate::usage::{PageCache, Sample};

const FOLLOWER: &str = "stock follower";
/// The same, in a JVM that has copied the topic before and has compiled what it needs for it.
const FOLLOWER_WARM: &str = "warm follower";
const RAW: &str = "receive+write";
const RAW_CRC: &str = "receive+CRC+write";

/// The goal: at least three times the follower's speed, at most a sixth of its processor time.
const SPEED_LEAST: f64 = 3.0;
const CPU_MOST: f64 = 1.0 / 6.0;

pub fn run(options: &Options) -> Result<Report, String> {
    let folder = options.folder()?;
    let cache = &PageCache::new(folder.path());
    let stock = Stock::start(folder.path().join("kafka"), 2, options.bytes)?;
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    for variant in &options.variants {
        let mut checked = false;
        let (stock, folder) = (&stock, folder.path());
        let run = move || {
            cache.fill()?;
            let sample = mirror(options, variant, stock, folder, !checked)?;
            checked = true;
            Ok(sample)
        };
        subjects.push((variant.name.clone(), Box::new(run)));
    }
    for (name, fresh) in [(FOLLOWER, true), (FOLLOWER_WARM, false)] {
        let stock = &stock;
        let run = move || {
            if fresh {
                stock.restart_follower()?;
            }
            cache.fill()?;
            stock.follow()
        };
        subjects.push((name.to_owned(), Box::new(run)));
    }
    for (name, crc) in [(RAW, false), (RAW_CRC, true)] {
        let (stock, folder) = (&stock, folder.path());
        let run = move || {
            cache.fill()?;
            let data = folder.join("raw");
            fs::create_dir_all(&data).map_err(|error| error.to_string())?;
            let files = PARTITIONS as usize;
            let (from, bytes) = (stock.segments()?, stock.bytes);
            let shape = raw::Shape { bytes, from, chunk_bytes: 1 << 20, files, crc };
            let sample = raw::run(&data, &shape)?;
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
            Ok(sample)
        };
        subjects.push((name.to_owned(), Box::new(run)));
    }
    let rows = in_turns(options, subjects)?;
    let mut report = Report::new(rows);
    for variant in options.variants.iter().skip(1) {
        report.compare(&variant.name, "farspan");
    }
    report.compare("farspan", RAW);
    report.compare("farspan", RAW_CRC);
    report.compare("farspan", FOLLOWER_WARM);
    let ratios = report.compare("farspan", FOLLOWER);
    report.note("farspan: from the start of its process until every byte is in the segment files");
    report.note("receive+write: a thread that does nothing else, with the source's segment files sent to it as a broker sends them");
    report.note("follower: a broker that has just started and joined, which is left out, from the reassignment until 8 of 8 are in the ISR");
    if let Some((speed, cpu)) = ratios {
        report.at_least("farspan's MB/s to the follower's", speed, SPEED_LEAST);
        report.at_most("farspan's CPU seconds per GB to the follower's", cpu, CPU_MOST);
        let farspan = report.row("farspan").map(|row| (row.mb_per_second, row.cpu_seconds_per_gb));
        let (mb, gb) = farspan.expect("it was compared");
        report.figure(format!(
            "catch-up: {:.0} MB/s, {speed:.2} times a stock follower; {:.3} CPU s/GB, {cpu:.3} of its",
            mb.median, gb.median
        ));
    }
    Ok(report)
}

/// One catch-up; `check` compares every byte after it.
fn mirror(
    options: &Options,
    variant: &Variant,
    stock: &Stock,
    folder: &std::path::Path,
    check: bool,
) -> Result<Sample, String> {
    let data = folder.join("farspan");
    let from = stock.cluster().address(1);
    let work = Work { from: &from, topic: TOPIC, partitions: PARTITIONS, bytes: stock.bytes };
    let others = [("source", stock.leader_pid()?)];
    let (sample, farspan) = farspan::catch_up(options, variant, &data, &work, &others)?;
    drop(farspan);
    if check {
        for partition in 0..PARTITIONS {
            let theirs = stock.cluster().partition_dir(1, TOPIC, partition);
            let ours = data.join(format!("{TOPIC}-{partition}"));
            if let Some(difference) = first_difference(&theirs, &ours, 0)? {
                return Err(format!("partition {partition} differs: {difference}"));
            }
        }
    }
    fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
    Ok(sample)
}
