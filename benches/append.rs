//! `store::Log::append`: the plan of an append with its index entries, producers and epochs; the
//! bytes themselves are not written.

use std::sync::Arc;

use benches::batches;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::admitted::AdmittedBatch;
use engine::ids::TopicPartition;
use engine::mirror::admit::{Expectation, admit};
use engine::ring::HostDisk;
use engine::store::{Log, LogConfig, Place};
use wire::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};

const BATCHES_PER_APPEND: usize = 64;

fn admitted(batch_bytes: usize) -> Vec<AdmittedBatch> {
    let records = batches(Offset(0), batch_bytes, batch_bytes * BATCHES_PER_APPEND);
    let expectation = Expectation {
        next: Offset(0),
        log_is_empty: true,
        last_epoch: LeaderEpoch(1),
        source_epoch: LeaderEpoch(1),
    };
    let mut admitted = Vec::new();
    admit(&records, &expectation, &mut admitted);
    admitted
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append plan");
    let folder = tempfile::tempdir().expect("a folder");
    for batch_bytes in [1 << 10, 16 << 10] {
        let mut batches = admitted(batch_bytes);
        let step = batches.last().expect("some").last_offset.0 + 1;
        let partition = TopicPartition {
            topic: format!("bench-{batch_bytes}").into(),
            partition: PartitionIndex(0),
        };
        let config = Arc::new(LogConfig::default());
        let (id, start) = (TopicId([1; 16]), Offset(0));
        let disk = &mut HostDisk;
        let place = Place { data: folder.path(), partition: &partition, config: &config };
        let log = Log::create(disk, place, id, start, 0);
        let mut log = log.expect("a log");
        group.throughput(Throughput::Elements(batches.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(batch_bytes), |bencher| {
            bencher.iter(|| {
                for piece in log.append(disk, &batches, 0).expect("in order") {
                    log.appended(piece.next);
                }
                for batch in &mut batches {
                    batch.base_offset.0 += step;
                    batch.last_offset.0 += step;
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
