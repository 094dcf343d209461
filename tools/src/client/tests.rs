//! The client against a synthetic cluster on sockets.

use std::thread;

use super::*;
use crate::relay::{Direction, Relay, Way};
use crate::synthetic::serve::serve;
use crate::synthetic::{
    Cluster, EmptyBatch, Growth, NewBatch, Record, Release, Ring, Settings as ClusterSettings,
};
use wire::batch::Compression;
use wire::ids::{Offset, ProducerEpoch, ProducerId};
use wire::record::ControlKind;

/// A cluster of three brokers with logs of all kinds.
fn cluster(release: Release) -> Cluster {
    let mut cluster = Cluster::new(ClusterSettings { release, ..ClusterSettings::default() });
    cluster.create_topic("plain", 4);
    let kinds = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Gzip];
    for (index, compression) in (0..4).zip(kinds) {
        for n in 0..50 {
            let batch = NewBatch::filled(10, 100 + 40 * n, 1000, n as u64).compressed(compression);
            cluster.partition("plain", index).append(&batch);
        }
        cluster.move_leader("plain", index, 0);
        cluster.partition("plain", index).append(&NewBatch::of(vec![Record::of(0, "last")]));
    }
    cluster.create_topic("odd", 3);
    let odd = cluster.partition("odd", 0);
    for n in 0..10 {
        let batch = NewBatch::filled(5, 10, 0, 1).producer(n % 2, 0, 0).transactional();
        odd.append(&batch);
        let kind = if n % 3 == 0 { ControlKind::Abort } else { ControlKind::Commit };
        odd.end_transaction((ProducerId(n % 2), ProducerEpoch(0)), kind, 0);
    }
    odd.compact(EmptyBatch::Remove, |offset| offset.0 % 7 == 0);
    odd.delete_records_before(Offset(8), 0);
    let open = NewBatch::filled(3, 2000, 0, 1).producer(9, 0, 0).transactional();
    odd.append(&open);
    cluster.partition("odd", 1).stored().skip_to(Offset(500));
    let ring = Ring::of(&[NewBatch::filled(7, 10, 0, 3), NewBatch::filled(90, 1000, 0, 4)]);
    cluster.create_endless_topic("endless", 2, &ring, Growth::Until(Offset(10_000)));
    cluster
}

/// What the logs of the cluster hold, digested without a client.
fn expected(cluster: &Cluster, isolation: IsolationLevel) -> BTreeMap<TopicPartition, Digest> {
    let mut digests = BTreeMap::new();
    for (name, topic) in cluster.topics() {
        for (index, partition) in (0..).zip(topic.partitions()) {
            let key = TopicPartition { topic: name.into(), partition: PartitionIndex(index) };
            let log = partition.log();
            let read =
                partition.read(log.start(), log.upper(isolation, 0), usize::MAX, true).to_vec();
            digests.insert(key, Digest::of(&read).expect("sound batches"));
        }
    }
    digests
}

#[test]
fn reads_back_all_that_the_cluster_holds_from_every_release() {
    for release in [Release::Kafka21, Release::Kafka28, Release::Kafka39, Release::Kafka44] {
        let running = serve(cluster(release)).expect("serves");
        for isolation in [IsolationLevel::READ_UNCOMMITTED, IsolationLevel::READ_COMMITTED] {
            let expected = running.with(|cluster| expected(cluster, isolation));
            let settings = Settings { isolation, ..Settings::default() };
            let digests = Client::new(&running.bootstrap(), settings).digests(None);
            assert_eq!(digests, Ok(expected), "{release:?}");
        }
        running.stop();
    }
}

#[test]
fn small_fetches_over_moving_leaders_read_the_same() {
    let running = serve(cluster(Release::Kafka44)).expect("serves");
    let settings =
        Settings { fetch_bytes_max: 3000, partition_bytes_max: 1000, ..Settings::default() };
    let mut client = Client::new(&running.bootstrap(), settings);
    let expected = running.with(|cluster| expected(cluster, IsolationLevel::READ_UNCOMMITTED));
    let mut digesters: BTreeMap<TopicPartition, Digester> = BTreeMap::new();
    let mut count = 0;
    let read = client.read_to_end(Some(&["plain"]), |partition, batch| {
        digesters.entry(partition.clone()).or_default().add(batch);
        count += 1;
        let now_ms = running.now_ms();
        match count {
            80 => running.with(|cluster| cluster.stop_broker(BrokerId(1), now_ms)),
            120 => running.with(|cluster| cluster.start_broker(BrokerId(1), now_ms)),
            20 | 60 | 100 | 150 => running.with(|cluster| {
                for index in 0..4 {
                    assert!(cluster.move_leader("plain", index, now_ms).is_some());
                }
            }),
            _ => {}
        }
    });
    assert_eq!(read, Ok(()));
    for (partition, digester) in digesters {
        assert_eq!(digester.finish(), expected[&partition], "{partition}");
    }
    assert_eq!(count, 4 * 51);
}

#[test]
fn a_way_that_is_cut_and_stalls_changes_nothing_that_is_read() {
    let running = serve(cluster(Release::Kafka44)).expect("serves");
    let expected = running.with(|cluster| expected(cluster, IsolationLevel::READ_UNCOMMITTED));
    let ids: Vec<_> = running.with(|cluster| cluster.broker_ids().collect());
    let relays: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let relay = Relay::start(running.address(id)).expect("a relay");
            let port = relay.address().port();
            running.with(|cluster| cluster.set_address(id, "127.0.0.1", port));
            relay
        })
        .collect();
    let bootstrap = relays[0].address().to_string();
    let settings = Settings { fetch_bytes_max: 20_000, ..Settings::default() };
    let mut client = Client::new(&bootstrap, settings);
    let mut digesters: BTreeMap<TopicPartition, Digester> = BTreeMap::new();
    let mut count = 0;
    let read = client.read_to_end(None, |partition, batch| {
        digesters.entry(partition.clone()).or_default().add(batch);
        count += 1;
        if count % 40 == 0 {
            relays.iter().for_each(Relay::cut);
        }
        let is_stalled = count % 50 == 0;
        relays.iter().for_each(|relay| {
            relay.set(Direction::FromTarget, Way { is_stalled, ..Way::default() });
        });
        if is_stalled {
            thread::scope(|scope| {
                scope.spawn(|| relays.iter().for_each(|relay| relay.set_both(Way::default())));
            });
        }
    });
    assert_eq!(read, Ok(()));
    for (partition, digester) in digesters {
        assert_eq!(digester.finish(), expected[&partition], "{partition}");
    }
}

#[test]
fn a_damaged_batch_is_refused_and_named() {
    let running = serve(cluster(Release::Kafka44)).expect("serves");
    let damage = crate::synthetic::Damage::Crc;
    running.with(|cluster| cluster.partition("plain", 0).damage(Offset(33), damage));
    let mut client = Client::new(&running.bootstrap(), Settings::default());
    let error = client.digests(Some(&["plain"])).expect_err("a damaged batch");
    assert!(error.to_string().starts_with("partition plain-0: batch"), "{error}");
    assert!(error.to_string().contains("base offset 30: CRC"), "{error}");
    running.with(|cluster| cluster.partition("plain", 0).stored().heal());
    assert!(client.digests(Some(&["plain"])).is_ok());
}

#[test]
fn a_topic_that_is_not_there_is_named() {
    let running = serve(cluster(Release::Kafka44)).expect("serves");
    let mut client = Client::new(&running.bootstrap(), Settings::default());
    let error = ClientError::Topic("none".into(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(client.metadata(Some(&["none"])), Err(error));
}
