//! Bytes that a real broker wrote; `golden/README.md` says how.

use wire::batch::{Attributes, Batch, BatchBuilder, Batches, Compression, NewRecord};
use wire::fetch::{
    FetchResponse, FetchResponseFrame, FetchResponseWriter, FetchedPartition, PartitionData, Piece,
};
use wire::ids::{BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use wire::record::{ControlKind, ControlRecord, Records, end_txn_marker};

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).expect(&path)
}

fn batches(segment: &[u8]) -> Vec<Batch<'_>> {
    let mut walk = Batches::new(segment);
    let found: Vec<_> = walk.by_ref().map(|found| found.expect("a sound batch").1).collect();
    assert_eq!(walk.rest().left, 0);
    for batch in &found {
        assert_eq!(batch.verify_crc(), Ok(()));
    }
    found
}

#[test]
fn segments_of_every_codec_are_walked() {
    for (name, compression) in [
        ("none.log", Compression::None),
        ("gzip.log", Compression::Gzip),
        ("snappy.log", Compression::Snappy),
        ("lz4.log", Compression::Lz4),
        ("zstd.log", Compression::Zstd),
    ] {
        let segment = golden(name);
        let found = batches(&segment);
        assert_eq!(found.len(), 2, "{name}");
        assert_eq!((found[0].record_count(), found[1].record_count()), (4, 1), "{name}");
        assert_eq!((found[0].last_offset(), found[1].base_offset()), (Offset(3), Offset(4)));
        assert_eq!((found[0].last_sequence(), found[1].base_sequence()), (3, 4), "{name}");
        assert_eq!(found[0].max_timestamp(), 1_700_000_000_003, "{name}");
        assert_eq!(found[0].attributes().compression(), compression, "{name}");
    }
}

#[test]
fn records_read_from_a_batch_and_built_again_are_the_same_bytes() {
    let segment = golden("none.log");
    for batch in batches(&segment) {
        let mut builder = BatchBuilder::new(batch.base_offset(), batch.base_timestamp())
            .leader_epoch(batch.partition_leader_epoch())
            .attributes(batch.attributes())
            .producer(batch.producer_id(), batch.producer_epoch(), batch.base_sequence());
        for record in Records::of(&batch) {
            let record = record.expect("a sound record");
            let headers: Vec<_> = record.headers.collect();
            builder = builder.record(NewRecord {
                offset_delta: record.offset_delta,
                timestamp_delta: record.timestamp_delta,
                key: record.key,
                value: record.value,
                headers: &headers,
            });
        }
        assert_eq!(builder.build(), batch.as_bytes());
    }
}

#[test]
fn markers_are_built_as_the_broker_writes_them() {
    let segment = golden("transactions.log");
    let found = batches(&segment);
    let kinds = [(1, ControlKind::Commit), (3, ControlKind::Abort)];
    assert_eq!(found.len(), 4);
    for (index, kind) in kinds {
        let marker = found[index];
        assert_eq!(marker.attributes(), Attributes(0x30));
        let control = ControlRecord::of(&marker).expect("a control record");
        assert_eq!((control.version, control.kind), (0, kind));
        let value = control.end_txn_marker().expect("the end of a transaction");
        let built = end_txn_marker(
            kind,
            marker.base_offset(),
            marker.max_timestamp(),
            marker.partition_leader_epoch(),
            (marker.producer_id(), marker.producer_epoch()),
            value.coordinator_epoch,
        );
        assert_eq!(built, marker.as_bytes());
    }
    assert_eq!(found[1].partition_leader_epoch(), LeaderEpoch(0));
}

#[test]
fn responses_are_walked_and_written_as_the_broker_wrote_them() {
    let logs = [golden("none.log"), golden("transactions.log")];
    for version in [4, 11, 12, 18] {
        let frame = golden(&format!("fetch-v{version}.bin"));
        let body = if version >= 12 { 9 } else { 8 };
        let mut walk = FetchResponse::open(&frame, body, version).expect("a response");
        let mut out = FetchResponseWriter::start(99, version, &walk.head(), 2);
        let mut index = 0;
        while let Some(topic) = walk.topic(&frame).expect("a topic") {
            out.topic(topic, 1);
            while let Some(seen) = walk.partition(&frame).expect("a partition") {
                assert_eq!(&frame[seen.records.clone()], logs[index], "version {version}");
                assert_eq!((seen.error_code, seen.high_watermark), (0, Offset(5)));
                assert_eq!(seen.preferred_read_replica, BrokerId::NONE);
                write_again(&mut out, &seen, index);
                index += 1;
            }
        }
        assert_eq!(walk.tail(&frame).expect("a tail").node_endpoints.count(), 0);
        assert_eq!(index, 2);
        assert_eq!(glued(&out.finish(&[]), &logs), frame, "version {version}");
    }
}

/// Towards a reader of committed records the broker answers an empty list, not null.
fn write_again(out: &mut FetchResponseWriter, seen: &FetchedPartition<'_>, index: usize) {
    let aborted: Vec<_> = seen.aborted_transactions.collect();
    if index == 1 {
        let producer = ProducerId(5);
        assert_eq!((aborted.len(), aborted[0].producer_id), (1, producer));
        assert_eq!(aborted[0].first_offset, Offset(3));
    }
    let data = PartitionData {
        partition_index: seen.partition_index,
        error_code: seen.error_code,
        high_watermark: seen.high_watermark,
        last_stable_offset: seen.last_stable_offset,
        log_start_offset: seen.log_start_offset,
        aborted_transactions: Some(&aborted),
        preferred_read_replica: seen.preferred_read_replica,
        diverging_epoch: seen.diverging_epoch,
        current_leader: seen.current_leader,
        snapshot_id: seen.snapshot_id,
    };
    out.partition(&data, seen.records.len());
}

fn glued(frame: &FetchResponseFrame, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in &frame.pieces {
        match piece {
            Piece::Bytes(range) => bytes.extend_from_slice(&frame.bytes[range.clone()]),
            Piece::Records { index, .. } => bytes.extend_from_slice(&records[*index]),
        }
    }
    bytes
}

#[test]
fn a_marker_carries_a_higher_epoch_than_the_batches_it_ends() {
    // Since Kafka 4.0 (transaction version 2) every end of a transaction raises the producer's epoch.
    let segment = golden("transactions.log");
    let epochs: Vec<_> = batches(&segment).iter().map(|batch| batch.producer_epoch()).collect();
    assert_eq!(epochs, [0, 1, 1, 2].map(ProducerEpoch));
}
