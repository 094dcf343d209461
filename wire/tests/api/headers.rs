//! The headers of requests and answers against the codec of `kafka-protocol`: which shape they have
//! for which API in which version.

use bytes::Bytes;
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, StrBytes};
use wire::api::{ApiKey, SPOKEN};
use wire::codec::{Reader, Writer};
use wire::frame::{RequestHeader, read_response_header, write_response_header};

use crate::sample::{Message, for_each_message};

#[test]
fn every_header_has_the_shape_the_other_codec_gives_it() {
    for key in 0..=200 {
        let Ok(their_key) = theirs::ApiKey::try_from(key) else { continue };
        let range = their_key.valid_versions();
        for version in range.min..=range.max {
            let header = RequestHeader {
                api_key: ApiKey(key),
                api_version: version,
                correlation_id: 77,
                client_id: Some("mine".into()),
            };
            let mut writer = Writer::new();
            header.write(&mut writer);
            let mut bytes = Bytes::from(writer.into_bytes());
            let mut reader_bytes = bytes.clone();
            let shape = their_key.request_header_version(version);
            let read = theirs::RequestHeader::decode(&mut bytes, shape).unwrap();
            assert!(bytes.is_empty(), "{their_key:?} {version}");
            assert_eq!(read.client_id, Some(StrBytes::from_static_str("mine")));
            assert_eq!((read.request_api_key, read.request_api_version), (key, version));
            assert_eq!(RequestHeader::read(&mut Reader::new(&reader_bytes)), Ok(header));

            let mut writer = Writer::new();
            write_response_header(&mut writer, ApiKey(key), version, 77);
            reader_bytes = Bytes::from(writer.into_bytes());
            let read = read_response_header(&mut Reader::new(&reader_bytes), ApiKey(key), version);
            assert_eq!(read, Ok(77));
            let shape = their_key.response_header_version(version);
            let read = theirs::ResponseHeader::decode(&mut reader_bytes, shape).unwrap();
            assert!(reader_bytes.is_empty(), "{their_key:?} {version}");
            assert_eq!(read.correlation_id, 77);
        }
    }
}

fn agrees_with_its_api<M: Message>() {
    assert_eq!(M::API_KEY.spoken(), Some(M::VERSIONS));
    for version in M::VERSIONS.each() {
        assert_eq!(M::API_KEY.is_flexible(version), version >= M::FIRST_FLEXIBLE);
    }
}

#[test]
fn request_answer_and_header_of_an_api_agree_on_its_versions() {
    for_each_message!(agrees_with_its_api);
    assert!(SPOKEN.is_sorted_by_key(|(key, _)| *key));
}
