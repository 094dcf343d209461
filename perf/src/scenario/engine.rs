//! The engine with a source that costs little: what it adds to receiving and writing.

use std::fs;
use std::path::Path;

use super::{Subject, in_turns};
use crate::options::{Options, Variant};
use crate::peers::farspan::{self, Work};
use crate::peers::raw;
use crate::peers::synthetic::{Shape, Source, TOPIC};
use crate::report::Report;
use crate::usage::{PageCache, Sample};

const PARTITIONS: u32 = 8;
const RESPONSES: [(&str, usize, usize); 2] =
    [("1 MiB", 1 << 20, 64 << 10), ("64 KiB", 64 << 10, 16 << 10)];

pub fn run(options: &Options) -> Result<Report, String> {
    let folder = options.folder()?;
    let cache = PageCache::new(folder.path());
    let mut rows = Vec::new();
    for (name, response_bytes, batch_bytes) in RESPONSES {
        let shape = Shape { partitions: PARTITIONS, bytes: options.bytes, batch_bytes };
        let source = Source::start(folder.path(), shape)?;
        let (source, folder, cache) = (&source, folder.path(), &cache);
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for variant in &options.variants {
            let mut flags = vec![
                format!("--fetch-bytes-max={response_bytes}"),
                format!("--partition-fetch-bytes-max={response_bytes}"),
            ];
            flags.extend(variant.flags.iter().cloned());
            let name = format!("{}, {name}", variant.name);
            let variant = Variant { name: name.clone(), flags };
            let run = move || {
                cache.fill()?;
                mirror(options, &variant, source, folder)
            };
            subjects.push((name, Box::new(run)));
        }
        let raw = move || {
            cache.fill()?;
            let data = folder.join("raw");
            fs::create_dir_all(&data).map_err(|error| error.to_string())?;
            let files = PARTITIONS as usize;
            let (bytes, chunk_bytes) = (source.bytes, response_bytes);
            let shape = raw::Shape { bytes, from: Vec::new(), chunk_bytes, files, crc: true };
            let sample = raw::run(&data, &shape)?;
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
            Ok(sample)
        };
        subjects.push((format!("receive+CRC+write, {name}"), Box::new(raw)));
        rows.extend(in_turns(options, subjects)?);
    }
    let mut report = Report::new(rows);
    let mut figures = Vec::new();
    for (name, ..) in RESPONSES {
        let (ours, raw) = (format!("farspan, {name}"), format!("receive+CRC+write, {name}"));
        if let Some((speed, cpu)) = report.compare(&ours, &raw) {
            figures.push(format!("{name} responses: {speed:.2} of the speed, {cpu:.2} of the CPU"));
        }
    }
    report.figure(format!("engine to receive+CRC+write: {}", figures.join("; ")));
    Ok(report)
}

fn mirror(
    options: &Options,
    variant: &Variant,
    source: &Source,
    folder: &Path,
) -> Result<Sample, String> {
    let data = folder.join("farspan");
    let (partitions, bytes) = (PARTITIONS, source.bytes);
    let work = Work { from: &source.address, topic: TOPIC, partitions, bytes };
    let others = [("source", source.process.pid())];
    let (sample, farspan) = farspan::catch_up(options, variant, &data, &work, &others)?;
    drop(farspan);
    fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
    Ok(sample)
}
