//! The least one must say to a broker to know that it serves: ApiVersions and Metadata, by hand, so
//! that the harness does not trust the codec it is there to test.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;
const TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Whether something answers ApiVersions without an error.
pub fn answers(address: SocketAddr) -> bool {
    ask(address, API_VERSIONS, 0, &[]).is_some_and(|answer| answer.get(..2) == Some(&[0, 0][..]))
}

/// The node ids of the live brokers that the broker at `address` knows of; empty while it has none.
pub fn live_brokers(address: SocketAddr) -> Vec<i32> {
    // Version 1 with an empty list of topics: brokers only.
    let Some(answer) = ask(address, METADATA, 1, &0_i32.to_be_bytes()) else { return Vec::new() };
    brokers(&answer).unwrap_or_default()
}

/// `count, { node id, host, port, rack? }`.
fn brokers(mut answer: &[u8]) -> Option<Vec<i32>> {
    let count = take_i32(&mut answer)?;
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(take_i32(&mut answer)?);
        skip_string(&mut answer)?;
        take_i32(&mut answer)?;
        skip_string(&mut answer)?;
    }
    Some(found)
}

/// One request, one answer without its correlation id. All failures are `None`: ask again.
fn ask(address: SocketAddr, api: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut request = Vec::new();
    let length = i32::try_from(10 + body.len()).ok()?;
    request.extend(length.to_be_bytes());
    request.extend(api.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(body);
    stream.write_all(&request).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    if !(4..=ANSWER_BYTES_MAX).contains(&length) {
        return None;
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).ok()?;
    Some(answer.split_off(4))
}

fn take_i32(from: &mut &[u8]) -> Option<i32> {
    let (head, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    Some(i32::from_be_bytes(*head))
}

fn skip_string(from: &mut &[u8]) -> Option<()> {
    let (head, rest) = from.split_first_chunk::<2>()?;
    let length = usize::try_from(i16::from_be_bytes(*head)).unwrap_or(0);
    *from = rest.get(length..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_read_past_hosts_and_racks_and_a_cut_answer_is_none() {
        let mut answer = vec![0, 0, 0, 2];
        answer.extend([0, 0, 0, 7, 0, 1, b'h', 0, 0, 0, 9, 0xff, 0xff]);
        answer.extend([0, 0, 0, 8, 0, 1, b'i', 0, 0, 0, 9, 0, 1, b'r']);
        assert_eq!(brokers(&answer), Some(vec![7, 8]));
        assert_eq!(brokers(&answer[..answer.len() - 1]), None);
    }
}
