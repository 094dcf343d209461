//! What it costs to be read: the same topic, read whole from farspan and from the stock broker.

use std::process::{Command, Stdio};

use ::tests::kafka::Isolation;
use wire::fetch::IsolationLevel;

use super::{Subject, in_turns};
use crate::options::Options;
use crate::peers::farspan::{self, Work};
use crate::peers::stock::{PARTITIONS, Stock, TOPIC};
use crate::report::Report;
use crate::usage::{Sample, Watch};

/// Who reads.
const READERS: [(&str, Reader); 3] =
    [("bare client", bare), ("Java consumer", java), ("kcat", kcat)];

type Reader = fn(&Stock, &str) -> Result<(), String>;

pub fn run(options: &Options) -> Result<Report, String> {
    let folder = options.folder()?;
    let stock = Stock::start(folder.path().join("kafka"), 1, options.bytes)?;
    let data = folder.path().join("farspan");
    let from = stock.cluster().address(1);
    let work = Work { from: &from, topic: TOPIC, partitions: PARTITIONS, bytes: stock.bytes };
    let variant = &options.variants[0];
    let (_, mirror) = farspan::catch_up(options, variant, &data, &work, &[])?;
    let servers = [
        ("farspan", mirror.process.pid(), mirror.address()),
        ("stock broker", stock.leader_pid()?, from.clone()),
    ];
    let has_kcat = tests::kafka::Kcat::get().is_ok();
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    for (reader, read) in READERS.iter().filter(|(name, _)| *name != "kcat" || has_kcat) {
        for (server, pid, address) in &servers {
            let stock = &stock;
            let run = move || measure(stock, (server, *pid), address, *read);
            subjects.push((format!("{server}, {reader}"), Box::new(run)));
        }
    }
    let mut report = Report::new(in_turns(options, subjects)?);
    let mut figures = Vec::new();
    for (reader, _) in READERS {
        let pair = (format!("farspan, {reader}"), format!("stock broker, {reader}"));
        if let Some((speed, cpu)) = report.compare(&pair.0, &pair.1) {
            figures.push(format!("{reader}: {speed:.2} of the speed, {cpu:.2} of the CPU"));
        }
    }
    report.note("speed is mostly the reader's; CPU is the server's");
    report.figure(format!("serve, farspan to stock broker: {}", figures.join("; ")));
    Ok(report)
}

fn measure(
    stock: &Stock,
    server: (&'static str, u32),
    address: &str,
    read: Reader,
) -> Result<Sample, String> {
    let watch = Watch::start(&[server]);
    read(stock, address)?;
    watch.stop(stock.bytes)
}

/// Fetches and looks at batch headers only.
fn bare(_: &Stock, address: &str) -> Result<(), String> {
    let settings = tools::client::Settings {
        isolation: IsolationLevel::READ_UNCOMMITTED,
        check_crcs: false,
        ..tools::client::Settings::default()
    };
    let mut client = tools::client::Client::new(address, settings);
    client.read_to_end(Some(&[TOPIC]), |_, _| {}).map_err(|error| error.to_string())
}

fn java(stock: &Stock, address: &str) -> Result<(), String> {
    stock.workload.at(address).digest(TOPIC, Isolation::Uncommitted).map(drop)
}

fn kcat(_: &Stock, address: &str) -> Result<(), String> {
    let mut kcat = Command::new(std::env::var_os("FARSPAN_KCAT").unwrap_or_else(|| "kcat".into()));
    kcat.args(["-C", "-q", "-e", "-o", "beginning", "-b", address, "-t", TOPIC, "-f", ""]);
    let status = kcat.stdout(Stdio::null()).status().map_err(|error| format!("kcat: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("kcat: {status}")) }
}
