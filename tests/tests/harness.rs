//! The harness itself, proved against the brokers that our users run.
use std::time::Duration;

use tests::kafka::inspect::{check_partition, dump_logs};
use tests::kafka::joined::{fingerprint, first_difference};
use tests::kafka::workload::{Isolation, OffsetAt};
use tests::kafka::{Cluster, ClusterOptions, Installation, Kcat, Python, Workload};
use tests::process::wait_until;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PARTITIONS: u32 = 2;

/// One broker, and a client of the newest version.
fn start(version: &str, options: ClusterOptions) -> (Cluster, Workload) {
    let installation = Installation::get(version).unwrap();
    // Together, since both mostly wait.
    std::thread::scope(|scope| {
        let workload = scope.spawn(|| Workload::start(&Installation::clients().unwrap()).unwrap());
        let cluster = Cluster::start(&installation, options).unwrap();
        (cluster, workload.join().unwrap())
    })
}

/// Fills a topic with every codec, transactions and an open one; proves what clients and Kafka's
/// own tool say of it, before and after a broker died.
fn prove(version: &str) {
    let (mut cluster, workload) = start(version, ClusterOptions::default());
    let at = workload.at(&cluster.bootstrap());
    at.create("mixed", PARTITIONS, &["segment.bytes=1048576"]).unwrap();
    for codec in CODECS {
        let options = [
            ("--partitions", "2"),
            ("--records", "2000"),
            ("--size", "500"),
            ("--compression", codec),
            ("--tombstone-every", "11"),
        ];
        assert_eq!(at.produce("mixed", &options).unwrap(), [1000, 1000]);
    }
    let options = [("--partitions", "2"), ("--transactions", "6"), ("--leave-open", "true")];
    let done = at.transactions("mixed", &options).unwrap();
    assert_eq!((done.committed, done.aborted), (8, 4));

    let before = Isolation::BOTH.map(|isolation| at.digest("mixed", isolation).unwrap());
    let [committed, all] = &before;
    assert!(committed.iter().zip(all).all(|(c, a)| c.records < a.records && c.next < a.next));
    let records: u64 = all.iter().map(|digest| digest.records).sum();
    assert_eq!(records, 5 * 2000 + 12 * 10 + 10);

    cluster.kill9(1);
    assert!(cluster.pids().is_empty());
    let partition = cluster.partition_dir(1, "mixed", 0);
    let killed = fingerprint(&partition, 0).unwrap();
    let dump = dump_logs(cluster.installation(), &partition).unwrap();
    assert_eq!(dump.complaints(), Vec::<&str>::new());
    let printed = dump.lines_with("| offset: ").count() as u64;
    assert!(printed > all[0].records, "control records are printed too");

    cluster.restart(1).unwrap();
    let after = Isolation::BOTH.map(|isolation| at.digest("mixed", isolation).unwrap());
    assert_eq!(after, before);
    assert_eq!(fingerprint(&partition, 0).unwrap(), killed);

    at.end_open(&done.open.unwrap(), true).unwrap();
    let options = "the open transaction to be seen as committed";
    wait_until(options, Duration::from_secs(10), || {
        let committed = at.digest("mixed", Isolation::Committed).unwrap();
        (committed[0].records > before[0][0].records).then_some(())
    })
    .unwrap();
    cluster.stop(1).unwrap();
    let dump = check_partition(cluster.installation(), &partition).unwrap();
    assert_eq!(dump.complaints(), Vec::<&str>::new());
    assert!(dump.text.contains("Dumping"), "{}", dump.text);
}

#[test]
fn kafka_4_4_keeps_every_codec_and_transaction_over_a_kill() {
    prove("4.4.0");
}

#[test]
fn kafka_3_9_keeps_every_codec_and_transaction_over_a_kill() {
    prove("3.9.1");
}

#[test]
fn kafka_2_8_with_zookeeper_keeps_every_codec_and_transaction_over_a_kill() {
    prove("2.8.2");
}

#[test]
fn three_kinds_of_clients_read_the_same_records() {
    let (cluster, workload) = start("4.4.0", ClusterOptions::default());
    let at = workload.at(&cluster.bootstrap());
    at.create("read", PARTITIONS, &[]).unwrap();
    at.create("appended", 1, &["message.timestamp.type=LogAppendTime"]).unwrap();
    let options = [("--partitions", "2"), ("--tombstone-every", "5"), ("--compression", "lz4")];
    at.produce("read", &options).unwrap();
    at.transactions("read", &[("--partitions", "2"), ("--transactions", "3")]).unwrap();
    at.produce("appended", &[]).unwrap();
    let python = Python::get().unwrap();
    let kcat = Kcat::get();
    if let Err(missing) = &kcat {
        eprintln!("without kcat: {missing}");
    }
    for topic in ["read", "appended"] {
        for isolation in Isolation::BOTH {
            let digests = at.digest(topic, isolation).unwrap();
            let bootstrap = cluster.bootstrap();
            assert_eq!(python.digest(&bootstrap, topic, isolation).unwrap(), digests);
            let Ok(kcat) = &kcat else { continue };
            for digest in digests {
                let read = kcat.digest(&bootstrap, topic, digest.partition, isolation);
                assert_eq!(read.unwrap(), digest.kcat());
            }
        }
    }
}

#[test]
fn an_administrator_sees_what_was_asked_for() {
    let (cluster, workload) = start("4.4.0", ClusterOptions::default());
    let at = workload.at(&cluster.bootstrap());
    at.create("run", 1, &["retention.ms=-1"]).unwrap();
    at.alter_config("run", &["retention.ms=", "segment.bytes=1048576"]).unwrap();
    let config = at.describe_config("run").unwrap();
    assert_eq!(
        config.into_iter().collect::<Vec<_>>(),
        [("segment.bytes".into(), "1048576".into())]
    );
    at.add_partitions("run", 2).unwrap();
    let (id, partitions) = at.describe("run").unwrap();
    assert_eq!((id.len(), partitions.len(), partitions[1].leader), (22, 2, 1));

    let options = [("--records", "100"), ("--timestamp-first", "5000"), ("--timestamp-step", "10")];
    at.produce("run", &options).unwrap();
    assert_eq!(at.delete_records("run", 0, 40).unwrap(), 40);
    let offsets = at.offsets("run", Some(5500), Isolation::Uncommitted).unwrap();
    assert_eq!((offsets[0].earliest, offsets[0].latest), (40, 100));
    assert_eq!(offsets[0].by_timestamp, Some(OffsetAt { offset: 50, timestamp: 5500 }));
    assert_eq!(offsets[0].max_timestamp, Some(OffsetAt { offset: 99, timestamp: 5990 }));
    assert_eq!(offsets[1].max_timestamp, Some(OffsetAt { offset: -1, timestamp: -1 }));
    assert_eq!(at.print("run", Isolation::Committed).unwrap().len(), 60);

    at.commit("group", "run", 0, 77).unwrap();
    assert_eq!(at.committed("group").unwrap(), [("run".to_owned(), 0, 77)]);
    assert_eq!(at.consume_group("members", "run", 60).unwrap(), [(0, 100), (1, 0)]);
    let mut committed = at.committed("members").unwrap();
    committed.retain(|(_, partition, _)| *partition == 0);
    assert_eq!(committed, [("run".to_owned(), 0, 100)]);
    let error = at.create("run", 1, &[]).unwrap_err();
    assert!(error.contains("already exists"), "{error}");
    let error = at.produce("run", &[("--recrods", "1")]).unwrap_err();
    assert!(error.contains("recrods"), "{error}");
    at.delete("run").unwrap();
}

#[test]
fn a_compacted_topic_keeps_the_last_value_of_each_key() {
    let options = ClusterOptions::default().set("log.cleaner.min.cleanable.ratio", "0.01");
    let (cluster, workload) = start("4.4.0", options);
    let at = workload.at(&cluster.bootstrap());
    let config = ["cleanup.policy=compact", "segment.bytes=1048576", "segment.ms=500"];
    at.create("compacted", 1, &config).unwrap();
    at.compact_load("compacted", &[("--records", "20000")]).unwrap();
    let first = at.digest("compacted", Isolation::Uncommitted).unwrap();
    wait_until("the cleaner", Duration::from_secs(30), || {
        // Every append may roll the segment, and only rolled ones are cleaned.
        at.compact_load("compacted", &[("--records", "20")]).unwrap();
        let now = at.digest("compacted", Isolation::Uncommitted).unwrap();
        (now[0].records < first[0].records).then_some(())
    })
    .unwrap();
}

#[test]
fn three_brokers_lose_nothing_that_was_acknowledged_when_one_is_killed() {
    let options = ClusterOptions::default().brokers(3).set("min.insync.replicas", "2");
    let (mut cluster, workload) = start("4.4.0", options);
    let at = workload.at(&cluster.bootstrap());
    at.create_replicated("stream", PARTITIONS, 3, &[]).unwrap();
    at.stream_start("load", "stream", &[("--partitions", "2"), ("--rate", "2000")]).unwrap();
    let acked_beyond = |sequence: i64| {
        wait_until("acknowledgements", Duration::from_secs(60), || {
            let acked = at.stream_acked("load").unwrap();
            acked.iter().all(|one| one.sequence > sequence).then(|| acked[0].sequence)
        })
        .unwrap()
    };
    acked_beyond(500);
    let victim = usize::try_from(at.describe("stream").unwrap().1[0].leader).unwrap();
    cluster.kill9(victim);
    let seen = acked_beyond(0);
    acked_beyond(seen + 500);
    cluster.restart(victim).unwrap();
    let acked = at.stream_stop("load").unwrap();
    for (found, acked) in at.sequences("stream", Isolation::Committed).unwrap().iter().zip(&acked) {
        assert_eq!((found.missing, found.repeated, found.first), (0, 0, 0));
        assert_eq!(found.last, acked.sequence);
    }
    // Replicas are the same log, byte for byte, whoever led when.
    wait_until("all replicas to be in sync", Duration::from_secs(60), || {
        let (_, partitions) = at.describe("stream").unwrap();
        partitions.iter().all(|partition| partition.in_sync.len() == 3).then_some(())
    })
    .unwrap();
    for partition in 0..PARTITIONS {
        let [one, two, three] = [1, 2, 3].map(|id| cluster.partition_dir(id, "stream", partition));
        for other in [two, three] {
            if let Some(difference) = first_difference(&one, &other, 0).unwrap() {
                panic!("partition {partition}: {difference}");
            }
        }
    }
    assert!(cluster.cpu_seconds() > 0.0);
}

#[test]
fn a_broker_that_cannot_start_says_why_in_one_line() {
    let installation = Installation::get("4.4.0").unwrap();
    let options = ClusterOptions::default().set("num.io.threads", "none");
    let error = Cluster::start(&installation, options).unwrap_err();
    assert!(error.contains("num.io.threads") && !error.contains('\n'), "{error}");
}
