//! `wire::fetch`: the walk over a Fetch response, by what it names per partition.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::fetch::{FetchResponse, FetchResponseHead, FetchResponseWriter, PartitionData, TopicKey};
use wire::ids::{Offset, PartitionIndex, TopicId};

const VERSION: i16 = 17;
/// Size, correlation id, tagged fields: what stands before the body.
const BODY_AT: usize = 4 + 4 + 1;

/// A response of so many partitions in topics of 100, none with records.
fn response(partitions: i32) -> Vec<u8> {
    let topics = (partitions / 100).max(1);
    let each = partitions / topics;
    let head = FetchResponseHead { session_id: 7, ..FetchResponseHead::default() };
    let mut writer = FetchResponseWriter::start(1, VERSION, &head, topics as usize);
    for topic in 0..topics {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&topic.to_be_bytes());
        writer.topic(TopicKey { name: "", id: TopicId(id) }, each as usize);
        for index in 0..each {
            let told = PartitionData {
                high_watermark: Offset(1 << 30),
                last_stable_offset: Offset(1 << 30),
                log_start_offset: Offset(0),
                ..PartitionData::error(PartitionIndex(index), 0)
            };
            writer.partition(&told, 0);
        }
    }
    writer.finish(&[]).bytes
}

fn scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fetch response scan");
    for partitions in [1, 100, 10_000] {
        let frame = response(partitions);
        group.throughput(Throughput::Elements(u64::from(partitions.unsigned_abs())));
        group.bench_with_input(
            BenchmarkId::from_parameter(partitions),
            &frame,
            |bencher, frame| {
                bencher.iter(|| {
                    let frame = black_box(frame.as_slice());
                    let mut walk = FetchResponse::open(frame, BODY_AT, VERSION).expect("a head");
                    let mut seen = 0;
                    while walk.topic(frame).expect("a topic").is_some() {
                        while let Some(told) = walk.partition(frame).expect("a partition") {
                            seen += usize::from(told.error_code == 0);
                        }
                    }
                    assert_eq!(seen, partitions as usize);
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
