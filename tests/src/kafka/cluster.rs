//! Stock brokers on loopback that can be killed, restarted and measured.
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::install::{Installation, QUICK_JVM, run};
use super::properties::{self, Node, Quorum};
use super::ready;
use crate::ports::Lease;
use crate::process::{self, Process, wait_until};

/// The same for every cluster: storage is formatted anew each time, so nothing can be mixed up.
const CLUSTER_ID: &str = "ZmFyc3Bhbi10ZXN0cy0xMg";

/// What to start.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// 1 to 3. Of three each is a controller too; of fewer only the first.
    pub brokers: usize,
    /// Settings of the brokers; they win over ours.
    pub config: Vec<(String, String)>,
    pub heap_mb: u32,
    /// Flags of the brokers' JVMs. The default starts quickly; measurements want the optimizer.
    pub jvm: Vec<String>,
    /// More arguments for formatting KRaft storage, such as `--release-version 4.0`.
    pub format_arguments: Vec<String>,
    /// Where data goes instead of the folder for temporary files. Kept when the cluster is dropped.
    pub folder: Option<PathBuf>,
    pub ready_within: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions {
            brokers: 1,
            config: Vec::new(),
            heap_mb: 512,
            jvm: QUICK_JVM.map(str::to_owned).to_vec(),
            format_arguments: Vec::new(),
            folder: None,
            ready_within: Duration::from_secs(60),
        }
    }
}

impl ClusterOptions {
    /// One more setting of the brokers.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn brokers(mut self, brokers: usize) -> Self {
        self.brokers = brokers;
        self
    }
}

/// Running brokers, numbered from 1. Dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    options: ClusterOptions,
    brokers: Vec<Broker>,
    zookeeper: Option<ZooKeeper>,
    voters: String,
    // Last, so that it is removed after the processes are gone.
    _folder: Folder,
}

#[derive(Debug)]
struct Broker {
    id: usize,
    port: Lease,
    controller: Option<Lease>,
    folder: PathBuf,
    process: Option<Process>,
}

#[derive(Debug)]
struct ZooKeeper {
    port: Lease,
    _process: Process,
}

#[derive(Debug)]
enum Folder {
    Temporary(tempfile::TempDir),
    Given(PathBuf),
}

impl Cluster {
    /// Starts the brokers and returns when each knows all.
    pub fn start(installation: &Installation, options: ClusterOptions) -> Result<Cluster, String> {
        if !(1..=3).contains(&options.brokers) {
            return Err(format!("a cluster has 1 to 3 brokers, not {}", options.brokers));
        }
        let folder = Folder::new(options.folder.as_deref())?;
        let zookeeper = if installation.needs_zookeeper() {
            Some(ZooKeeper::start(installation, folder.path(), options.ready_within)?)
        } else {
            None
        };
        let controllers = match (&zookeeper, options.brokers) {
            (Some(_), _) => 0,
            (None, 3) => 3,
            (None, _) => 1,
        };
        let mut brokers = Vec::new();
        for id in 1..=options.brokers {
            let controller = if id <= controllers { Some(Lease::take()?) } else { None };
            let folder = folder.path().join(format!("broker-{id}"));
            brokers.push(Broker { id, port: Lease::take()?, controller, folder, process: None });
        }
        let voters = brokers.iter().filter_map(|broker| {
            Some(format!("{}@{}", broker.id, broker.controller.as_ref()?.address()))
        });
        let voters = voters.collect::<Vec<_>>().join(",");
        let installation = installation.clone();
        let mut cluster =
            Cluster { installation, options, brokers, zookeeper, voters, _folder: folder };
        cluster.prepare()?;
        for id in 1..=cluster.options.brokers {
            cluster.launch(id)?;
        }
        for id in 1..=cluster.options.brokers {
            cluster.await_ready(id, cluster.options.brokers)?;
        }
        Ok(cluster)
    }

    /// `127.0.0.1:PORT,...` of all brokers.
    pub fn bootstrap(&self) -> String {
        let addresses = self.brokers.iter().map(|broker| broker.port.address());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// `127.0.0.1:PORT` of one broker.
    pub fn address(&self, broker: usize) -> String {
        self.broker(broker).port.address()
    }

    /// `id@127.0.0.1:PORT,...` of the KRaft controllers; empty with ZooKeeper.
    pub fn controllers(&self) -> &str {
        &self.voters
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Where a broker keeps its partitions.
    pub fn log_dir(&self, broker: usize) -> PathBuf {
        self.broker(broker).folder.join("data")
    }

    /// The folder of one partition on a broker.
    pub fn partition_dir(&self, broker: usize, topic: &str, partition: u32) -> PathBuf {
        self.log_dir(broker).join(format!("{topic}-{partition}"))
    }

    /// What a broker printed, over all its lives.
    pub fn output(&self, broker: usize) -> PathBuf {
        self.broker(broker).folder.join("output")
    }

    /// `None` while it is down.
    pub fn pid(&self, broker: usize) -> Option<u32> {
        self.broker(broker).process.as_ref().map(Process::pid)
    }

    /// Of the brokers that run.
    pub fn pids(&self) -> Vec<u32> {
        (1..=self.brokers.len()).filter_map(|id| self.pid(id)).collect()
    }

    /// Processor time of the brokers that run, since they were started.
    pub fn cpu_seconds(&self) -> f64 {
        self.pids().into_iter().filter_map(process::cpu_seconds).sum()
    }

    /// SIGKILL. Ports and data stay.
    pub fn kill9(&mut self, broker: usize) {
        // Dropping kills and waits.
        self.broker_mut(broker).process = None;
    }

    /// SIGTERM, and waits until it has shut down in order.
    pub fn stop(&mut self, broker: usize) -> Result<(), String> {
        let within = self.options.ready_within;
        match self.broker_mut(broker).process.take() {
            Some(mut process) => process.terminate(within).map(|_| ()),
            None => Err(format!("broker {broker} does not run")),
        }
    }

    /// SIGSTOP: connected, and silent.
    pub fn pause(&self, broker: usize) -> Result<(), String> {
        self.running(broker)?.pause()
    }

    pub fn resume(&self, broker: usize) -> Result<(), String> {
        self.running(broker)?.resume()
    }

    /// Starts a broker that is down, or first stops one that runs; same ports, same data.
    pub fn restart(&mut self, broker: usize) -> Result<(), String> {
        if self.pid(broker).is_some() {
            self.stop(broker)?;
        }
        if let Some(zookeeper) = &self.zookeeper {
            zookeeper.await_forgotten(broker, self.options.ready_within)?;
        }
        self.launch(broker)?;
        self.await_ready(broker, 1)
    }

    /// Changes a setting of one broker; it holds from the next restart on.
    pub fn configure(&mut self, broker: usize, config: &[(String, String)]) -> Result<(), String> {
        self.options.config.extend_from_slice(config);
        self.write_properties(broker)
    }

    fn broker(&self, id: usize) -> &Broker {
        assert!((1..=self.brokers.len()).contains(&id), "brokers are numbered from 1, not {id}");
        &self.brokers[id - 1]
    }

    fn broker_mut(&mut self, id: usize) -> &mut Broker {
        assert!((1..=self.brokers.len()).contains(&id), "brokers are numbered from 1, not {id}");
        &mut self.brokers[id - 1]
    }

    fn running(&self, id: usize) -> Result<&Process, String> {
        self.broker(id).process.as_ref().ok_or_else(|| format!("broker {id} does not run"))
    }

    /// Files and, with KRaft, formatted storage; brokers side by side, for a JVM start is slow.
    fn prepare(&self) -> Result<(), String> {
        for broker in &self.brokers {
            fs::create_dir_all(broker.folder.join("data"))
                .map_err(|e| format!("{}: {e}", broker.folder.display()))?;
            self.write_properties(broker.id)?;
        }
        if self.zookeeper.is_some() {
            return Ok(());
        }
        std::thread::scope(|scope| {
            let formats: Vec<_> = self
                .brokers
                .iter()
                .map(|broker| scope.spawn(move || self.format(&broker.folder)))
                .collect();
            formats.into_iter().try_for_each(|format| format.join().expect("format panicked"))
        })
    }

    fn format(&self, folder: &Path) -> Result<(), String> {
        let mut tool = self.installation.tool("kafka.tools.StorageTool");
        tool.args(["format", "-t", CLUSTER_ID, "-c"]).arg(folder.join("server.properties"));
        tool.args(&self.options.format_arguments);
        run("formatting the storage", &mut tool).map(|_| ())
    }

    fn write_properties(&self, id: usize) -> Result<(), String> {
        let broker = self.broker(id);
        let controller = broker.controller.as_ref().map(Lease::address);
        let zookeeper = self.zookeeper.as_ref().map(|zookeeper| zookeeper.port.address());
        let quorum = match &zookeeper {
            Some(address) => Quorum::ZooKeeper { address },
            None => Quorum::Kraft { controller: controller.as_deref(), voters: &self.voters },
        };
        let data = broker.folder.join("data");
        let node = Node {
            id,
            address: &broker.port.address(),
            data: &data.to_string_lossy(),
            quorum,
            brokers: self.brokers.len(),
        };
        let path = broker.folder.join("server.properties");
        let text = properties::text(&properties::server(&node, &self.options.config));
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn launch(&mut self, id: usize) -> Result<(), String> {
        let jvm: Vec<&str> = self.options.jvm.iter().map(String::as_str).collect();
        let mut command: Command = self.installation.java(&jvm);
        // After the class path is still before the main class.
        command.arg(format!("-Xmx{}m", self.options.heap_mb)).arg("kafka.Kafka");
        command.arg(self.broker(id).folder.join("server.properties"));
        let process = Process::start(&format!("broker {id}"), command, &self.output(id))?;
        self.broker_mut(id).process = Some(process);
        Ok(())
    }

    /// Ready is: it answers, knows itself to be live, and knows `count` live brokers.
    fn await_ready(&mut self, id: usize, count: usize) -> Result<(), String> {
        let within = self.options.ready_within;
        let broker = self.broker_mut(id);
        let address = ([127, 0, 0, 1], broker.port.number()).into();
        let node = i32::try_from(id).expect("at most three");
        let process = broker.process.as_mut().ok_or_else(|| format!("broker {id} is down"))?;
        let waited = wait_until(&format!("broker {id}"), within, || {
            if let Some(status) = process.ended() {
                return Some(Err(format!("broker {id} ended with {status}")));
            }
            let live = if ready::answers(address) { ready::live_brokers(address) } else { vec![] };
            (live.len() >= count && live.contains(&node)).then_some(Ok(()))
        });
        waited.and_then(|outcome| outcome).map_err(|error| process.explain(&error))
    }
}

impl ZooKeeper {
    fn start(java: &Installation, folder: &Path, within: Duration) -> Result<ZooKeeper, String> {
        let folder = folder.join("zookeeper");
        let io = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(io)?;
        let port = Lease::take()?;
        let file = folder.join("zookeeper.properties");
        let data = folder.join("data");
        let properties = properties::zookeeper(port.number(), &data.to_string_lossy());
        fs::write(&file, properties::text(&properties)).map_err(io)?;
        let mut command = java.java(&QUICK_JVM);
        command.args(["-Xmx128m", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]).arg(file);
        let mut process = Process::start("ZooKeeper", command, &folder.join("output"))?;
        let waited = wait_until("ZooKeeper", within, || {
            if let Some(status) = process.ended() {
                return Some(Err(format!("ZooKeeper ended with {status}")));
            }
            sessions(&port.address()).map(|_| Ok(()))
        });
        waited.and_then(|outcome| outcome).map_err(|error| process.explain(&error))?;
        Ok(ZooKeeper { port, _process: process })
    }

    /// A broker refuses to start while its former life's registration is there.
    fn await_forgotten(&self, broker: usize, within: Duration) -> Result<(), String> {
        let path = format!("/brokers/ids/{broker}");
        wait_until(&format!("ZooKeeper to forget broker {broker}"), within, || {
            let sessions = sessions(&self.port.address())?;
            (!sessions.lines().any(|line| line.trim() == path)).then_some(())
        })
    }
}

/// ZooKeeper's list of sessions and of what hangs on them.
fn sessions(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    // While it starts it may take a connection and never say anything.
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"dump").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("SessionTracker").then_some(text)
}

impl Folder {
    fn new(given: Option<&Path>) -> Result<Folder, String> {
        if let Some(path) = given {
            fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
            return Ok(Folder::Given(path.to_owned()));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix("farspan-cluster-");
        // To look at what is left of a failed test.
        builder.disable_cleanup(std::env::var_os("FARSPAN_KEEP").is_some());
        let folder = builder.tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        Ok(Folder::Temporary(folder))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Temporary(folder) => folder.path(),
            Folder::Given(path) => path,
        }
    }
}
