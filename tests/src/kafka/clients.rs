//! Clients that share no code with ours: librdkafka through kcat and through Python, a client that is
//! Python throughout, and Kafka's own console consumer.
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use super::answers::{Isolation, PartitionDigest};
use super::install::{Installation, once, run};
use crate::process::tied;

const CONFLUENT_KAFKA: &str = "confluent-kafka==2.16.1";
const CONSUME: &str = include_str!("../../python/consume.py");

const KAFKA_PYTHON: &str = "kafka-python[crc32c,lz4,snappy,zstd]==3.0.12";
const CONSUME_PURE: &str = include_str!("../../python/consume_pure.py");

/// A Python with confluent-kafka and kafka-python in a folder of its own.
#[derive(Clone, Debug)]
pub struct Python {
    folder: PathBuf,
}

impl Python {
    /// Installs it when it is not there yet.
    pub fn get() -> Result<Python, String> {
        let versions = [CONFLUENT_KAFKA, KAFKA_PYTHON].map(|p| p.rsplit('=').next().unwrap_or(""));
        let name = format!("python-clients-{}", versions.join("-"));
        let folder = once(&name, |folder| {
            let what = "python3 -m venv (Debian: install python3-venv)";
            run(what, Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            let mut pip = Command::new(folder.join("bin/python"));
            // By way of the interpreter: scripts remember where they were before the rename.
            let packages = [CONFLUENT_KAFKA, KAFKA_PYTHON];
            pip.args(["-m", "pip", "-q", "install"]).args(packages);
            run(&format!("pip cannot install {}", packages.join(" ")), &mut pip).map(|_| ())
        })?;
        Ok(Python { folder })
    }

    /// As the Java client's digest, read by librdkafka; equal where both read the same.
    pub fn digest(
        &self,
        bootstrap: &str,
        topic: &str,
        isolation: Isolation,
    ) -> Result<Vec<PartitionDigest>, String> {
        self.consume("confluent-kafka", CONSUME, [bootstrap, topic, isolation.name()])
    }

    /// The same, read by kafka-python.
    pub fn digest_pure(
        &self,
        bootstrap: &str,
        topic: &str,
        isolation: Isolation,
    ) -> Result<Vec<PartitionDigest>, String> {
        self.consume("kafka-python", CONSUME_PURE, [bootstrap, topic, isolation.name()])
    }

    fn consume(
        &self,
        what: &str,
        program: &str,
        arguments: [&str; 3],
    ) -> Result<Vec<PartitionDigest>, String> {
        let mut python = Command::new(self.folder.join("bin/python"));
        python.args(["-c", program]).args(arguments);
        let text = run(&format!("reading with {what}"), &mut python)?;
        text.lines().map(PartitionDigest::parse).collect()
    }
}

/// What Kafka's console consumer of this version prints of a partition, from `offset` (a number or
/// `earliest`) on until it has printed `records`: every field that it knows to print.
pub fn console_consumer(
    java: &Installation,
    bootstrap: &str,
    (topic, partition): (&str, u32),
    (offset, records): (&str, u64),
    isolation: Isolation,
) -> Result<String, String> {
    let class = java.first_class(&[
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka.tools.ConsoleConsumer",
    ])?;
    let mut tool = java.tool(&class);
    tool.args(["--bootstrap-server", bootstrap, "--topic", topic]);
    tool.args(["--partition", &partition.to_string(), "--offset", offset]);
    tool.args(["--max-messages", &records.to_string(), "--timeout-ms", "30000"]);
    tool.args(["--isolation-level", isolation.name()]);
    for field in ["offset", "timestamp", "partition", "epoch", "headers", "key"] {
        tool.args(["--property", &format!("print.{field}=true")]);
    }
    run("the console consumer", &mut tool)
}

/// The command-line client of librdkafka.
#[derive(Clone, Debug)]
pub struct Kcat {
    program: PathBuf,
}

/// What kcat read of one partition, comparable with [`PartitionDigest`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KcatDigest {
    pub records: u64,
    /// Of offset, timestamp, key and value of each record.
    pub crc32: u32,
}

impl PartitionDigest {
    /// What kcat should find in the same partition.
    pub fn kcat(&self) -> KcatDigest {
        KcatDigest { records: self.records, crc32: self.crc32 }
    }
}

impl Kcat {
    /// The program named by `FARSPAN_KCAT`, or `kcat` on the path.
    pub fn get() -> Result<Kcat, String> {
        let program = std::env::var_os("FARSPAN_KCAT").unwrap_or_else(|| "kcat".into());
        match Command::new(&program).arg("-V").output() {
            Ok(output) if output.status.success() => Ok(Kcat { program: program.into() }),
            _ => Err("kcat is missing: apt-get install kcat, or set FARSPAN_KCAT".to_owned()),
        }
    }

    /// The program, which dies with us; arguments are added by the caller.
    pub fn command(&self) -> Command {
        tied(&self.program)
    }

    /// Reads a partition from its start to its end.
    pub fn digest(
        &self,
        bootstrap: &str,
        topic: &str,
        partition: u32,
        isolation: Isolation,
    ) -> Result<KcatDigest, String> {
        let mut kcat = Command::new(&self.program);
        kcat.args(["-C", "-q", "-e", "-o", "beginning", "-b", bootstrap, "-t", topic]);
        kcat.args(["-p", &partition.to_string(), "-X", "check.crcs=true"]);
        kcat.args(["-X", &format!("isolation.level={}", isolation.name())]);
        // Lengths first, so that keys and values may hold anything.
        kcat.args(["-f", "%o %T %K %S\n%k%s\n"]);
        let output = kcat.output().map_err(|e| format!("kcat: {e}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("kcat: {}", errors.lines().next().unwrap_or("failed silently")));
        }
        sum_up(&output.stdout).ok_or_else(|| "kcat: an answer that we cannot read".to_owned())
    }
}

/// Lines `offset timestamp key-length value-length`, each followed by key, value and a newline.
fn sum_up(mut output: &[u8]) -> Option<KcatDigest> {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc);
    let mut records = 0;
    while !output.is_empty() {
        let end = output.iter().position(|&byte| byte == b'\n')?;
        let line = std::str::from_utf8(&output[..end]).ok()?;
        output = &output[end + 1..];
        let fields: Vec<i64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [offset, timestamp, key, value] = fields[..] else { return None };
        crc.update(&offset.to_be_bytes());
        crc.update(&timestamp.to_be_bytes());
        for length in [key, value] {
            crc.update(&i32::try_from(length).ok()?.to_be_bytes());
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            output.read_exact(&mut bytes).ok()?;
            crc.update(&bytes);
        }
        output = output.strip_prefix(b"\n")?;
        records += 1;
    }
    Some(KcatDigest { records, crc32: u32::try_from(crc.finalize()).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_with_newlines_and_null_ones_are_told_apart() {
        let digest = sum_up(b"0 5 -1 2\n\n\n\n1 6 1 -1\nk\n").unwrap();
        assert_eq!(digest.records, 2);
        assert_ne!(Some(digest), sum_up(b"0 5 0 2\n\n\n\n1 6 1 -1\nk\n"));
    }

    #[test]
    fn an_output_that_is_cut_short_is_refused() {
        assert_eq!(sum_up(b"0 5 -1 2\n\n"), None);
    }
}
