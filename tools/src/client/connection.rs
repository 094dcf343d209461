//! One connection to a broker, one request at a time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use wire::api::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::codec::{Reader, Writer};
use wire::frame::{frame_request, read_response_header};

use super::ClientError;

/// The largest answer that is read.
const RESPONSE_BYTES_MAX: usize = 1 << 30;
/// What every broker speaks and names its versions in.
const API_VERSIONS_FIRST: i16 = 3;

/// A connection whose broker has told its versions.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    client_id: String,
    correlation_id: i32,
    versions: ApiVersionsResponse,
    /// The last answer, in an allocation that is kept.
    frame: Vec<u8>,
}

impl Connection {
    pub(super) fn open(
        address: &str,
        client_id: &str,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let stream = connect(address, patience)
            .map_err(|error| ClientError::Connection(format!("{address}: {error}")))?;
        let mut connection = Self {
            stream,
            client_id: client_id.into(),
            correlation_id: 0,
            versions: ApiVersionsResponse::default(),
            frame: Vec::new(),
        };
        let mut versions = connection.ask_versions(API_VERSIONS_FIRST)?;
        if versions.error_code == ErrorCode::UNSUPPORTED_VERSION {
            versions = connection.ask_versions(0)?;
        }
        if !versions.error_code.is_none() {
            return Err(ClientError::Kafka(ApiKey::API_VERSIONS, versions.error_code));
        }
        connection.versions = versions;
        Ok(connection)
    }

    fn ask_versions(&mut self, version: i16) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "farspan".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
            ..ApiVersionsRequest::default()
        };
        let key = ApiKey::API_VERSIONS;
        let body = self.exchange(key, version, |writer| request.write(writer, version))?;
        let read = |version| {
            let mut reader = Reader::new(&self.frame[body..]);
            let read = ApiVersionsResponse::read(&mut reader, version)?;
            reader.finish()?;
            Ok(read)
        };
        // A broker that does not speak the version answers in version 0.
        let read: Result<_, wire::WireError> = read(version).or_else(|_| read(0));
        read.map_err(|error| ClientError::Bytes(format!("{key}: {error}")))
    }

    /// The greatest version that both ends speak and `most` allows.
    pub(super) fn version(
        &self,
        key: ApiKey,
        ours: Versions,
        most: i16,
    ) -> Result<i16, ClientError> {
        let ours = Versions { most: ours.most.min(most), ..ours };
        let theirs = self.versions.versions(key);
        let common = theirs.and_then(|theirs| theirs.common(ours));
        common.map(|common| common.most).ok_or(ClientError::NoCommonVersion(key))
    }

    /// Sends a request and waits for its answer; gives where the body begins in [`Self::frame`].
    pub(super) fn exchange(
        &mut self,
        key: ApiKey,
        version: i16,
        body: impl FnOnce(&mut Writer),
    ) -> Result<usize, ClientError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let id = self.correlation_id;
        let request = frame_request(key, version, id, Some(&self.client_id), body);
        self.transfer(&request)
            .map_err(|error| ClientError::Connection(format!("{key}: {error}")))?;
        let mut reader = Reader::new(&self.frame);
        match read_response_header(&mut reader, key, version) {
            Ok(answered) if answered == id => Ok(reader.position()),
            Ok(answered) => {
                Err(ClientError::Bytes(format!("{key}: answer to {answered} in place of {id}")))
            }
            Err(error) => Err(ClientError::Bytes(format!("{key}: {error}"))),
        }
    }

    /// The last answer, from its header on.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    fn transfer(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > RESPONSE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of that size"));
        }
        self.frame.resize(size, 0);
        self.stream.read_exact(&mut self.frame)
    }
}

fn connect(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
