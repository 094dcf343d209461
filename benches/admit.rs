//! `mirror::admit`: what one fetched range costs before it may be written, every CRC included.

use std::hint::black_box;

use benches::batches;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::mirror::admit::{Expectation, admit};
use wire::ids::{LeaderEpoch, Offset};

fn admission(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admit");
    let expectation = Expectation {
        next: Offset(0),
        log_is_empty: false,
        last_epoch: LeaderEpoch(1),
        source_epoch: LeaderEpoch(1),
    };
    for batch_bytes in [200, 1 << 10, 16 << 10, 128 << 10] {
        let records = batches(Offset(0), batch_bytes, 1 << 20);
        group.throughput(Throughput::Bytes(records.len() as u64));
        let mut admitted = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(batch_bytes), |bencher| {
            bencher.iter(|| {
                admitted.clear();
                let admission = admit(black_box(&records), &expectation, &mut admitted);
                assert_eq!(admission.length, records.len());
            });
        });
    }
    group.finish();
}

criterion_group!(benches, admission);
criterion_main!(benches);
