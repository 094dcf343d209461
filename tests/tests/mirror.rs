//! The main job on real input: stock brokers of three versions are mirrored, and the bytes are the
//! same, whatever producers, cleaners, retention and administrators did to the topics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use engine::node::Node;
use engine::ring::WriterKind;
use tests::kafka::inspect::check_partitions;
use tests::kafka::joined::{Fingerprint, files, fingerprint, segments};
use tests::kafka::{At, Cluster, ClusterOptions, Installation, Isolation, Workload};
use tests::mirror::{Mirror, SEGMENT_BYTES, WITHIN};
use tests::process::wait_until;
use tests::relay::Relay;
use tests::stage::Stage;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Each way of living through a mirror, on each version of Kafka.
macro_rules! on_every_version {
    ($($name:ident)*) => {
        mod kafka_2_8 { $(#[test] fn $name() { super::$name(super::stage("2.8.2")); })* }
        mod kafka_3_9 { $(#[test] fn $name() { super::$name(super::stage("3.9.1")); })* }
        mod kafka_4_4 { $(#[test] fn $name() { super::$name(super::stage("4.4.0")); })* }
    };
}

on_every_version! {
    every_codec_and_every_kind_of_record_has_the_same_bytes
    batches_larger_than_a_segment_and_than_a_fetch_are_mirrored_whole
    a_batch_larger_than_memory_stops_its_partition_by_name_and_no_other
    transactions_have_the_same_bytes_while_open_and_after_they_ended
    a_compacted_topic_is_mirrored_with_its_holes_and_no_loss_is_counted
    a_log_start_inside_a_batch_is_followed_before_and_while_mirroring
    segments_that_retention_removed_are_not_missed
    two_hundred_partitions_of_one_topic_are_mirrored
    topics_and_partitions_that_come_while_mirroring_are_mirrored_from_their_first_record
    offsets_that_were_deleted_while_the_mirror_was_down_are_counted_and_written_down
    a_topic_deleted_at_the_source_fails_by_name_and_is_served_on
    a_topic_created_anew_while_mirroring_fails_by_name_and_the_old_log_stays
    a_topic_created_anew_while_the_mirror_was_down_fails_by_name_and_the_old_log_stays
}

fn stage(version: &str) -> &'static Stage {
    Stage::of(concat!(env!("CARGO_TARGET_TMPDIR"), "/mirror"), version)
}

/// The mirror's files in the eyes of Kafka's own tool.
fn assert_kafka_is_content(stage: &Stage, mirror: &Mirror, partitions: &[(&str, u32)]) {
    let folders: Vec<_> = partitions
        .iter()
        .map(|(topic, partition)| mirror.partition_dir(topic, *partition))
        .collect();
    let dump = check_partitions(stage.cluster.installation(), &folders).expect("a dump");
    assert_eq!(dump.complaints(), Vec::<&str>::new(), "of {partitions:?}");
    let dumped = dump.lines_with("Dumping ").count();
    assert!(dumped >= 3 * folders.len(), "{}", dump.text);
}

fn assert_rolled(mirror: &Mirror, topic: &str, partition: u32, segments_least: usize) {
    let folder = mirror.partition_dir(topic, partition);
    let segments = segments(&folder).expect("segments");
    assert!(segments.len() >= segments_least, "{topic}-{partition}: {segments:?}");
    for segment in segments {
        let bytes = std::fs::metadata(&segment).expect("a segment").len();
        assert!(bytes <= u64::from(SEGMENT_BYTES), "{}: {bytes} bytes", segment.display());
    }
}

fn fingerprint_of(mirror: &Mirror, topic: &str) -> Fingerprint {
    fingerprint(&mirror.partition_dir(topic, 0), 0).expect("a log")
}

fn every_codec_and_every_kind_of_record_has_the_same_bytes(stage: &Stage) {
    let source = stage.source();
    stage.create("kinds-codecs", 2, &["retention.ms=-1"]).unwrap();
    stage.create("kinds-appended", 1, &["message.timestamp.type=LogAppendTime"]).unwrap();
    stage.create("kinds-backwards", 1, &["retention.ms=-1"]).unwrap();
    let mut mirror = Mirror::start(&stage.cluster, &["kinds-.*"]);
    let others = [WriterKind::Ring, WriterKind::Direct]
        .map(|writer| Mirror::start_with(&stage.cluster, &["kinds-.*"], |c| c.writer = writer));
    for (round, codec) in CODECS.into_iter().enumerate() {
        let options = [
            ("--partitions", "2"),
            ("--records", "8000"),
            ("--size", "500"),
            ("--compression", codec),
            ("--tombstone-every", "11"),
            ("--idempotent", if round % 2 == 0 { "true" } else { "false" }),
            ("--timestamp-first", "1700000000000"),
        ];
        source.produce("kinds-codecs", &options).unwrap();
        let options = [("--records", "300"), ("--compression", codec)];
        source.produce("kinds-appended", &options).unwrap();
        let options = [
            ("--records", "300"),
            ("--compression", codec),
            ("--timestamp-first", ["1700000000000", "1600000000000", "0"][round % 3]),
            ("--timestamp-step", ["-1000", "7", "0"][round % 3]),
        ];
        source.produce("kinds-backwards", &options).unwrap();
    }
    let topics =
        [("kinds-codecs", 0), ("kinds-codecs", 1), ("kinds-appended", 0), ("kinds-backwards", 0)];
    for (topic, partition) in topics {
        for mirror in others.iter().chain([&mirror]) {
            mirror.await_same(&stage.cluster, topic, partition, 0);
        }
    }
    drop(others);
    assert_rolled(&mirror, "kinds-codecs", 0, 3);
    mirror.die();
    mirror.resume();
    for (topic, partition) in topics {
        mirror.await_same(&stage.cluster, topic, partition, 0);
    }
    assert_eq!(mirror.sum(|shard| shard.cut_bytes.value()), 0, "nothing was torn");
    mirror.stop();
    assert_kafka_is_content(stage, &mirror, &topics);
    mirror.resume();
    source.produce("kinds-appended", &[]).unwrap();
    mirror.await_topic(&stage.cluster, "kinds-appended", 1);
    assert_eq!(mirror.sum(|shard| shard.recovered_bytes.value()), 0, "it was stopped cleanly");
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
}

fn batches_larger_than_a_segment_and_than_a_fetch_are_mirrored_whole(stage: &Stage) {
    let source = stage.source();
    stage.create("large", 2, &["max.message.bytes=30000000"]).unwrap();
    let mut mirror = Mirror::start(&stage.cluster, &["large"]);
    for size in ["3000000", "100", "12000000", "100"] {
        let options = [("--partitions", "2"), ("--records", "4"), ("--size", size)];
        source.produce("large", &options).unwrap();
    }
    mirror.await_topic(&stage.cluster, "large", 2);
    let here = stage.at(&mirror.bootstrap());
    let isolation = Isolation::Uncommitted;
    assert_eq!(
        here.digest("large", isolation).unwrap(),
        source.digest("large", isolation).unwrap()
    );
    assert_eq!(mirror.sum(|shard| shard.refused_batches.value()), 0);
    mirror.stop();
    assert_kafka_is_content(stage, &mirror, &[("large", 0)]);
}

/// The connection was dropped again and again, and no partition was named.
fn a_batch_larger_than_memory_stops_its_partition_by_name_and_no_other(stage: &Stage) {
    let source = stage.source();
    stage.create("huge", 1, &["max.message.bytes=30000000"]).unwrap();
    stage.create("beside-huge", 2, &[]).unwrap();
    let beside = [("--partitions", "2"), ("--records", "2000"), ("--size", "2000")];
    source.produce("huge", &[("--records", "1"), ("--size", "12000000")]).unwrap();
    source.produce("beside-huge", &beside).unwrap();
    let mut mirror = Mirror::start_with(&stage.cluster, &["huge", "beside-huge"], |config| {
        config.shards = 1;
        config.memory_bytes = 8 << 20;
    });
    mirror.wait_for("the large batch to be refused", |node| {
        node.sum(|shard| shard.partitions_failed.value()) == 1
    });
    mirror.await_topic(&stage.cluster, "beside-huge", 2);
    source.produce("beside-huge", &beside).unwrap();
    mirror.await_topic(&stage.cluster, "beside-huge", 2);
    mirror.stop();
    mirror.change(|config| config.memory_bytes = 64 << 20);
    mirror.resume();
    mirror.await_topic(&stage.cluster, "huge", 1);
    assert_eq!(mirror.sum(|shard| shard.partitions_failed.value()), 0);
}

fn transactions_have_the_same_bytes_while_open_and_after_they_ended(stage: &Stage) {
    let source = stage.source();
    stage.create("txn-mixed", 2, &["segment.bytes=1048576"]).unwrap();
    stage.create("txn-aborted", 1, &[]).unwrap();
    let options = [
        ("--partitions", "2"),
        ("--producers", "3"),
        ("--transactions", "8"),
        ("--size", "20000"),
        ("--leave-open", "true"),
    ];
    let mixed = source.transactions("txn-mixed", &options).unwrap();
    assert_eq!((mixed.committed, mixed.aborted), (16, 8));
    let mut mirror = Mirror::start(&stage.cluster, &["txn-.*"]);
    let options = [("--leave-open", "true"), ("--compression", "zstd")];
    let aborted = source.transactions("txn-aborted", &options).unwrap();
    let topics = [("txn-mixed", 0), ("txn-mixed", 1), ("txn-aborted", 0)];
    let all_same = |mirror: &Mirror| {
        for (topic, partition) in topics {
            mirror.await_same(&stage.cluster, topic, partition, 0);
        }
    };
    let all_read_the_same = |mirror: &Mirror| {
        let here = stage.at(&mirror.bootstrap());
        for topic in ["txn-mixed", "txn-aborted"] {
            for isolation in Isolation::BOTH {
                let ours = here.digest(topic, isolation).unwrap();
                assert_eq!(
                    ours,
                    source.digest(topic, isolation).unwrap(),
                    "{topic}, {isolation:?}"
                );
            }
        }
    };
    all_same(&mirror);
    all_read_the_same(&mirror);
    mirror.die();
    mirror.resume();
    source.end_open(&aborted.open.unwrap(), false).unwrap();
    all_same(&mirror);
    mirror.stop();
    source.end_open(&mixed.open.unwrap(), true).unwrap();
    mirror.resume();
    all_same(&mirror);
    all_read_the_same(&mirror);
    mirror.stop();
    assert_kafka_is_content(stage, &mirror, &topics);
    let aborts: usize = files(&mirror.partition_dir("txn-mixed", 0), "txnindex")
        .unwrap()
        .iter()
        .map(|path| std::fs::read(path).unwrap().len())
        .sum();
    assert!(aborts > 0, "aborted transactions are in the index");
}

fn a_compacted_topic_is_mirrored_with_its_holes_and_no_loss_is_counted(stage: &Stage) {
    let source = stage.source();
    let config = [
        "cleanup.policy=compact",
        "segment.bytes=1048576",
        "segment.ms=500",
        "min.cleanable.dirty.ratio=0.01",
        "delete.retention.ms=0",
    ];
    stage.create("compacted", 1, &config).unwrap();
    let options = [("--records", "20000"), ("--compression", "lz4"), ("--batch-size", "2000")];
    source.compact_load("compacted", &options).unwrap();
    let options = [("--transactions", "4"), ("--records-per", "20"), ("--keyed", "true")];
    source.transactions("compacted", &options).unwrap();
    let theirs = stage.partition_dir("compacted", 0);
    // Far above what the last values take, far below what was written.
    let cleaned = |bytes: u64| bytes < 200_000;
    let mut checked = 0;
    wait_until("the cleaner to have cleaned all that it can", WITHIN, || {
        checked += 1;
        if checked % 50 == 1 && !cleaned(fingerprint(&theirs, 0).ok()?.bytes) {
            // Every append may roll the segment, and only rolled ones are cleaned.
            source.compact_load("compacted", &[("--records", "20")]).unwrap();
        }
        let bytes = fingerprint(&theirs, 0).ok()?.bytes;
        (cleaned(bytes) && is_clean(&stage.cluster.log_dir(1), &theirs)).then_some(())
    })
    .unwrap();
    // A clean log is cleaned once more when the horizon of its tombstones and markers has passed
    // (KIP-534), without an append; then the source has less than what was mirrored before. Which of
    // the two it is does not matter here, only that it stays.
    source.alter_config("compacted", &["cleanup.policy=delete", "retention.ms=-1"]).unwrap();
    let mut mirror = Mirror::start(&stage.cluster, &["compacted"]);
    mirror.await_topic(&stage.cluster, "compacted", 1);
    let here = stage.at(&mirror.bootstrap());
    for isolation in Isolation::BOTH {
        let ours = here.digest("compacted", isolation).unwrap();
        assert_eq!(ours, source.digest("compacted", isolation).unwrap());
        assert!(ours[0].records < 2000, "{ours:?}");
    }
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
    mirror.die();
    mirror.resume();
    mirror.await_topic(&stage.cluster, "compacted", 1);
    mirror.stop();
    assert_kafka_is_content(stage, &mirror, &[("compacted", 0)]);
    assert!(!mirror.data().join("farspan-losses.jsonl").exists());
}

/// Whether the cleaner has come as far as the active segment.
fn is_clean(data: &Path, partition: &Path) -> bool {
    let Some(active) = segments(partition).ok().and_then(|segments| segments.last().cloned())
    else {
        return false;
    };
    let active: i64 = active.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let name = partition.file_name().unwrap().to_str().unwrap();
    let (topic, index) = name.rsplit_once('-').unwrap();
    let checkpoint = std::fs::read_to_string(data.join("cleaner-offset-checkpoint"));
    checkpoint
        .is_ok_and(|text| text.lines().any(|line| line == format!("{topic} {index} {active}")))
}

fn a_log_start_inside_a_batch_is_followed_before_and_while_mirroring(stage: &Stage) {
    let source = stage.source();
    stage.create("trimmed", 1, &[]).unwrap();
    let options = [("--records", "20000"), ("--size", "300"), ("--linger-ms", "50")];
    source.produce("trimmed", &options).unwrap();
    assert_eq!(source.delete_records("trimmed", 0, 1234).unwrap(), 1234);
    let mut mirror = Mirror::start(&stage.cluster, &["trimmed"]);
    mirror.await_same(&stage.cluster, "trimmed", 0, 1234);
    let starts_at = |mirror: &Mirror, offset: i64| {
        let here = stage.at(&mirror.bootstrap());
        let mut found = None;
        let waited = wait_until("the log start", WITHIN, || {
            let offsets = here.offsets("trimmed", None, Isolation::Uncommitted).unwrap();
            found = Some(offsets[0].earliest);
            (offsets[0].earliest == offset).then_some(())
        });
        waited.unwrap_or_else(|error| panic!("{error} {offset}: it is {found:?}"));
        let ours = here.digest("trimmed", Isolation::Uncommitted).unwrap();
        assert_eq!(ours, source.digest("trimmed", Isolation::Uncommitted).unwrap());
    };
    starts_at(&mirror, 1234);
    // Past several of the mirror's segments, and inside a batch again.
    assert_eq!(source.delete_records("trimmed", 0, 15_001).unwrap(), 15_001);
    starts_at(&mirror, 15_001);
    mirror.await_same(&stage.cluster, "trimmed", 0, 15_001);
    mirror.stop();
    assert_kafka_is_content(stage, &mirror, &[("trimmed", 0)]);
    mirror.resume();
    starts_at(&mirror, 15_001);
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
}

fn segments_that_retention_removed_are_not_missed(stage: &Stage) {
    let source = stage.source();
    let config = ["segment.bytes=1048576", "retention.bytes=1048576"];
    stage.create("retained", 1, &config).unwrap();
    let fill = || {
        source.produce("retained", &[("--records", "8000"), ("--size", "500")]).unwrap();
    };
    let theirs = stage.partition_dir("retained", 0);
    let first = |folder: &Path| -> i64 {
        let segments = segments(folder).unwrap();
        segments[0].file_stem().unwrap().to_str().unwrap().parse().unwrap()
    };
    let await_removal_after = |start: i64| {
        wait_until("retention", WITHIN, || (first(&theirs) > start).then(|| first(&theirs)))
            .unwrap()
    };
    fill();
    await_removal_after(0);
    let mirror = Mirror::start(&stage.cluster, &["retained"]);
    mirror.wait_for("records", |node| node.sum(|shard| shard.admitted_bytes.value()) > 0);
    let here = stage.at(&mirror.bootstrap());
    let await_same_offsets = || {
        let ends = |at: &At| {
            let offsets = at.offsets("retained", None, Isolation::Uncommitted).unwrap();
            (offsets[0].earliest, offsets[0].latest)
        };
        wait_until("the same offsets", WITHIN, || (ends(&here) == ends(&source)).then_some(()))
            .unwrap_or_else(|error| panic!("{error}: {:?}, not {:?}", ends(&here), ends(&source)));
    };
    await_same_offsets();
    let earliest = source.offsets("retained", None, Isolation::Uncommitted).unwrap()[0].earliest;
    mirror.await_same(&stage.cluster, "retained", 0, earliest);
    fill();
    await_removal_after(earliest);
    await_same_offsets();
    let earliest = source.offsets("retained", None, Isolation::Uncommitted).unwrap()[0].earliest;
    mirror.await_same(&stage.cluster, "retained", 0, earliest);
    let ours = mirror.partition_dir("retained", 0);
    wait_until("the mirror to give up old segments too", WITHIN, || {
        (first(&ours) > 0).then_some(())
    })
    .unwrap();
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
}

fn two_hundred_partitions_of_one_topic_are_mirrored(stage: &Stage) {
    let source = stage.source();
    stage.create("many", 200, &[]).unwrap();
    source.produce("many", &[("--partitions", "200"), ("--records", "6000")]).unwrap();
    let mut mirror = Mirror::start(&stage.cluster, &["many"]);
    mirror.await_topic(&stage.cluster, "many", 200);
    source.produce("many", &[("--partitions", "200"), ("--records", "2000")]).unwrap();
    mirror.await_topic(&stage.cluster, "many", 200);
    let here = stage.at(&mirror.bootstrap());
    let isolation = Isolation::Uncommitted;
    assert_eq!(here.digest("many", isolation).unwrap(), source.digest("many", isolation).unwrap());
    mirror.stop();
    mirror.resume();
    source.produce("many", &[("--partitions", "200"), ("--records", "2000")]).unwrap();
    mirror.await_topic(&stage.cluster, "many", 200);
    let mirroring = |node: &Node| node.sum(|s| s.partitions_mirroring.value()) == 200;
    mirror.wait_for("all to be mirrored", mirroring);
}

fn topics_and_partitions_that_come_while_mirroring_are_mirrored_from_their_first_record(
    stage: &Stage,
) {
    let source = stage.source();
    stage.create("grows", 2, &[]).unwrap();
    let mirror = Mirror::start(&stage.cluster, &["grows", "comes"]);
    let options = [("--partitions", "2"), ("--rate", "2000")];
    source.stream_start("grows", "grows", &options).unwrap();
    mirror.wait_for("records", |node| node.sum(|shard| shard.admitted_bytes.value()) > 0);
    stage.create("comes", 3, &[]).unwrap();
    source.produce("comes", &[("--partitions", "3"), ("--records", "3000")]).unwrap();
    stage.add_partitions("grows", 5).unwrap();
    source.produce("grows", &[("--partitions", "5"), ("--records", "5000")]).unwrap();
    mirror.await_topic(&stage.cluster, "comes", 3);
    source.stream_stop("grows").unwrap();
    mirror.await_topic(&stage.cluster, "grows", 5);
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
}

fn offsets_that_were_deleted_while_the_mirror_was_down_are_counted_and_written_down(stage: &Stage) {
    let source = stage.source();
    for topic in ["lost-inside", "lost-all", "lost-none"] {
        stage.create(topic, 1, &[]).unwrap();
        source.produce(topic, &[("--records", "1000")]).unwrap();
    }
    let mut mirror = Mirror::start(&stage.cluster, &["lost-.*"]);
    for topic in ["lost-inside", "lost-all", "lost-none"] {
        mirror.await_topic(&stage.cluster, topic, 1);
    }
    mirror.stop();
    for topic in ["lost-inside", "lost-all", "lost-none"] {
        source.produce(topic, &[("--records", "1000"), ("--linger-ms", "50")]).unwrap();
    }
    source.delete_records("lost-inside", 0, 1601).unwrap();
    source.delete_records("lost-all", 0, -1).unwrap();
    source.delete_records("lost-none", 0, 1000).unwrap();
    mirror.resume();
    mirror.await_same(&stage.cluster, "lost-inside", 0, 1601);
    mirror.await_same(&stage.cluster, "lost-none", 0, 1000);
    source.produce("lost-all", &[("--records", "100")]).unwrap();
    mirror.await_same(&stage.cluster, "lost-all", 0, 2000);
    mirror.wait_for("the losses", |node| node.sum(|shard| shard.losses.value()) == 2);
    assert_eq!(mirror.sum(|shard| shard.lost_offsets.value()), 601 + 1000);
    mirror.stop();
    let text = std::fs::read_to_string(mirror.data().join("farspan-losses.jsonl")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable_by_key(|line| line.contains("lost-inside"));
    let expected = [
        r#""topic":"lost-all","partition":0,"first_offset":1000,"next_offset":2000,"reason":"the log start moved past the last record"}"#,
        r#""topic":"lost-inside","partition":0,"first_offset":1000,"next_offset":1601,"reason":"DeleteRecords"}"#,
    ];
    assert_eq!(lines.len(), 2, "{text}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.ends_with(expected), "{line}");
    }
    assert_kafka_is_content(stage, &mirror, &[("lost-inside", 0), ("lost-all", 0)]);
}

fn a_topic_deleted_at_the_source_fails_by_name_and_is_served_on(stage: &Stage) {
    let source = stage.source();
    for topic in ["goes", "stays"] {
        stage.create(topic, 1, &[]).unwrap();
        source.produce(topic, &[]).unwrap();
    }
    let mut mirror = Mirror::start(&stage.cluster, &["goes", "stays"]);
    mirror.await_topic(&stage.cluster, "goes", 1);
    let all = source.digest("goes", Isolation::Uncommitted).unwrap();
    let failed = |node: &Node| node.sum(|shard| shard.partitions_failed.value());
    source.delete("goes").unwrap();
    mirror.wait_for("one to fail", |node| failed(node) == 1);
    source.produce("stays", &[]).unwrap();
    mirror.await_topic(&stage.cluster, "stays", 1);
    let here = stage.at(&mirror.bootstrap());
    assert_eq!(here.digest("goes", Isolation::Uncommitted).unwrap(), all);
    mirror.stop();
    mirror.resume();
    source.produce("stays", &[]).unwrap();
    mirror.await_topic(&stage.cluster, "stays", 1);
    let here = stage.at(&mirror.bootstrap());
    assert_eq!(here.digest("goes", Isolation::Uncommitted).unwrap(), all);
}

/// Nobody mirrors the partition, and no number says so: who starts a node on a folder with a topic
/// that the source has lost must be told as loudly as who saw it go.
#[test]
fn a_topic_that_was_deleted_while_the_mirror_was_down_fails_by_name() {
    let stage = stage("4.4.0");
    let source = stage.source();
    for topic in ["went", "stayed"] {
        stage.create(topic, 1, &[]).unwrap();
        source.produce(topic, &[]).unwrap();
    }
    let mut mirror = Mirror::start(&stage.cluster, &["went", "stayed"]);
    mirror.await_topic(&stage.cluster, "went", 1);
    mirror.stop();
    source.delete("went").unwrap();
    mirror.resume();
    mirror.wait_for("one to fail", |node| {
        node.sum(|shard| shard.partitions_failed.value()) == 1
            && node.sum(|shard| shard.partitions_mirroring.value()) == 1
    });
}

#[test]
fn leaders_that_die_under_load_leave_no_difference() {
    let options = ClusterOptions::default().brokers(3).set("min.insync.replicas", "2");
    let mut cluster = Cluster::start(&Installation::get("4.4.0").unwrap(), options).unwrap();
    let workload = Workload::start(&Installation::clients().unwrap()).unwrap();
    let source = workload.at(&cluster.bootstrap());
    source.create_replicated("led", 4, 3, &[]).unwrap();
    source.offsets("led", None, Isolation::Uncommitted).unwrap();
    let mut mirror = Mirror::start(&cluster, &["led"]);
    source.stream_start("load", "led", &[("--partitions", "4"), ("--rate", "2000")]).unwrap();
    let await_records = |more: u64| {
        let taken = mirror.sum(|shard| shard.admitted_batches.value()) + more;
        mirror
            .wait_for("records", |node| node.sum(|shard| shard.admitted_batches.value()) >= taken);
    };
    await_records(20);
    for victim in [1, 2] {
        cluster.kill9(victim);
        await_records(50);
        cluster.restart(victim).unwrap();
        await_records(50);
    }
    source.stream_stop("load").unwrap();
    wait_until("all replicas to be in sync", WITHIN, || {
        let (_, partitions) = source.describe("led").unwrap();
        partitions.iter().all(|partition| partition.in_sync.len() == 3).then_some(())
    })
    .unwrap();
    mirror.await_topic(&cluster, "led", 4);
    assert_eq!(mirror.sum(|shard| shard.losses.value() + shard.partitions_failed.value()), 0);
    mirror.stop();
    mirror.resume();
    source.produce("led", &[("--partitions", "4")]).unwrap();
    mirror.await_topic(&cluster, "led", 4);
}

/// The records in the new topic: fewer than, as many as and more than the mirror has of the old one.
const ANEW: [(&str, &str); 3] = [("fewer", "200"), ("as-many", "1000"), ("more", "3000")];

fn create_old_ones(stage: &Stage, prefix: &str) -> (Mirror, BTreeMap<String, Fingerprint>) {
    let source = stage.source();
    for (name, _) in ANEW {
        let topic = format!("{prefix}-{name}");
        stage.create(&topic, 1, &[]).unwrap();
        source.produce(&topic, &[("--records", "1000")]).unwrap();
    }
    let mirror = Mirror::start(&stage.cluster, &[&format!("{prefix}-.*")]);
    let mut fingerprints = BTreeMap::new();
    for (name, _) in ANEW {
        let topic = format!("{prefix}-{name}");
        mirror.await_topic(&stage.cluster, &topic, 1);
        fingerprints.insert(topic.clone(), fingerprint_of(&mirror, &topic));
    }
    (mirror, fingerprints)
}

/// Deletes a topic and creates it again under the same name, which old brokers take a while for.
fn create_anew(stage: &Stage, prefix: &str) {
    let source = stage.source();
    for (name, records) in ANEW {
        let topic = format!("{prefix}-{name}");
        let (old, _) = source.describe(&topic).unwrap();
        source.delete(&topic).unwrap();
        let mut last = String::new();
        wait_until("the topic's name to be free", Duration::from_secs(30), || {
            stage.create(&topic, 1, &[]).map_err(|error| last = error).ok()
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
        source.produce(&topic, &[("--records", records), ("--seed", "7")]).unwrap();
        assert_ne!(source.describe(&topic).unwrap().0, old);
    }
}

fn a_topic_created_anew_while_mirroring_fails_by_name_and_the_old_log_stays(stage: &Stage) {
    let (mut mirror, fingerprints) = create_old_ones(stage, "anew-live");
    create_anew(stage, "anew-live");
    mirror.wait_for("all three to fail", |node| {
        node.sum(|shard| shard.partitions_failed.value()) == 3
    });
    for (topic, old) in &fingerprints {
        assert_eq!(fingerprint_of(&mirror, topic), *old, "{topic}");
    }
    mirror.stop();
    mirror.resume();
    mirror.wait_for("all three to fail again", |node| {
        node.sum(|shard| shard.partitions_failed.value()) == 3
    });
    for (topic, old) in &fingerprints {
        assert_eq!(fingerprint_of(&mirror, topic), *old, "{topic}");
    }
}

#[test]
fn nothing_is_taken_by_id_of_a_topic_created_anew_while_the_way_was_cut() {
    nothing_is_taken_of_a_topic_created_anew_while_the_way_was_cut(stage("4.4.0"));
}

#[test]
fn nothing_is_taken_by_name_of_a_topic_created_anew_while_the_way_was_cut() {
    nothing_is_taken_of_a_topic_created_anew_while_the_way_was_cut(stage("2.8.2"));
}

/// While the way to the source was cut, the topic became another one of the same name: what the next
/// fetch by name brings is not the continuation of what we have, although its offsets fit.
fn nothing_is_taken_of_a_topic_created_anew_while_the_way_was_cut(stage: &Stage) {
    let source = stage.source();
    let relay = Relay::to(&stage.cluster.bootstrap()).unwrap();
    stage.create("cut-off", 1, &[]).unwrap();
    source.produce("cut-off", &[("--records", "1000")]).unwrap();
    let mirror = Mirror::start_with(&stage.cluster, &["cut-off"], |config| {
        let link = config.source.as_mut().unwrap();
        let ours = ("127.0.0.1".to_owned(), relay.address().port());
        link.rewritten_addresses = [(link.bootstrap[0].clone(), ours.clone())].into();
        link.bootstrap = vec![ours];
        // As it may be by chance: the listing of all topics is not due soon.
        link.metadata_max_age = Duration::from_secs(30);
    });
    mirror.await_topic(&stage.cluster, "cut-off", 1);
    let old = fingerprint_of(&mirror, "cut-off");
    relay.cut();
    source.delete("cut-off").unwrap();
    let mut last = String::new();
    wait_until("the topic's name to be free", Duration::from_secs(30), || {
        stage.create("cut-off", 1, &[]).map_err(|error| last = error).ok()
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
    // A batch begins exactly where the next one of the old topic would.
    for records in ["1000", "2000"] {
        source.produce("cut-off", &[("--records", records), ("--seed", "7")]).unwrap();
    }
    relay.mend();
    mirror.wait_for("it to fail", |node| node.sum(|shard| shard.partitions_failed.value()) == 1);
    assert_eq!(fingerprint_of(&mirror, "cut-off"), old);
}

fn a_topic_created_anew_while_the_mirror_was_down_fails_by_name_and_the_old_log_stays(
    stage: &Stage,
) {
    let (mut mirror, fingerprints) = create_old_ones(stage, "anew-down");
    mirror.stop();
    create_anew(stage, "anew-down");
    mirror.resume();
    mirror.wait_for("all three to fail", |node| {
        node.sum(|shard| shard.partitions_failed.value()) == 3
    });
    for (topic, old) in &fingerprints {
        assert_eq!(fingerprint_of(&mirror, topic), *old, "{topic}");
        // What was mirrored is still served.
        let here = stage.at(&mirror.bootstrap());
        let ours = here.digest(topic, Isolation::Uncommitted).unwrap();
        assert_eq!((ours[0].first, ours[0].next, ours[0].records), (0, 1000, 1000));
    }
    assert_eq!(mirror.sum(|shard| shard.losses.value()), 0);
}
