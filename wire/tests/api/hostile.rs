//! Bytes that were cut, changed or made up: they may be refused or understood, but never panic.

use proptest::prelude::*;
use wire::WireError;
use wire::api::ApiKey;
use wire::api::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use wire::codec::{Reader, Writer};
use wire::error::Fault;
use wire::frame::{RequestHeader, frame_size, read_response_header};
use wire::ids::{PartitionIndex, TopicId};

use crate::sample::{Draw, Message, for_each_message};

fn is_refused_at_every_cut<M: Message>() {
    for version in M::VERSIONS.each() {
        for seed in 0..4 {
            let bytes = M::sample(&mut Draw(seed)).to_bytes(version);
            for length in 0..bytes.len() {
                let read = M::from_bytes(&bytes[..length], version);
                assert!(read.is_err(), "version {version}, {length} of {} bytes", bytes.len());
            }
        }
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    for_each_message!(is_refused_at_every_cut);
}

fn is_refused_in_unknown_versions<M: Message>() {
    for version in [M::VERSIONS.least - 1, M::VERSIONS.most + 1, i16::MIN, i16::MAX] {
        assert_eq!(
            M::from_bytes(&[0; 64], version),
            Err(WireError { fault: Fault::UnknownVersion(version), position: 0 })
        );
    }
}

#[test]
fn a_version_nobody_speaks_is_refused() {
    for_each_message!(is_refused_in_unknown_versions);
}

/// What was understood is written and understood again as the same.
fn understands_alike<M: Message>(bytes: &[u8], version: i16) {
    if let Ok(message) = M::read(&mut Reader::new(bytes), version) {
        assert_eq!(M::from_bytes(&message.to_bytes(version), version), Ok(message));
    }
}

fn change(bytes: &mut Vec<u8>, draw: &mut Draw) {
    for _ in 0..=draw.below(4) {
        if bytes.is_empty() {
            return;
        }
        let position = draw.below(bytes.len());
        match draw.below(4) {
            0 => bytes[position] ^= 1 << draw.below(8),
            1 => bytes[position] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][draw.below(6)],
            2 => bytes.truncate(position),
            _ => bytes.insert(position, draw.below(256) as u8),
        }
    }
}

fn survives_changes<M: Message>() {
    for version in M::VERSIONS.each() {
        for seed in 0..200 {
            let mut draw = Draw(seed);
            let mut bytes = M::sample(&mut draw).to_bytes(version);
            change(&mut bytes, &mut draw);
            understands_alike::<M>(&bytes, version);
        }
    }
}

#[test]
fn changed_bytes_are_refused_or_understood() {
    for_each_message!(survives_changes);
}

fn produce_bytes(version: i16) -> Vec<u8> {
    let partition =
        |index| ProducePartition { index: PartitionIndex(index), records: Some(b"two") };
    let request = ProduceRequest {
        transactional_id: Some("transaction"),
        acks: -1,
        timeout_ms: 9,
        topics: vec![ProduceTopic {
            name: if version < 13 { "topic" } else { "" },
            topic_id: if version < 13 { TopicId::ZERO } else { TopicId([7; 16]) },
            partitions: vec![partition(0), partition(1)],
        }],
    };
    let mut writer = Writer::new();
    request.write(&mut writer, version);
    writer.into_bytes()
}

#[test]
fn a_produce_request_cut_or_changed_is_refused_or_understood() {
    for version in ProduceRequest::VERSIONS.each() {
        let bytes = produce_bytes(version);
        for length in 0..bytes.len() {
            assert!(ProduceRequest::read(&mut Reader::new(&bytes[..length]), version).is_err());
        }
        for seed in 0..1000 {
            let mut bytes = bytes.clone();
            change(&mut bytes, &mut Draw(seed));
            let _ = ProduceRequest::read(&mut Reader::new(&bytes), version);
        }
    }
}

proptest! {
    #[test]
    fn made_up_bytes_are_refused_or_understood(
        bytes in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        fn in_every_version<M: Message>(bytes: &[u8]) {
            for version in M::VERSIONS.each() {
                understands_alike::<M>(bytes, version);
            }
        }
        let bytes = bytes.as_slice();
        for_each_message!(in_every_version(bytes));
        for version in ProduceRequest::VERSIONS.each() {
            let _ = ProduceRequest::read(&mut Reader::new(bytes), version);
        }
        let _ = RequestHeader::read(&mut Reader::new(bytes));
        let _ = read_response_header(&mut Reader::new(bytes), ApiKey::METADATA, 9);
        let _ = frame_size(bytes);
    }
}
