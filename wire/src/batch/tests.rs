use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
    BatchBuilder::new(Offset(base_offset), 1_000)
        .leader_epoch(LeaderEpoch(3))
        .producer(ProducerId(77), ProducerEpoch(2), 40)
        .record(NewRecord { value: Some(value), ..NewRecord::default() })
        .record(NewRecord {
            offset_delta: 1,
            timestamp_delta: 5,
            value: Some(value),
            ..NewRecord::default()
        })
        .build()
}

#[test]
fn reads_back_what_was_built() {
    let bytes = batch(100, b"value");
    let batch = Batch::read(&bytes, 0).expect("a batch");
    assert_eq!(batch.verify_crc(), Ok(()));
    assert_eq!(batch.base_offset(), Offset(100));
    assert_eq!(batch.last_offset(), Offset(101));
    assert_eq!(batch.next_offset(), Offset(102));
    assert_eq!(batch.size(), bytes.len());
    assert_eq!(batch.partition_leader_epoch(), LeaderEpoch(3));
    assert_eq!((batch.base_timestamp(), batch.max_timestamp()), (1_000, 1_005));
    assert_eq!((batch.producer_id(), batch.producer_epoch()), (ProducerId(77), ProducerEpoch(2)));
    assert_eq!((batch.base_sequence(), batch.last_sequence()), (40, 41));
    assert_eq!((batch.record_count(), batch.magic()), (2, 2));
}

#[test]
fn sequences_go_on_at_zero_after_the_largest() {
    let last = |base, delta| {
        let bytes = BatchBuilder::new(Offset(0), 0)
            .producer(ProducerId(1), ProducerEpoch(0), base)
            .payload(b"", 0, delta)
            .build();
        Batch::read(&bytes, 0).expect("a batch").last_sequence()
    };
    assert_eq!(last(i32::MAX - 1, 1), i32::MAX);
    assert_eq!(last(i32::MAX, 1), 0);
    assert_eq!(last(i32::MAX - 2, 10), 7);
    assert_eq!(last(-1, 10), -1, "no sequence has no last one");
}

#[test]
fn attributes_are_kafka_s_bits() {
    let attributes = Attributes(0x2c);
    assert_eq!(attributes.compression(), Compression::Zstd);
    assert_eq!(attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert!(attributes.is_control() && !attributes.is_transactional());
    assert!(Attributes(0x40).has_delete_horizon());
    assert_eq!(Attributes(7).compression(), Compression::Unknown(7));
    let built = Attributes::default()
        .with_compression(Compression::Zstd)
        .with_timestamp_type(TimestampType::LogAppendTime)
        .with_control(true);
    assert_eq!(built, attributes);
}

#[test]
fn a_walk_ends_at_the_incomplete_batch_and_says_how_large_it_is() {
    let mut bytes = batch(0, b"one");
    let first = bytes.len();
    let second = batch(2, &vec![9; 500]);
    bytes.extend_from_slice(&second);
    for end in first..bytes.len() {
        let mut walk = Batches::new(&bytes[..end]);
        assert_eq!(walk.next().expect("a batch").expect("a sound one").0, 0);
        assert!(walk.next().is_none());
        let announced = (end >= first + 12).then_some(second.len());
        assert_eq!(walk.rest(), Rest { position: first, left: end - first, announced });
    }
    let mut walk = Batches::new(&bytes).from_position(first);
    assert_eq!(walk.next().expect("a batch").expect("a sound one").0, first);
    assert_eq!(walk.rest(), Rest { position: bytes.len(), left: 0, announced: None });
}

#[test]
fn formats_before_two_are_told_apart() {
    let mut bytes = batch(7, b"one");
    for magic in [0, 1] {
        bytes[16] = magic as u8;
        let fault = BatchFault::OldFormat { magic };
        let error = BatchError { position: 0, base_offset: Offset(7), fault };
        assert_eq!(Batches::new(&bytes).next().map(Result::err), Some(Some(error)));
    }
    bytes[16] = 3;
    let error = Batch::read(&bytes, 5).expect_err("no format 3");
    assert_eq!((error.position, error.fault), (5, BatchFault::UnknownFormat { magic: 3 }));
}

#[test]
fn lengths_that_no_batch_has_are_refused() {
    let sound = batch(7, b"one");
    for (length, least) in [(-1, 49), (0, 49), (48, 49), (i32::MIN, 49), (i32::MAX, 49)] {
        let mut bytes = sound.clone();
        bytes[8..12].copy_from_slice(&i32::to_be_bytes(length));
        let mut walk = Batches::new(&bytes);
        let fault = BatchFault::Length { length, least, most: SIZE_MAX - 12 };
        let error = BatchError { position: 0, base_offset: Offset(7), fault };
        assert_eq!(walk.next().map(Result::err), Some(Some(error)));
        assert!(walk.next().is_none(), "a fault ends the walk");
        assert_eq!(walk.rest().announced, None);
    }
    assert!(matches!(Batches::new(&[0; 64]).next(), Some(Err(_))), "zeros are no batch");
    assert!(matches!(Batches::new(&sound).size_max(70).next(), Some(Err(_))));
    assert!(matches!(Batches::new(&sound).size_max(sound.len()).next(), Some(Ok(_))));
}

#[test]
fn damage_anywhere_under_the_crc_is_seen_and_survives_an_edit() {
    let sound = batch(0, b"some value");
    for position in 17..sound.len() {
        let mut bytes = sound.clone();
        bytes[position] ^= 0x10;
        assert!(Batch::read(&bytes, 0).expect("a batch").verify_crc().is_err());
        let mut batch = BatchMut::read(&mut bytes, 0).expect("a batch");
        let mut edit = batch.edit();
        edit.set_producer_id(ProducerId(5));
        edit.finish();
        assert!(batch.as_batch().verify_crc().is_err());
    }
}

#[test]
fn a_walk_may_rewrite_what_it_passes() {
    let mut bytes = [batch(0, b"one"), batch(2, b"two")].concat();
    let mut walk = BatchesMut::new(&mut bytes);
    while let Some(found) = walk.next() {
        let (_, mut batch) = found.expect("a sound one");
        let base = batch.as_batch().base_offset();
        batch.set_base_offset(Offset(base.0 + 1_000));
        batch.set_partition_leader_epoch(LeaderEpoch(9));
        let mut edit = batch.edit();
        edit.set_producer_id(ProducerId(-1)).set_producer_epoch(ProducerEpoch(-1));
        edit.set_base_sequence(-1);
        edit.finish();
    }
    for (index, found) in Batches::new(&bytes).enumerate() {
        let (_, batch) = found.expect("a sound one");
        assert_eq!(batch.verify_crc(), Ok(()));
        assert_eq!(batch.base_offset(), Offset(1_000 + 2 * index as i64));
        assert_eq!(batch.partition_leader_epoch(), LeaderEpoch(9));
        assert_eq!((batch.producer_id().0, batch.base_sequence()), (-1, -1));
    }
}

proptest! {
    #[test]
    fn a_patched_crc_is_the_recomputed_one(
        payload in prop::collection::vec(any::<u8>(), 0..70_000),
        numbers in any::<[i64; 3]>(),
        small in any::<(i16, i16, i32, i32)>(),
        which in 0_u32..128,
    ) {
        let mut bytes = BatchBuilder::new(Offset(5), 1_234).payload(&payload, 1, 0).build();
        let mut batch = BatchMut::read(&mut bytes, 0).expect("a batch");
        let mut edit = batch.edit();
        let wanted = |bit: u32| which >> bit & 1 == 1;
        if wanted(0) { edit.set_attributes(Attributes(small.0)); }
        if wanted(1) { edit.set_last_offset_delta(small.2); }
        if wanted(2) { edit.set_base_timestamp(numbers[0]); }
        if wanted(3) { edit.set_max_timestamp(numbers[1]); }
        if wanted(4) { edit.set_producer_id(ProducerId(numbers[2])); }
        if wanted(5) { edit.set_producer_epoch(ProducerEpoch(small.1)); }
        if wanted(6) { edit.set_base_sequence(small.3); }
        edit.finish();
        let batch = batch.as_batch();
        prop_assert_eq!(batch.verify_crc(), Ok(()));
        if wanted(0) { prop_assert_eq!(batch.attributes(), Attributes(small.0)); }
        if wanted(1) { prop_assert_eq!(batch.last_offset_delta(), small.2); }
        if wanted(2) { prop_assert_eq!(batch.base_timestamp(), numbers[0]); }
        if wanted(3) { prop_assert_eq!(batch.max_timestamp(), numbers[1]); }
        if wanted(4) { prop_assert_eq!(batch.producer_id().0, numbers[2]); }
        if wanted(5) { prop_assert_eq!(batch.producer_epoch().0, small.1); }
        if wanted(6) { prop_assert_eq!(batch.base_sequence(), small.3); }
        prop_assert_eq!(batch.payload(), &payload[..]);
    }

    #[test]
    fn no_bytes_make_a_walk_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        length in -20_i32..200,
        magic in 0_u8..4,
    ) {
        if bytes.len() > 17 {
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[16] = magic;
        }
        let mut walk = Batches::new(&bytes);
        let mut position = 0;
        for found in walk.by_ref() {
            let Ok((at, batch)) = found else { break };
            prop_assert_eq!(at, position);
            position += batch.size();
            let _ = (batch.last_offset(), batch.next_offset(), batch.last_sequence());
            let _ = batch.verify_crc();
        }
        let rest = walk.rest();
        prop_assert_eq!(rest.position + rest.left, bytes.len());
        let _ = BatchMut::read(&mut bytes, 0).is_ok();
    }
}
