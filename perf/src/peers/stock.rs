//! Stock Kafka as its own scripts start it: a broker that holds the topic, and one that follows it.

use std::cell::{Ref, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use ::tests::kafka::{At, Cluster, ClusterOptions, Installation, Workload};
use wire::api::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use wire::api::{ApiKey, ErrorCode};
use wire::codec::{Reader, Writer};
use wire::frame::{frame_request, read_response_header};
use wire::ids::BrokerId;

use crate::usage::{self, Sample, Watch};

pub const VERSION: &str = "4.4.0";
pub const TOPIC: &str = "orders";
pub const PARTITIONS: u32 = 8;

const LEADER: BrokerId = BrokerId(1);
const FOLLOWER: BrokerId = BrokerId(2);

/// What kafka-run-class.sh and kafka-server-start.sh set.
const JVM: [&str; 8] = [
    "-server",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];

/// The sizes that the producer is allowed for its batches, one after another.
const BATCH_BYTES: [u64; 4] = [16 << 10, 32 << 10, 64 << 10, 128 << 10];
const RECORD_BYTES: u64 = 1_000;

/// Brokers, with a topic on the first of them.
pub struct Stock {
    cluster: RefCell<Cluster>,
    pub workload: Workload,
    /// In the topic's segment files.
    pub bytes: u64,
}

impl Stock {
    /// `brokers` brokers whose first one leads a topic of about `bytes`, and nobody else has it.
    pub fn start(folder: PathBuf, brokers: usize, bytes: u64) -> Result<Self, String> {
        let installation = Installation::get(VERSION)?;
        let options = ClusterOptions {
            heap_mb: 1024,
            jvm: JVM.map(str::to_owned).to_vec(),
            folder: Some(folder),
            ..ClusterOptions::default()
        };
        // As in the server.properties that Kafka ships, where the harness has less; and what is
        // given up by the follower goes soon.
        let options = options
            .brokers(brokers)
            .set("num.network.threads", "3")
            .set("num.io.threads", "8")
            .set("log.segment.delete.delay.ms", "1000")
            .set("offsets.topic.replication.factor", "1")
            .set("share.coordinator.state.topic.replication.factor", "1")
            .set("share.coordinator.state.topic.min.isr", "1");
        let cluster = Cluster::start(&installation, options)?;
        let workload = Workload::start(&Installation::clients()?)?;
        let mut stock = Self { cluster: RefCell::new(cluster), workload, bytes: 0 };
        stock.client().create(TOPIC, PARTITIONS, &[])?;
        stock.reassign(&[LEADER])?;
        usage::poll("the topic on one broker", Duration::from_secs(30), || {
            let told = stock.replicas()?;
            Ok(told.iter().all(|p| p.replica_nodes == [LEADER] && p.isr_nodes == [LEADER]))
        })?;
        for batch_bytes in BATCH_BYTES {
            stock.produce(bytes / BATCH_BYTES.len() as u64, batch_bytes)?;
        }
        let data = stock.cluster().log_dir(1);
        stock.bytes = usage::log_bytes(&data, TOPIC, PARTITIONS);
        eprintln!("the topic holds {} MB", stock.bytes / 1_000_000);
        Ok(stock)
    }

    pub fn cluster(&self) -> Ref<'_, Cluster> {
        self.cluster.borrow()
    }

    pub fn client(&self) -> At {
        self.workload.at(&self.cluster().bootstrap())
    }

    fn produce(&self, bytes: u64, batch_bytes: u64) -> Result<(), String> {
        let record_bytes = RECORD_BYTES + 50;
        let (records, batch) = ((bytes / record_bytes).to_string(), batch_bytes.to_string());
        let (partitions, size) = (PARTITIONS.to_string(), RECORD_BYTES.to_string());
        let options = [
            ("--records", records.as_str()),
            ("--size", &size),
            ("--partitions", &partitions),
            ("--batch-size", &batch),
            ("--linger-ms", "50"),
        ];
        self.client().produce(TOPIC, &options).map(drop)
    }

    /// The leader's segment files.
    pub fn segments(&self) -> Result<Vec<PathBuf>, String> {
        let mut segments = Vec::new();
        for partition in 0..PARTITIONS {
            let folder = self.cluster().partition_dir(1, TOPIC, partition);
            let entries = std::fs::read_dir(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            let files = entries.flatten().map(|entry| entry.path());
            segments.extend(files.filter(|path| path.extension().is_some_and(|end| end == "log")));
        }
        segments.sort();
        Ok(segments)
    }

    /// The broker that holds the topic.
    pub fn leader_pid(&self) -> Result<u32, String> {
        self.cluster().pid(1).ok_or_else(|| "the broker is down".to_owned())
    }

    /// The follower becomes a JVM that has copied nothing yet.
    pub fn restart_follower(&self) -> Result<(), String> {
        self.cluster.borrow_mut().restart(2)
    }

    /// One catch-up by the follower: from the reassignment until it is in every ISR.
    pub fn follow(&self) -> Result<Sample, String> {
        let data = self.cluster().log_dir(2);
        let follower = self.cluster().pid(2).ok_or("the follower is down")?;
        let watch = Watch::start(&[("follower", follower), ("source", self.leader_pid()?)]);
        self.reassign(&[LEADER, FOLLOWER])?;
        usage::poll("all bytes", Duration::from_secs(300), || {
            Ok(usage::log_bytes(&data, TOPIC, PARTITIONS) >= self.bytes)
        })?;
        usage::poll("the ISR", Duration::from_secs(60), || {
            Ok(self.replicas()?.iter().all(|partition| partition.isr_nodes.len() == 2))
        })?;
        let sample = watch.stop(self.bytes)?;
        self.forget_follower()?;
        Ok(sample)
    }

    /// The follower gives up the topic, and its files are gone.
    fn forget_follower(&self) -> Result<(), String> {
        self.reassign(&[LEADER])?;
        let data = self.cluster().log_dir(2);
        usage::poll("the follower's files to go", Duration::from_secs(60), || {
            let entries = std::fs::read_dir(&data).map_err(|error| error.to_string())?;
            let ours = |name: String| name.starts_with(TOPIC);
            Ok(!entries.flatten().any(|entry| ours(entry.file_name().to_string_lossy().into())))
        })
    }

    /// AlterPartitionReassignments, as ReassignPartitions sends it, without the start of its JVM.
    fn reassign(&self, replicas: &[BrokerId]) -> Result<(), String> {
        const ALTER_PARTITION_REASSIGNMENTS: i16 = 45;
        let mut writer = Writer::new();
        writer.i32(0);
        writer.i16(ALTER_PARTITION_REASSIGNMENTS);
        writer.i16(0);
        writer.i32(1);
        writer.nullable_str(Some("perf"), false);
        writer.unsigned_varint(0);
        writer.i32(30_000);
        writer.count(1, true);
        writer.str(TOPIC, true);
        writer.count(PARTITIONS as usize, true);
        for partition in 0..PARTITIONS {
            writer.i32(partition.cast_signed());
            writer.count(replicas.len(), true);
            replicas.iter().for_each(|replica| writer.i32(replica.0));
            writer.unsigned_varint(0);
        }
        writer.unsigned_varint(0);
        writer.unsigned_varint(0);
        let size = i32::try_from(writer.len() - 4).map_err(|_| "a request of that size")?;
        writer.i32_at(0, size);
        let answer = self.exchange(writer.bytes())?;
        let mut reader = Reader::new(&answer);
        let read = |reader: &mut Reader<'_>| {
            reader.i32()?;
            reader.tagged_fields(|_, _| Ok(()))?;
            reader.i32()?;
            let error = reader.i16()?;
            reader.nullable_str(true)?;
            let mut errors = vec![error];
            for _ in 0..reader.count(true)? {
                reader.str(true)?;
                for _ in 0..reader.count(true)? {
                    reader.i32()?;
                    errors.push(reader.i16()?);
                    reader.nullable_str(true)?;
                    reader.tagged_fields(|_, _| Ok(()))?;
                }
                reader.tagged_fields(|_, _| Ok(()))?;
            }
            Ok(errors)
        };
        let errors: Vec<i16> = read(&mut reader).map_err(|e: wire::WireError| e.to_string())?;
        match errors.iter().find(|&&error| error != 0) {
            None => Ok(()),
            Some(&error) => Err(format!("reassigning the topic: {}", ErrorCode(error))),
        }
    }

    fn replicas(&self) -> Result<Vec<wire::api::metadata::MetadataResponsePartition>, String> {
        const METADATA_VERSION: i16 = 9;
        let named = MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![named]), ..Default::default() };
        let (key, version) = (ApiKey::METADATA, METADATA_VERSION);
        let frame = frame_request(key, version, 1, None, |writer| request.write(writer, version));
        let answer = self.exchange(&frame)?;
        let mut reader = Reader::new(&answer);
        let response = read_response_header(&mut reader, key, version)
            .and_then(|_| MetadataResponse::read(&mut reader, version))
            .map_err(|error| error.to_string())?;
        let topic = response.topics.into_iter().next().ok_or("no topic")?;
        match topic.error_code {
            ErrorCode::NONE => Ok(topic.partitions),
            error => Err(format!("{TOPIC}: {error}")),
        }
    }

    fn exchange(&self, request: &[u8]) -> Result<Vec<u8>, String> {
        let exchange = || {
            let mut stream = TcpStream::connect(self.cluster().address(1))?;
            stream.write_all(request)?;
            let mut size = [0; 4];
            stream.read_exact(&mut size)?;
            let mut answer = vec![0; u32::from_be_bytes(size) as usize];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        exchange().map_err(|error: std::io::Error| format!("broker 1: {error}"))
    }
}
