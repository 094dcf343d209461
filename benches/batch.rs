//! `wire::batch`: walking headers, the CRC, and the patch of a CRC after a change.

use std::hint::black_box;

use benches::batches;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::batch::{BatchMut, Batches, crc32c};
use wire::ids::{Offset, ProducerEpoch, ProducerId};

fn walk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("header walk");
    for batch_bytes in [1 << 10, 16 << 10] {
        let bytes = batches(Offset(0), batch_bytes, 1 << 20);
        let count = Batches::new(&bytes).count();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_with_input(
            BenchmarkId::from_parameter(batch_bytes),
            &bytes,
            |bencher, bytes| {
                bencher.iter(|| {
                    Batches::new(black_box(bytes))
                        .map(|batch| batch.expect("sound").1.last_offset().0)
                        .max()
                });
            },
        );
    }
    group.finish();
}

fn crc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc32c");
    for size in [200, 1 << 10, 16 << 10, 128 << 10, 1 << 20] {
        let bytes: Vec<u8> = (0..size).map(|index| (index * 31 % 251) as u8).collect();
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::from_parameter(size), &bytes, |bencher, bytes| {
            bencher.iter(|| crc32c(black_box(bytes)));
        });
    }
    group.finish();
}

fn patch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc patch");
    for size in [1 << 10, 64 << 10, 1 << 20] {
        let mut bytes = batches(Offset(0), size, 0);
        let mut epoch = 0_i16;
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                epoch = epoch.wrapping_add(1) & 0x7fff;
                let mut batch = BatchMut::read(black_box(&mut bytes), 0).expect("sound");
                let mut edit = batch.edit();
                edit.set_producer_id(ProducerId(i64::from(epoch) + 1));
                edit.set_producer_epoch(ProducerEpoch(epoch));
                edit.finish();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, walk, crc, patch);
criterion_main!(benches);
