//! ApiVersions: which APIs are served here in which versions.

use wire::api::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use wire::api::{ApiKey, ErrorCode, Versions};
use wire::codec::Reader;

use super::call::ReplyTo;
use super::route::{self, Handled, Refusal, Request};

pub(super) const SERVED: Versions = Versions { least: 0, most: 4 };

/// The answer to an ApiVersions request in a version that is not served: version 0, whatever was
/// asked, so that the client can start over. Only the first fields of its header are looked at.
pub(super) fn unsupported(frame: &[u8]) -> Option<(ReplyTo, Vec<u8>)> {
    let mut header = Reader::new(frame);
    let (api_key, version) = (ApiKey(header.i16().ok()?), header.i16().ok()?);
    if api_key != ApiKey::API_VERSIONS || SERVED.contains(version) {
        return None;
    }
    let to = ReplyTo { api_key, version: 0, correlation_id: header.i32().ok()? };
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys: vec![line(ApiKey::API_VERSIONS, SERVED)],
        ..ApiVersionsResponse::default()
    };
    Some((to, to.frame(|writer| response.write(writer, 0))))
}

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = ApiVersionsRequest::read(&mut request.body, version)?;
    let mut response = ApiVersionsResponse::default();
    let named = [&asked.client_software_name, &asked.client_software_version];
    if version >= 3 && !named.into_iter().all(|name| is_plain(name)) {
        response.error_code = ErrorCode::INVALID_REQUEST;
    } else {
        response.api_keys =
            route::SERVED.iter().map(|served| line(served.api_key, served.versions)).collect();
    }
    request.reply(|writer| response.write(writer, version))
}

fn line(api_key: ApiKey, versions: Versions) -> ApiVersion {
    ApiVersion { api_key, min_version: versions.least, max_version: versions.most }
}

/// Letters, digits, dots and dashes, with a letter or digit at both ends (KIP-511).
fn is_plain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    end(bytes.first()) && end(bytes.last()) && bytes.iter().all(|&byte| inner(byte))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_of_software_are_those_of_kip_511() {
        for name in ["apache-kafka-java", "4.4.0", "x"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "-x", "x.", "a b", "ü"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
