//! The source of the demo: topics of every kind that a mirror must carry, and life in them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wire::batch::Compression;
use wire::ids::{BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::ControlKind;

use crate::command::Failure;
use crate::command::quantity::{Bytes, Exactly};
use crate::synthetic::serve::{Running, serve};
use crate::synthetic::{Cluster, EmptyBatch, NewBatch, Record, Settings};

/// Name, partitions, and batches in each before the mirror starts.
const TOPICS: [(&str, i32, usize); 6] = [
    (ORDERS, 4, 512),
    (CLICKS, 4, 512),
    (PAYMENTS, 2, 96),
    (PROFILES, 2, 128),
    (AUDIT, 2, 128),
    (EMPTY, 1, 0),
];
/// Not compressed.
const ORDERS: &str = "orders";
/// Each partition under a compression of its own.
const CLICKS: &str = "clicks";
/// Transactions, every third aborted.
const PAYMENTS: &str = "payments";
/// Compacted: most records are gone, and some batches whole.
const PROFILES: &str = "profiles";
/// Its first half was deleted.
const AUDIT: &str = "audit";
/// Never written to.
const EMPTY: &str = "empty";

const COMPRESSIONS: [Compression; 4] =
    [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
/// When the first record was written, as they say.
const START_MS: i64 = 1_700_000_000_000;
/// How long records come in while the mirror runs.
const LIVE: Duration = Duration::from_millis(2_000);
/// How long between rounds of batches.
const ROUND: Duration = Duration::from_millis(10);

/// A cluster that serves, and what was written to it.
pub(super) struct Source {
    running: Running,
    writer: Writer,
}

/// What happened while the mirror ran.
pub(super) struct Live {
    records: u64,
    bytes: u64,
    took: Duration,
    pub(super) last_write: Instant,
    leaders_moved: usize,
    broker: BrokerId,
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, bytes) = (Exactly(self.records), Bytes(self.bytes));
        let seconds = self.took.as_secs_f64();
        write!(
            f,
            "{records} more records ({bytes}) were produced in {seconds:.1} s, {} leaders moved, \
             broker {} was down and came back",
            self.leaders_moved, self.broker
        )
    }
}

impl Source {
    /// Makes the topics and serves them.
    pub(super) fn start() -> io::Result<Self> {
        let mut cluster = Cluster::new(Settings { seed: 7, ..Settings::default() });
        let mut writer = Writer::default();
        for (topic, partition_count, batch_count) in TOPICS {
            cluster.create_topic(topic, partition_count);
            for partition in 0..partition_count {
                for _ in 0..batch_count {
                    writer.write(&mut cluster, topic, partition);
                }
            }
        }
        for partition in 0..2 {
            let profiles = cluster.partition(PROFILES, partition);
            // Compaction leaves the end of a log alone.
            let clean = profiles.stored().end().0 - 500;
            profiles.compact(EmptyBatch::Keep, |offset| offset.0 >= clean || offset.0 % 3 == 0);
            profiles
                .compact(EmptyBatch::Remove, |offset| offset.0 >= clean || offset.0 % 1_100 < 600);
            let audit = cluster.partition(AUDIT, partition);
            let half = Offset(audit.stored().end().0 / 2 + 7);
            audit.delete_records_before(half, 0);
        }
        cluster.set_config(PROFILES, "cleanup.policy", "compact");
        Ok(Self { running: serve(cluster)?, writer })
    }

    pub(super) fn bootstrap(&self) -> String {
        self.running.bootstrap()
    }

    pub(super) fn addresses(&self) -> Vec<(String, u16)> {
        let ids: Vec<_> = self.running.with(|cluster| cluster.broker_ids().collect());
        let addresses = ids.into_iter().map(|id| self.running.address(id));
        addresses.map(|address| (address.ip().to_string(), address.port())).collect()
    }

    pub(super) fn topics(&self) -> Vec<&'static str> {
        TOPICS.map(|(topic, _, _)| topic).to_vec()
    }

    pub(super) fn partition_count(&self) -> u64 {
        TOPICS.iter().map(|&(_, count, _)| u64::try_from(count).unwrap_or(0)).sum()
    }

    /// How many bytes of batches a reader gets who begins at the start.
    pub(super) fn bytes(&self) -> u64 {
        self.running.with(|cluster| {
            let each = |(topic, count, _): &(&'static str, i32, usize)| {
                (0..*count).map(|index| partition_bytes(cluster, topic, index)).sum::<u64>()
            };
            TOPICS.iter().map(each).sum()
        })
    }

    pub(super) fn description(&self) -> String {
        let (topics, partitions) = (TOPICS.len(), self.partition_count());
        let bytes = Bytes(self.bytes());
        format!("3 brokers in this process, {topics} topics, {partitions} partitions, {bytes}")
    }

    /// Produces for a while; leaders move, a broker goes and comes.
    pub(super) fn live(
        &mut self,
        mut check: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Live, Failure> {
        let begun = Instant::now();
        let (records, bytes) = (self.writer.records, self.writer.bytes);
        let broker = BrokerId(2);
        let mut events = Events { leaders_moved: 0, next: 0 };
        let last_write = loop {
            check()?;
            let Self { running, writer } = self;
            let now_ms = running.now_ms();
            running.with(|cluster| {
                for (topic, partition_count, batch_count) in TOPICS {
                    for partition in (0..partition_count).filter(|_| batch_count > 0) {
                        writer.write(cluster, topic, partition);
                    }
                }
                events.pass(begun.elapsed(), broker, cluster, now_ms);
            });
            if begun.elapsed() >= LIVE {
                break Instant::now();
            }
            sleep(ROUND);
        };
        Ok(Live {
            records: self.writer.records - records,
            bytes: self.writer.bytes - bytes,
            took: begun.elapsed(),
            last_write,
            leaders_moved: events.leaders_moved,
            broker,
        })
    }
}

fn partition_bytes(cluster: &mut Cluster, topic: &str, index: i32) -> u64 {
    let log = cluster.partition(topic, index).stored();
    log.batches(log.start(), log.end()).map(|batch| batch.len() as u64).sum()
}

/// What happens beside producing, in its order.
struct Events {
    leaders_moved: usize,
    next: usize,
}

impl Events {
    fn pass(&mut self, elapsed: Duration, broker: BrokerId, cluster: &mut Cluster, now_ms: i64) {
        let at = [LIVE / 5, LIVE * 2 / 5, LIVE * 3 / 5, LIVE * 4 / 5];
        if at.get(self.next).is_none_or(|&at| elapsed < at) {
            return;
        }
        match self.next {
            1 => cluster.stop_broker(broker, now_ms),
            2 => cluster.start_broker(broker, now_ms),
            _ => {
                for (topic, partition_count, _) in TOPICS {
                    for partition in 0..partition_count {
                        let moved = cluster.move_leader(topic, partition, now_ms);
                        self.leaders_moved += usize::from(moved.is_some());
                    }
                }
            }
        }
        self.next += 1;
    }
}

/// Writes batches from templates: to build each anew would take longer than to mirror it.
#[derive(Default)]
struct Writer {
    /// By topic and partition, each used in turn.
    templates: BTreeMap<(&'static str, i32), Vec<Vec<u8>>>,
    batches: usize,
    transactions: i64,
    records: u64,
    bytes: u64,
}

impl Writer {
    /// Appends a batch of the topic's kind, and a marker behind it where it is a transaction.
    fn write(&mut self, cluster: &mut Cluster, topic: &'static str, index: i32) {
        let partition = cluster.partition(topic, index);
        let before = partition.stored().end();
        self.batches += 1;
        if topic == PAYMENTS {
            self.transactions += 1;
            self.bytes += transaction(partition, self.transactions) as u64;
        } else {
            let templates =
                self.templates.entry((topic, index)).or_insert_with(|| templates(topic, index));
            let batch = &templates[self.batches % templates.len()];
            partition.append_produced(batch).expect("a sound batch");
            self.bytes += batch.len() as u64;
        }
        let written = partition.stored().end().0 - before.0;
        self.records += u64::try_from(written).unwrap_or(0);
    }
}

/// Batches of several sizes that no other partition has.
fn templates(topic: &str, index: i32) -> Vec<Vec<u8>> {
    let batch = |count: usize| {
        let seed = u64::from(index.cast_unsigned()) * 1_000 + count as u64 + topic.len() as u64;
        if topic != CLICKS {
            return NewBatch::filled(count, 120, START_MS, seed);
        }
        let place = usize::try_from(index).unwrap_or(0) % COMPRESSIONS.len();
        let first = usize::try_from(seed).unwrap_or(0);
        NewBatch::of((first..first + count).map(click).collect()).compressed(COMPRESSIONS[place])
    };
    [100, 37, 150].map(|count| batch(count).build(Offset(0), LeaderEpoch(0))).to_vec()
}

/// A transaction of one batch by one of a few producers, committed or, every third, aborted.
fn transaction(partition: &mut crate::synthetic::Partition, number: i64) -> usize {
    let (id, epoch) = (ProducerId(1_000 + number % 3), ProducerEpoch(0));
    let timestamp = START_MS + number;
    let seed = number.cast_unsigned();
    let batch = NewBatch::filled(100, 40, timestamp, seed)
        .producer(id.0, epoch.0, 0)
        .transactional()
        .compressed(if number % 2 == 0 { Compression::Lz4 } else { Compression::None });
    let size = batch.build(Offset(0), LeaderEpoch(0)).len();
    partition.append(&batch);
    let kind = if number % 3 == 0 { ControlKind::Abort } else { ControlKind::Commit };
    partition.end_transaction((id, epoch), kind, timestamp);
    size
}

/// A record that compresses as real ones do.
fn click(number: usize) -> Record {
    let timestamp = START_MS + i64::try_from(number).unwrap_or(0);
    let value = format!(
        "{{\"user\":{},\"page\":\"/products/{}\",\"referrer\":\"https://example.com/\",\
         \"agent\":\"Mozilla/5.0\",\"millis\":{}}}",
        number * 7_919 % 10_007,
        number * 31 % 503,
        number * 97 % 1_009
    );
    Record::of(timestamp, value).key(format!("user-{}", number * 7_919 % 10_007))
}
