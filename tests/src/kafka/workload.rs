//! Our Java client as a child that lives long: one JVM start, then a line for every request.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use super::answers::{
    Acked, Isolation, OffsetAt, PartitionDigest, PartitionOffsets, PartitionState, Sequences,
    Transactions,
};
use super::answers::{Fields, acked, ids, offset_at};
use super::install::Installation;
use crate::process::spawn;

/// Longer than the longest patience inside the client, so that its own reason comes first.
const ANSWER_WITHIN: Duration = Duration::from_secs(180);

/// A JVM with real Kafka clients in it, for any number of clusters. Clones share the JVM, and it
/// does one request at a time; streams run beside them.
#[derive(Clone, Debug)]
pub struct Workload {
    jvm: Arc<Mutex<Jvm>>,
}

#[derive(Debug)]
struct Jvm {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    _folder: tempfile::TempDir,
    errors: PathBuf,
}

impl Workload {
    /// Starts the JVM; `installation` says whose clients, see [`Installation::clients`].
    pub fn start(installation: &Installation) -> Result<Workload, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        let errors = folder.path().join("stderr");
        let stderr = File::create(&errors).map_err(|e| format!("{}: {e}", errors.display()))?;
        let mut command = installation.workload()?;
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = spawn(command)?;
        let (Some(requests), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the workload has no pipes".to_owned());
        };
        let (lines, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let jvm = Jvm { child, requests, answers, _folder: folder, errors };
        Ok(Workload { jvm: Arc::new(Mutex::new(jvm)) })
    }

    /// The same JVM, talking to the brokers at `bootstrap`.
    pub fn at(&self, bootstrap: &str) -> At {
        At { workload: self.clone(), bootstrap: bootstrap.to_owned() }
    }

    /// For processor time and memory of the clients.
    pub fn pid(&self) -> u32 {
        self.jvm.lock().unwrap_or_else(PoisonError::into_inner).child.id()
    }
}

impl Jvm {
    fn ask(&mut self, fields: &[&str]) -> Result<Vec<String>, String> {
        let what = fields[1..].join(" ");
        if fields.iter().any(|field| field.contains(['\t', '\n'])) {
            return Err(format!("{what}: tabs and newlines cannot be sent"));
        }
        writeln!(self.requests, "{}", fields.join("\t"))
            .and_then(|()| self.requests.flush())
            .map_err(|_| self.gone(&what))?;
        let mut data = Vec::new();
        loop {
            let line = match self.answers.recv_timeout(ANSWER_WITHIN) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    // A late answer would be taken for the next request's.
                    let _ = self.child.kill();
                    return Err(format!("{what}: no answer in {} s", ANSWER_WITHIN.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(&what)),
            };
            if let Some(datum) = line.strip_prefix("= ") {
                data.push(datum.to_owned());
            } else if line == "ok" {
                return Ok(data);
            } else if let Some(why) = line.strip_prefix("error ") {
                return Err(format!("{what}: {why}"));
            }
            // Anything else is a library talking on stdout.
        }
    }

    fn gone(&self, what: &str) -> String {
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        format!("{what}: the workload's JVM is gone: {}", errors.lines().last().unwrap_or_default())
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // Nothing to lose: what was asked for was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests to the brokers at one address. `options` are pairs such as `("--records", "1000")`;
/// the Java sources say which there are.
#[derive(Clone, Debug)]
pub struct At {
    workload: Workload,
    bootstrap: String,
}

impl At {
    /// Any request, by its name in `Workload.java`; the lines of its answer.
    pub fn ask(&self, command: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let mut fields = vec![self.bootstrap.as_str(), command];
        fields.extend(arguments);
        self.workload.jvm.lock().unwrap_or_else(PoisonError::into_inner).ask(&fields)
    }

    fn ask_with(
        &self,
        command: &str,
        arguments: &[&str],
        options: &[(&str, &str)],
    ) -> Result<Vec<String>, String> {
        let mut all = arguments.to_vec();
        all.extend(options.iter().flat_map(|(name, value)| [name, value]));
        self.ask(command, &all)
    }

    pub fn create(&self, topic: &str, partitions: u32, config: &[&str]) -> Result<(), String> {
        self.create_replicated(topic, partitions, 1, config)
    }

    /// `config` are `key=value`; returns once every partition has a leader.
    pub fn create_replicated(
        &self,
        topic: &str,
        partitions: u32,
        replication: u32,
        config: &[&str],
    ) -> Result<(), String> {
        let (partitions, replication) = (partitions.to_string(), replication.to_string());
        let mut arguments = vec![topic, &partitions];
        arguments.extend(config);
        self.ask_with("create", &arguments, &[("--replication", &replication)]).map(|_| ())
    }

    pub fn delete(&self, topic: &str) -> Result<(), String> {
        self.ask("delete", &[topic]).map(|_| ())
    }

    /// `key=value`; an empty value takes the setting away.
    pub fn alter_config(&self, topic: &str, config: &[&str]) -> Result<(), String> {
        let mut arguments = vec![topic];
        arguments.extend(config);
        self.ask("alter-config", &arguments).map(|_| ())
    }

    /// The settings made on the topic itself.
    pub fn describe_config(&self, topic: &str) -> Result<BTreeMap<String, String>, String> {
        let lines = self.ask("describe-config", &[topic])?;
        let pairs = lines.iter().filter_map(|line| line.split_once('='));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Raises the number of partitions to `total`.
    pub fn add_partitions(&self, topic: &str, total: u32) -> Result<(), String> {
        self.ask("add-partitions", &[topic, &total.to_string()]).map(|_| ())
    }

    /// Deletes what lies before `offset` (-1: the high watermark); the new log start offset.
    pub fn delete_records(&self, topic: &str, partition: u32, offset: i64) -> Result<i64, String> {
        let (partition, offset) = (partition.to_string(), offset.to_string());
        let lines = self.ask("delete-records", &[topic, &partition, &offset])?;
        Fields::of(lines.first().map_or("", String::as_str)).next()
    }

    /// The topic id (as Kafka writes it) and its partitions.
    pub fn describe(&self, topic: &str) -> Result<(String, Vec<PartitionState>), String> {
        let lines = self.ask("describe", &[topic])?;
        let (id, partitions) = lines.split_first().ok_or("describe: no answer")?;
        let partitions = partitions.iter().map(|line| {
            let mut fields = Fields::of(line);
            Ok(PartitionState {
                partition: fields.next()?,
                leader: fields.next()?,
                replicas: ids(&fields.next::<String>()?)?,
                in_sync: ids(&fields.next::<String>()?)?,
            })
        });
        let partitions = partitions.collect::<Result<_, String>>()?;
        Ok((id.trim_start_matches("id ").to_owned(), partitions))
    }

    /// See `Produce.java`; the next sequence of each partition.
    pub fn produce(&self, topic: &str, options: &[(&str, &str)]) -> Result<Vec<i64>, String> {
        let lines = self.ask_with("produce", &[topic], options)?;
        let next = |line: &String| {
            let mut fields = Fields::of(line);
            fields.next::<u32>()?;
            fields.next()
        };
        lines.iter().map(next).collect()
    }

    /// Many overwrites of few keys, for topics with `cleanup.policy=compact`.
    pub fn compact_load(&self, topic: &str, options: &[(&str, &str)]) -> Result<(), String> {
        self.ask_with("compact-load", &[topic], options).map(|_| ())
    }

    /// See `Transactions.java`.
    pub fn transactions(
        &self,
        topic: &str,
        options: &[(&str, &str)],
    ) -> Result<Transactions, String> {
        let lines = self.ask_with("transactions", &[topic], options)?;
        let named: BTreeMap<&str, &str> =
            lines.iter().filter_map(|line| line.split_once(' ')).collect();
        let count = |name: &str| Fields::of(named.get(name).copied().unwrap_or("")).next();
        Ok(Transactions {
            committed: count("committed")?,
            aborted: count("aborted")?,
            open: named.get("open").map(|id| (*id).to_owned()),
        })
    }

    /// Ends a transaction that [`At::transactions`] left open.
    pub fn end_open(&self, id: &str, commit: bool) -> Result<(), String> {
        self.ask("end-open", &[id, if commit { "commit" } else { "abort" }]).map(|_| ())
    }

    /// Starts a producer that runs beside other requests until [`At::stream_stop`].
    pub fn stream_start(
        &self,
        id: &str,
        topic: &str,
        options: &[(&str, &str)],
    ) -> Result<(), String> {
        self.ask_with("stream-start", &[id, topic], options).map(|_| ())
    }

    /// What is acknowledged so far; an error once a record could not be sent.
    pub fn stream_acked(&self, id: &str) -> Result<Vec<Acked>, String> {
        acked(&self.ask("stream-acked", &[id])?)
    }

    /// Waits until all is acknowledged; an error if a record could not be sent.
    pub fn stream_stop(&self, id: &str) -> Result<Vec<Acked>, String> {
        acked(&self.ask("stream-stop", &[id])?)
    }

    /// Reads everything and sums it up.
    pub fn digest(
        &self,
        topic: &str,
        isolation: Isolation,
    ) -> Result<Vec<PartitionDigest>, String> {
        let lines = self.ask_with("digest", &[topic], &[("--isolation", isolation.name())])?;
        lines.iter().map(|line| PartitionDigest::parse(line)).collect()
    }

    /// Reads everything; one JSON object per record, as `Read.java` writes it.
    pub fn print(&self, topic: &str, isolation: Isolation) -> Result<Vec<String>, String> {
        self.ask_with("print", &[topic], &[("--isolation", isolation.name())])
    }

    /// Reads everything and looks for gaps and repetitions in what [`At::produce`] or a stream wrote.
    pub fn sequences(&self, topic: &str, isolation: Isolation) -> Result<Vec<Sequences>, String> {
        let lines = self.ask_with("sequences", &[topic], &[("--isolation", isolation.name())])?;
        let parse = |line: &String| {
            let mut fields = Fields::of(line);
            Ok(Sequences {
                partition: fields.next()?,
                records: fields.next()?,
                first: fields.next()?,
                last: fields.next()?,
                missing: fields.next()?,
                repeated: fields.next()?,
            })
        };
        lines.iter().map(parse).collect()
    }

    /// Asks for earliest, latest, the highest timestamp and, if given, the first from `timestamp` on.
    pub fn offsets(
        &self,
        topic: &str,
        timestamp: Option<i64>,
        isolation: Isolation,
    ) -> Result<Vec<PartitionOffsets>, String> {
        let timestamp = timestamp.unwrap_or(-1).to_string();
        let options = [("--timestamp", timestamp.as_str()), ("--isolation", isolation.name())];
        let lines = self.ask_with("offsets", &[topic], &options)?;
        let parse = |line: &String| {
            let mut fields = Fields::of(line);
            Ok(PartitionOffsets {
                partition: fields.next()?,
                earliest: fields.next()?,
                latest: fields.next()?,
                max_timestamp: offset_at(&fields.next::<String>()?)?,
                by_timestamp: offset_at(&fields.next::<String>()?)?,
            })
        };
        lines.iter().map(parse).collect()
    }

    /// Sets the committed offset of a group without members.
    pub fn commit(
        &self,
        group: &str,
        topic: &str,
        partition: u32,
        offset: i64,
    ) -> Result<(), String> {
        self.ask("commit", &[group, topic, &partition.to_string(), &offset.to_string()]).map(|_| ())
    }

    /// Joins a group as a member, reads at least `records`, commits and leaves; partition and position.
    pub fn consume_group(
        &self,
        group: &str,
        topic: &str,
        records: u64,
    ) -> Result<Vec<(u32, i64)>, String> {
        let records = records.to_string();
        let options = [("--records", records.as_str())];
        let lines = self.ask_with("consume-group", &[group, topic], &options)?;
        let parse = |line: &String| {
            let mut fields = Fields::of(line);
            Ok((fields.next()?, fields.next()?))
        };
        lines.iter().map(parse).collect()
    }

    /// What a group has committed: topic, partition, offset.
    pub fn committed(&self, group: &str) -> Result<Vec<(String, u32, i64)>, String> {
        let lines = self.ask("committed", &[group])?;
        let parse = |line: &String| {
            let mut fields = Fields::of(line);
            Ok((fields.next()?, fields.next()?, fields.next()?))
        };
        lines.iter().map(parse).collect()
    }
}
