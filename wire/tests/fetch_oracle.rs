//! The Fetch API against the `kafka-protocol` crate, in both directions and in every version.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response as theirs;
use kafka_protocol::messages::{self, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::codec::Writer;
use wire::fetch::*;
use wire::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};

fn versions() -> impl Strategy<Value = i16> {
    VERSIONS
}

prop_compose! {
    fn partition()(
        (partition, current, last, max_bytes) in any::<(i32, i32, i32, i32)>(),
        (fetch_offset, log_start, high_watermark) in any::<(i64, i64, i64)>(),
        directory in prop_oneof![Just([0; 16]), any::<[u8; 16]>()],
        plain in any::<bool>(),
    ) -> FetchPartition {
        FetchPartition {
            partition: PartitionIndex(partition),
            current_leader_epoch: LeaderEpoch(current),
            fetch_offset: Offset(fetch_offset),
            last_fetched_epoch: LeaderEpoch(last),
            log_start_offset: Offset(log_start),
            partition_max_bytes: max_bytes,
            replica_directory_id: TopicId(directory),
            high_watermark: Offset(if plain { i64::MAX } else { high_watermark }),
        }
    }
}

prop_compose! {
    fn request()(
        (max_wait_ms, min_bytes, max_bytes) in any::<(i32, i32, i32)>(),
        (isolation, session_id, session_epoch) in any::<(i8, i32, i32)>(),
        (replica_id, replica_epoch) in prop_oneof![Just((-1, -1)), any::<(i32, i64)>()],
        cluster_id in proptest::option::of("[a-z]{0,200}"),
        rack_id in "[a-zä]{0,5}",
        topics in vec(("[a-z]{0,9}", any::<[u8; 16]>(), vec(partition(), 0..4)), 0..4),
        forgotten in vec(("[a-z]{0,9}", any::<[u8; 16]>(), vec(any::<i32>(), 0..4)), 0..4),
    ) -> FetchRequest {
        let topics = topics
            .into_iter()
            .map(|(name, id, partitions)| FetchTopic { name, id: TopicId(id), partitions });
        let forgotten = forgotten.into_iter().map(|(name, id, partitions)| ForgottenTopic {
            name,
            id: TopicId(id),
            partitions: partitions.into_iter().map(PartitionIndex).collect(),
        });
        let head = FetchRequestHead {
            cluster_id,
            replica_id: BrokerId(replica_id),
            replica_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level: IsolationLevel(isolation),
            session_id,
            session_epoch,
            rack_id,
        };
        FetchRequest { head, topics: topics.collect(), forgotten_topics: forgotten.collect() }
    }
}

/// What is left of a request in `version`: every field that it does not have at its default.
fn in_version(mut request: FetchRequest, version: i16) -> FetchRequest {
    let default = FetchRequestHead::default();
    let head = &mut request.head;
    if version < 7 {
        (head.session_id, head.session_epoch) = (default.session_id, default.session_epoch);
        request.forgotten_topics.clear();
    }
    if version < 11 {
        head.rack_id = default.rack_id;
    }
    if version < 12 {
        head.cluster_id = default.cluster_id;
    }
    if version < 15 {
        head.replica_epoch = default.replica_epoch;
    }
    for topic in &mut request.topics {
        if version < 13 {
            topic.id = TopicId::ZERO
        } else {
            topic.name.clear()
        }
        for partition in &mut topic.partitions {
            let plain = FetchPartition::new(partition.partition, Offset(0), 0);
            if version < 5 {
                partition.log_start_offset = plain.log_start_offset;
            }
            if version < 9 {
                partition.current_leader_epoch = plain.current_leader_epoch;
            }
            if version < 12 {
                partition.last_fetched_epoch = plain.last_fetched_epoch;
            }
            if version < 17 {
                partition.replica_directory_id = plain.replica_directory_id;
            }
            if version < 18 {
                partition.high_watermark = plain.high_watermark;
            }
        }
    }
    for topic in &mut request.forgotten_topics {
        if version < 13 { topic.id = TopicId::ZERO } else { topic.name.clear() }
    }
    request
}

prop_compose! {
    fn endpoint()(
        (node, port) in any::<(i32, i32)>(),
        host in "[a-z.]{0,20}",
        rack in proptest::option::of("[a-z]{0,3}"),
    ) -> theirs::NodeEndpoint {
        theirs::NodeEndpoint::default()
            .with_node_id(node.into())
            .with_port(port)
            .with_host(StrBytes::from_string(host))
            .with_rack(rack.map(StrBytes::from_string))
    }
}

prop_compose! {
    fn partition_data(version: i16)(
        (index, error_code, preferred) in any::<(i32, i16, i32)>(),
        (high, stable, start) in any::<(i64, i64, i64)>(),
        aborted in proptest::option::of(vec(any::<(i64, i64)>(), 0..5)),
        diverging in proptest::option::of(any::<(i32, i64)>()),
        leader in proptest::option::of(any::<(i32, i32)>()),
        snapshot in proptest::option::of(any::<(i64, i32)>()),
        unknown in proptest::option::of((3..1_000, vec(any::<u8>(), 0..300))),
        records in vec(any::<u8>(), 0..300),
    ) -> theirs::PartitionData {
        let mut data = theirs::PartitionData::default()
            .with_partition_index(index)
            .with_error_code(error_code)
            .with_high_watermark(high)
            .with_last_stable_offset(stable)
            .with_records(Some(Bytes::from(records)))
            .with_aborted_transactions(aborted.map(|all| all.into_iter().map(|(id, first)| {
                theirs::AbortedTransaction::default()
                    .with_producer_id(id.into())
                    .with_first_offset(first)
            }).collect()));
        data.log_start_offset = if version >= 5 { start } else { -1 };
        data.preferred_read_replica = if version >= 11 { preferred } else { -1 }.into();
        if version >= 12 {
            if let Some((epoch, end_offset)) = diverging {
                data.diverging_epoch.epoch = epoch;
                data.diverging_epoch.end_offset = end_offset;
            }
            if let Some((id, epoch)) = leader {
                data.current_leader.leader_id = id.into();
                data.current_leader.leader_epoch = epoch;
            }
            if let Some((end_offset, epoch)) = snapshot {
                data.snapshot_id.end_offset = end_offset;
                data.snapshot_id.epoch = epoch;
            }
            data.unknown_tagged_fields.extend(unknown.map(|(tag, field)| (tag, field.into())));
        }
        data
    }
}

prop_compose! {
    fn response_in(version: i16)(
        (throttle, error_code, session_id) in any::<(i32, i16, i32)>(),
        endpoints in vec(endpoint(), 0..4),
        topics in vec(("[a-z]{0,9}", any::<u128>(), vec(partition_data(version), 0..4)), 0..4),
    ) -> messages::FetchResponse {
        let topics = topics.into_iter().map(|(name, id, partitions)| {
            let topic = theirs::FetchableTopicResponse::default().with_partitions(partitions);
            if version >= 13 {
                topic.with_topic_id(format!("{id:032x}").parse().expect("a uuid"))
            } else {
                topic.with_topic(TopicName(StrBytes::from_string(name)))
            }
        });
        let mut response = messages::FetchResponse::default().with_throttle_time_ms(throttle)
            .with_responses(topics.collect());
        if version >= 7 {
            response = response.with_error_code(error_code).with_session_id(session_id);
        }
        if version >= 16 {
            response = response.with_node_endpoints(endpoints);
        }
        response
    }
}

fn response() -> impl Strategy<Value = (i16, messages::FetchResponse)> {
    versions().prop_flat_map(|version| (Just(version), response_in(version)))
}

fn encoded(message: &impl Encodable, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).expect("the oracle writes it");
    bytes.to_vec()
}

/// Walks over `frame` and writes what it saw again, to be compared with what was walked over.
fn walked_and_written(frame: &[u8], version: i16, like: &messages::FetchResponse) -> Vec<u8> {
    let mut walk = FetchResponse::open(frame, 0, version).expect("a response");
    let mut out = FetchResponseWriter::start(7, version, &walk.head(), like.responses.len());
    let mut records = Vec::new();
    let mut likes = like.responses.iter();
    while let Some(key) = walk.topic(frame).expect("a topic") {
        let like = likes.next().expect("no more topics than were written");
        out.topic(key, like.partitions.len());
        let mut likes = like.partitions.iter();
        while let Some(seen) = walk.partition(frame).expect("a partition") {
            let like = likes.next().expect("no more partitions than were written");
            let aborted: Vec<_> = seen.aborted_transactions.collect();
            let data = PartitionData {
                partition_index: seen.partition_index,
                error_code: seen.error_code,
                high_watermark: seen.high_watermark,
                last_stable_offset: seen.last_stable_offset,
                log_start_offset: seen.log_start_offset,
                aborted_transactions: like.aborted_transactions.is_some().then_some(&aborted[..]),
                preferred_read_replica: seen.preferred_read_replica,
                diverging_epoch: seen.diverging_epoch,
                current_leader: seen.current_leader,
                snapshot_id: seen.snapshot_id,
            };
            out.partition(&data, seen.records.len());
            records.push(seen.records);
        }
        assert!(likes.next().is_none(), "all partitions were seen");
    }
    assert!(likes.next().is_none(), "all topics were seen");
    let tail = walk.tail(frame).expect("a tail");
    let sent = out.finish(&tail.node_endpoints.collect::<Vec<_>>());
    let mut bytes = Vec::new();
    for piece in &sent.pieces {
        match piece {
            Piece::Bytes(range) => bytes.extend_from_slice(&sent.bytes[range.clone()]),
            Piece::Records { index, length } => {
                assert_eq!(records[*index].len(), *length);
                bytes.extend_from_slice(&frame[records[*index].clone()]);
            }
        }
    }
    assert_eq!(bytes.len(), sent.size);
    bytes
}

fn without_unknown_fields(mut response: messages::FetchResponse) -> messages::FetchResponse {
    for topic in &mut response.responses {
        for partition in &mut topic.partitions {
            partition.unknown_tagged_fields.clear();
        }
    }
    response
}

/// Walks over anything and checks that all it names lies within the frame.
fn walk_to_the_end(frame: &[u8], version: i16) -> Result<usize, wire::WireError> {
    let mut walk = FetchResponse::open(frame, 0, version)?;
    let mut seen = 0;
    while walk.topic(frame)?.is_some() {
        while let Some(partition) = walk.partition(frame)? {
            assert!(partition.records.end <= frame.len());
            assert_eq!(
                partition.aborted_transactions.len(),
                partition.aborted_transactions.count()
            );
            seen += partition.records.len() + 1;
        }
    }
    walk.tail(frame)?.node_endpoints.for_each(drop);
    Ok(seen)
}

/// The first partition that brings any.
fn first_records(frame: &[u8], version: i16) -> Option<(PartitionIndex, Range<usize>)> {
    let mut walk = FetchResponse::open(frame, 0, version).ok()?;
    while walk.topic(frame).ok()?.is_some() {
        while let Some(partition) = walk.partition(frame).ok()? {
            if !partition.records.is_empty() {
                return Some((partition.partition_index, partition.records));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn requests_are_the_oracle_s_bytes((version, request) in (versions(), request())) {
        let request = in_version(request, version);
        let mut ours = Writer::new();
        request.write(&mut ours, version);
        let mut bytes = Bytes::copy_from_slice(ours.bytes());
        let theirs = messages::FetchRequest::decode(&mut bytes, version).expect("a request");
        prop_assert!(bytes.is_empty());
        prop_assert_eq!(encoded(&theirs, version), ours.bytes());
        prop_assert_eq!(FetchRequest::read(ours.bytes(), version), Ok(request));
    }

    #[test]
    fn responses_are_the_oracle_s_bytes((version, response) in response()) {
        let walked = encoded(&response, version);
        let written = walked_and_written(&walked, version, &response);
        let wanted = encoded(&without_unknown_fields(response), version);
        let head = if version >= 12 { 9 } else { 8 };
        prop_assert_eq!(&written[head..], wanted);
        prop_assert_eq!(&written[..4], i32::to_be_bytes(written.len() as i32 - 4));
        prop_assert_eq!(&written[4..8], 7_i32.to_be_bytes());
    }

    #[test]
    fn the_first_records_are_told_as_soon_as_all_before_them_has_come(
        (version, response) in response(),
    ) {
        let whole = encoded(&response, version);
        let expected = first_records(&whole, version);
        for end in 0..=whole.len() {
            let told = FetchResponse::first_records(&whole[..end], 0, version);
            let told = told.map(|(_, partition, records)| (partition, records));
            let is_enough = expected.as_ref().is_some_and(|(_, records)| records.start <= end);
            // A count is only believed where the bytes left could hold it.
            if !is_enough || told.is_some() || end == whole.len() {
                prop_assert_eq!(told, expected.clone().filter(|_| is_enough), "{} bytes", end);
            }
        }
    }

    #[test]
    fn a_cut_or_changed_response_never_panics(
        (version, response) in response(),
        (place, value) in any::<(prop::sample::Index, u8)>(),
        other_version in versions(),
    ) {
        let whole = encoded(&response, version);
        prop_assert!(walk_to_the_end(&whole, version).is_ok());
        prop_assert!(walk_to_the_end(&[&whole[..], &[0]].concat(), version).is_err());
        for end in 0..whole.len() {
            prop_assert!(walk_to_the_end(&whole[..end], version).is_err());
        }
        let mut changed = whole;
        let place = place.index(changed.len());
        changed[place] = value;
        let _ = walk_to_the_end(&changed, version).is_ok();
        let _ = walk_to_the_end(&changed, other_version).is_ok();
        let _ = FetchResponse::first_records(&changed, 0, other_version);
    }

    #[test]
    fn a_cut_or_changed_request_never_panics(
        (version, request) in (versions(), request()),
        (place, value) in any::<(prop::sample::Index, u8)>(),
        other_version in versions(),
    ) {
        let mut bytes = Writer::new();
        in_version(request, version).write(&mut bytes, version);
        let mut bytes = bytes.into_bytes();
        for end in 0..bytes.len() {
            prop_assert!(FetchRequest::read(&bytes[..end], version).is_err());
        }
        let place = place.index(bytes.len());
        bytes[place] = value;
        let _ = FetchRequest::read(&bytes, version).is_ok();
        let _ = FetchRequest::read(&bytes, other_version).is_ok();
    }

    #[test]
    fn noise_never_panics(bytes in vec(any::<u8>(), 0..200), version in versions()) {
        let _ = FetchRequest::read(&bytes, version).is_ok();
        let _ = walk_to_the_end(&bytes, version).is_ok();
    }
}

#[test]
fn every_byte_of_a_response_may_take_every_value() {
    for version in VERSIONS {
        let endpoint = theirs::NodeEndpoint::default().with_host(StrBytes::from_static_str("h"));
        let mut partition = theirs::PartitionData::default()
            .with_records(Some(Bytes::from_static(b"records")))
            .with_aborted_transactions(Some(vec![theirs::AbortedTransaction::default(); 2]));
        let mut response = messages::FetchResponse::default();
        if version >= 12 {
            partition.diverging_epoch.epoch = 1;
            partition.current_leader.leader_epoch = 1;
            partition.snapshot_id.epoch = 1;
        }
        if version >= 16 {
            response.node_endpoints = vec![endpoint];
        }
        let topic = theirs::FetchableTopicResponse::default().with_partitions(vec![partition; 2]);
        response.responses = vec![topic];
        let whole = encoded(&response, version);
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            for value in 0..=255 {
                changed[place] = value;
                let _ = walk_to_the_end(&changed, version).is_ok();
            }
        }
    }
}

#[test]
fn partitions_that_were_not_asked_for_are_passed_over() {
    let partition = theirs::PartitionData::default().with_records(None);
    let topics = (1..4_u128).map(|id| {
        theirs::FetchableTopicResponse::default()
            .with_topic_id(format!("{id:032x}").parse().expect("a uuid"))
            .with_partitions(vec![partition.clone(); 3])
    });
    let response = messages::FetchResponse::default().with_responses(topics.collect());
    let frame = encoded(&response, 18);
    let mut walk = FetchResponse::open(&frame, 0, 18).expect("a response");
    let mut seen = 0;
    while let Some(key) = walk.topic(&frame).expect("a topic") {
        seen += 1;
        assert_eq!(key.id.0[15], seen);
        let partition = walk.partition(&frame).expect("a partition").expect("the first of three");
        assert!(partition.records.is_empty() && partition.aborted_transactions.is_empty());
    }
    assert_eq!(seen, 3);
    let mut walk = FetchResponse::open(&frame, 0, 18).expect("a response");
    assert!(walk.tail(&frame).is_ok() && walk.tail(&frame).is_ok());
    assert!(walk.topic(&frame).expect("no fault").is_none());
}

#[test]
fn versions_that_nobody_speaks_are_refused() {
    for version in [-1, 0, 3, 19, i16::MAX] {
        assert!(FetchResponse::open(&[0; 100], 0, version).is_err());
        assert!(FetchRequest::read(&[0; 100], version).is_err());
    }
}

#[test]
fn an_error_for_everything_is_a_frame_without_topics() {
    let head = FetchResponseHead { throttle_time_ms: 0, error_code: 71, session_id: 0 };
    let frame = FetchResponseWriter::start(1, 12, &head, 0).finish(&[]);
    assert_eq!(frame.pieces, [Piece::Bytes(0..frame.size)]);
    let walk = FetchResponse::open(&frame.bytes, 9, 12).expect("a response");
    assert_eq!(walk.head().error_code, 71);
    let again = FetchResponseWriter::start_over(frame.clone(), 1, 12, &head, 0).finish(&[]);
    assert_eq!(again, frame);
}
