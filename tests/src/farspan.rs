//! farspan as a process of its own: started, killed, started again on the same ports and folder, and
//! asked for its metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::ports::Lease;
use crate::process::{Process, tied, wait_until};

/// What to start.
#[derive(Clone, Debug)]
pub struct FarspanOptions {
    /// The program: `env!("CARGO_BIN_EXE_node")` of the test that starts it.
    pub program: PathBuf,
    /// `HOST:PORT` of the source; without one it only serves.
    pub from: Option<String>,
    pub shards: u16,
    pub memory_bytes: usize,
    pub segment_bytes: u32,
    /// The limit on its descriptors, where not that of the test.
    pub descriptors_max: Option<u64>,
}

/// A node that runs or is down. Dropping it kills it.
#[derive(Debug)]
pub struct Farspan {
    options: FarspanOptions,
    port: Lease,
    http: Lease,
    folder: tempfile::TempDir,
    process: Option<Process>,
}

const READY_WITHIN: Duration = Duration::from_secs(60);

impl Farspan {
    /// Starts one on a new folder and returns when it serves.
    pub fn start(options: FarspanOptions) -> Result<Self, String> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("farspan-node-");
        builder.disable_cleanup(std::env::var_os("FARSPAN_KEEP").is_some());
        let folder = builder.tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        let (port, http) = (Lease::take()?, Lease::take()?);
        let mut farspan = Self { options, port, http, folder, process: None };
        farspan.launch()?;
        farspan.await_ready()?;
        Ok(farspan)
    }

    /// Starts it again after [`Farspan::kill9`] or [`Farspan::stop`], and does not wait.
    pub fn launch(&mut self) -> Result<(), String> {
        let options = &self.options;
        let mut command = match options.descriptors_max {
            Some(most) => limited(most, &options.program),
            None => tied(&options.program),
        };
        command.arg("--data").arg(self.data());
        command.args(["--listen", &self.port.address(), "--http", &self.http.address()]);
        command.args(["--shards", &options.shards.to_string()]);
        command.args(["--memory-bytes", &options.memory_bytes.to_string()]);
        command.args(["--segment-bytes", &options.segment_bytes.to_string()]);
        if let Some(from) = &options.from {
            command.args(["--from", from]);
        }
        self.process = Some(Process::start("farspan", command, &self.output())?);
        Ok(())
    }

    /// Waits until it says how it is.
    pub fn await_ready(&mut self) -> Result<(), String> {
        wait_until("farspan to serve", READY_WITHIN, || {
            if let Some(status) = self.process.as_mut().and_then(Process::ended) {
                return Some(Err(format!("it ended with {status}")));
            }
            self.metrics().map(|_| Ok(()))
        })
        .and_then(|outcome| outcome)
        .map_err(|error| self.explain(&error))
    }

    /// SIGKILL.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// SIGTERM, and waits until it has stopped in order.
    pub fn stop(&mut self) -> Result<(), String> {
        let mut process = self.process.take().ok_or("farspan does not run")?;
        let status = process.terminate(READY_WITHIN)?;
        if status.success() {
            Ok(())
        } else {
            Err(process.explain(&format!("ended with {status}")))
        }
    }

    /// Whether it runs; it may have ended by itself.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Where Kafka clients reach it.
    pub fn bootstrap(&self) -> String {
        self.port.address()
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number()).into()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn partition_dir(&self, topic: &str, partition: u32) -> PathBuf {
        self.data().join(format!("{topic}-{partition}"))
    }

    /// What it printed, over all its lives.
    pub fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    /// `what` with its last line of trouble.
    pub fn explain(&self, what: &str) -> String {
        match &self.process {
            Some(process) => process.explain(what),
            None => format!("{what} (its output is in {})", self.output().display()),
        }
    }

    /// All numbers, summed over the shards; `None` while it does not answer.
    pub fn metrics(&self) -> Option<BTreeMap<String, u64>> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.http.number()));
        let text = get(address, "/metrics")?;
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ')?;
            let name = name.split('{').next().unwrap_or(name);
            *sums.entry(name.to_owned()).or_insert(0) += value.parse::<u64>().ok()?;
        }
        Some(sums)
    }

    /// One number; an error names it.
    pub fn metric(&self, name: &str) -> Result<u64, String> {
        let metrics = self.metrics().ok_or_else(|| self.explain("no metrics"))?;
        metrics.get(name).copied().ok_or_else(|| format!("there is no metric {name}"))
    }
}

/// A program with a hard limit on descriptors, without the right to raise it that root has.
fn limited(most: u64, program: &Path) -> Command {
    let mut command = tied("prlimit");
    command.arg(format!("--nofile={most}")).arg("--");
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        command.args(["setpriv", "--bounding-set", "-sys_resource", "--"]);
    }
    command.arg(program);
    command
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let timeout = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, timeout).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: farspan\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// Descriptors that a process has open; `None` once it is gone.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).ok()?.count())
}
