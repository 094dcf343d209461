//! Frames: the four bytes of length, the header of a request and the header of an answer.
//!
//! ```text
//! request   size i32 | api key i16 | version i16 | correlation id i32 | client id string? | tags* | body
//! answer    size i32 | correlation id i32 | tags* | body                * in flexible versions
//! ```
//!
//! Two exceptions exist so that ends of different age can still find out about each other: the client
//! id is never compact, and the header of an ApiVersions answer never has tags.

use alloc::string::String;
use alloc::vec::Vec;

use crate::api::ApiKey;
use crate::codec::{Reader, Writer};
use crate::error::{Fault, WireError};

/// How many bytes say how long a frame is.
pub const SIZE_BYTES: usize = 4;

/// What goes before every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: ApiKey,
    pub api_version: i16,
    /// Chosen by the client, repeated in the answer.
    pub correlation_id: i32,
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Reads the header; `reader` stops where the body starts. The API and the version may be ones
    /// that nobody here speaks: that is for the caller to refuse.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let header = Self {
            api_key: ApiKey(reader.i16()?),
            api_version: reader.i16()?,
            correlation_id: reader.i32()?,
            client_id: reader.nullable_str(false)?.map(String::from),
        };
        if header.api_key.is_flexible(header.api_version) {
            reader.tagged_fields(|_, _| Ok(()))?;
        }
        Ok(header)
    }

    /// Writes the header.
    pub fn write(&self, writer: &mut Writer) {
        let client_id = self.client_id.as_deref();
        let (api_key, api_version) = (self.api_key, self.api_version);
        write_request_header(writer, api_key, api_version, self.correlation_id, client_id);
    }
}

fn write_request_header(
    writer: &mut Writer,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) {
    writer.i16(api_key.0);
    writer.i16(api_version);
    writer.i32(correlation_id);
    writer.nullable_str(client_id, false);
    if api_key.is_flexible(api_version) {
        writer.unsigned_varint(0);
    }
}

/// Reads the header of the answer to a request of this API and version: its correlation id.
pub fn read_response_header(
    reader: &mut Reader<'_>,
    api_key: ApiKey,
    version: i16,
) -> Result<i32, WireError> {
    let correlation_id = reader.i32()?;
    if response_header_has_tags(api_key, version) {
        reader.tagged_fields(|_, _| Ok(()))?;
    }
    Ok(correlation_id)
}

/// Writes the header of the answer to a request of this API and version.
pub fn write_response_header(
    writer: &mut Writer,
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
) {
    writer.i32(correlation_id);
    if response_header_has_tags(api_key, version) {
        writer.unsigned_varint(0);
    }
}

fn response_header_has_tags(api_key: ApiKey, version: i16) -> bool {
    api_key != ApiKey::API_VERSIONS && api_key.is_flexible(version)
}

/// A whole request: size, header and what `body` writes.
pub fn frame_request(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    body: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    frame(|writer| {
        write_request_header(writer, api_key, version, correlation_id, client_id);
        body(writer);
    })
}

/// A whole answer to a request of this API and version: size, header and what `body` writes.
pub fn frame_response(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    frame(|writer| {
        write_response_header(writer, api_key, version, correlation_id);
        body(writer);
    })
}

fn frame(content: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i32(0);
    content(&mut writer);
    let size = i32::try_from(writer.len() - SIZE_BYTES).expect("a frame is below 2 GiB");
    writer.i32_at(0, size);
    writer.into_bytes()
}

/// How long the frame that starts at `bytes` is after its size; `None` while the size itself has not
/// arrived whole. How long a frame may be is for the caller to say.
pub fn frame_size(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let mut reader = Reader::new(bytes);
    if reader.left() < SIZE_BYTES {
        return Ok(None);
    }
    let start = reader;
    let size = reader.i32()?;
    usize::try_from(size).map(Some).map_err(|_| start.error(Fault::NegativeLength(i64::from(size))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_from_its_frame() {
        for (api_key, version, header_bytes) in [
            (ApiKey::METADATA, 8, 14),
            (ApiKey::METADATA, 9, 15),
            (ApiKey::API_VERSIONS, 3, 15),
            (ApiKey::SASL_HANDSHAKE, 1, 14),
            (ApiKey(999), 1, 14),
        ] {
            let frame = frame_request(api_key, version, 7, Some("mine"), |writer| writer.i8(42));
            assert_eq!(frame_size(&frame), Ok(Some(frame.len() - SIZE_BYTES)));
            let mut reader = Reader::new(&frame[SIZE_BYTES..]);
            let header = RequestHeader::read(&mut reader).unwrap();
            assert_eq!((header.api_key, header.api_version), (api_key, version));
            assert_eq!(header.correlation_id, 7);
            assert_eq!(header.client_id.as_deref(), Some("mine"));
            assert_eq!(reader.position(), header_bytes);
            assert_eq!(reader.i8(), Ok(42));
            assert_eq!(reader.finish(), Ok(()));

            let mut writer = Writer::new();
            header.write(&mut writer);
            assert_eq!(writer.bytes(), &frame[SIZE_BYTES..SIZE_BYTES + header_bytes]);
        }
    }

    #[test]
    fn an_answer_has_tags_in_flexible_versions_but_never_for_api_versions() {
        for (api_key, version, header_bytes) in [
            (ApiKey::METADATA, 8, 4),
            (ApiKey::METADATA, 9, 5),
            (ApiKey::API_VERSIONS, 0, 4),
            (ApiKey::API_VERSIONS, 5, 4),
        ] {
            let frame = frame_response(api_key, version, 7, |writer| writer.i8(42));
            assert_eq!(frame.len(), SIZE_BYTES + header_bytes + 1);
            let mut reader = Reader::new(&frame[SIZE_BYTES..]);
            assert_eq!(read_response_header(&mut reader, api_key, version), Ok(7));
            assert_eq!(reader.i8(), Ok(42));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn a_size_is_waited_for_and_a_negative_one_refused() {
        assert_eq!(frame_size(&[0, 0, 1]), Ok(None));
        assert_eq!(frame_size(&[0, 0, 1, 2, 9]), Ok(Some(258)));
        assert_eq!(
            frame_size(&[0xff, 0xff, 0xff, 0xff]),
            Err(WireError { fault: Fault::NegativeLength(-1), position: 0 })
        );
    }
}
