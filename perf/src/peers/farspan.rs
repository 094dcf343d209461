//! farspan as a process: started on an empty folder, watched from outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use ::tests::ports::Lease;
use ::tests::process::{Process, tied};

use crate::options::{Options, Variant};
use crate::usage::{self, Sample, Watch};

/// A farspan that runs. Dropping it kills it; its data stays.
pub struct Farspan {
    pub process: Process,
    listen: Lease,
    http: Lease,
}

/// What is mirrored, and how much there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub from: &'a str,
    pub topic: &'a str,
    pub partitions: u32,
    pub bytes: u64,
}

impl Farspan {
    pub fn start(
        options: &Options,
        variant: &Variant,
        data: &Path,
        work: &Work<'_>,
    ) -> Result<Self, String> {
        let (listen, http) = (Lease::take()?, Lease::take()?);
        let mut command = match &options.farspan {
            Some(program) => {
                let mut command = tied(program);
                command.arg("mirror");
                command
            }
            None => {
                let mut command = tied(std::env::current_exe().map_err(|e| e.to_string())?);
                command.arg("node");
                command
            }
        };
        command.args(["--from", work.from, "--topics", work.topic]);
        command.args(["--listen", &listen.address(), "--http", &http.address()]);
        command.arg("--data").arg(data).args(&variant.flags);
        let output = data.with_extension("output");
        Ok(Self { process: Process::start("farspan", command, &output)?, listen, http })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.listen.address()
    }

    /// Waits until every byte is in the segment files.
    fn await_bytes(&mut self, data: &Path, work: &Work<'_>) -> Result<(), String> {
        let Work { topic, partitions, bytes, .. } = *work;
        usage::poll("all bytes", Duration::from_secs(300), || {
            if let Some(status) = self.process.ended() {
                return Err(self.process.explain(&format!("it ended with {status}")));
            }
            Ok(usage::log_bytes(data, topic, partitions) >= bytes)
        })
    }

    /// Waits until farspan knows that nothing is missing. Its metrics are as old as a tick, which is
    /// why this stands outside what is timed.
    fn await_lag_0(&self, bytes: u64) -> Result<(), String> {
        usage::poll("lag 0", Duration::from_secs(10), || {
            let metrics = self.metrics()?;
            let appended = number(&metrics, "farspan_appended_bytes_total");
            Ok(number(&metrics, "farspan_lag_records") == 0 && appended == bytes)
        })
    }

    fn metrics(&self) -> Result<String, String> {
        let ask = || {
            let mut stream = TcpStream::connect(self.http.address())?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().map_err(|error: std::io::Error| format!("metrics: {error}"))
    }
}

/// From the start of the process until every byte is in the segment files.
pub fn catch_up(
    options: &Options,
    variant: &Variant,
    data: &Path,
    work: &Work<'_>,
    others: &[(&'static str, u32)],
) -> Result<(Sample, Farspan), String> {
    let mut watch = Watch::start(others);
    let mut farspan = Farspan::start(options, variant, data, work)?;
    watch.put_first("farspan", farspan.process.pid());
    farspan.await_bytes(data, work)?;
    let sample = watch.stop(work.bytes)?;
    farspan.await_lag_0(work.bytes)?;
    Ok((sample, farspan))
}

/// A metric's sum over all its series.
fn number(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { rest.split_once('}')?.1 } else { rest };
        rest.strip_prefix(' ')?.trim().parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_series_and_not_mistaken_for_a_longer_name() {
        let text = "# HELP a x\na{shard=\"0\"} 1\na{shard=\"1\"} 2\na_b 7\n";
        assert_eq!(number(text, "a"), 3);
    }
}
