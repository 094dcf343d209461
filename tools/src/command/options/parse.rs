//! One text at a time: folders, addresses, hosts, names, writers.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use engine::ring::WriterKind;

pub(super) fn parse_folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match std::fs::metadata(&path) {
        _ if text.is_empty() => Err("must be a folder".into()),
        Ok(found) if !found.is_dir() => Err("is there, but is not a folder".into()),
        _ => Ok(path),
    }
}

/// An address to bind: names are looked up now.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = parse_host(text)?;
    let found = (host.as_str(), port).to_socket_addrs();
    let mut addresses = found.map_err(|error| format!("no address for {host}: {error}"))?;
    addresses.next().ok_or_else(|| format!("no address for {host}"))
}

/// A host and a port, not looked up. The brackets of `[::1]:9092` stay outside the host.
pub(super) fn parse_host(text: &str) -> Result<(String, u16), String> {
    let allowed = || "must be HOST:PORT, such as broker-1:9092 or [::1]:9092".to_string();
    let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_sound = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '/', ' ', '[', ']', ',', '=']),
    };
    match port.parse() {
        Ok(port) if is_sound => Ok((bare.unwrap_or(host).to_string(), port)),
        _ => Err(allowed()),
    }
}

/// A host and a port that somebody connects to.
pub(super) fn parse_target(text: &str) -> Result<(String, u16), String> {
    match parse_host(text)? {
        (_, 0) => Err("must have a port that can be connected to, not 0".into()),
        target => Ok(target),
    }
}

pub(super) fn parse_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("must not be empty".into()),
        text if text.len() > 249 => Err("must not be longer than 249 bytes".into()),
        text => Ok(text.into()),
    }
}

pub(super) fn parse_writer(text: &str) -> Result<WriterKind, String> {
    match text {
        "inline" => Ok(WriterKind::Inline),
        "ring" => Ok(WriterKind::Ring),
        "direct" => Ok(WriterKind::Direct),
        _ => Err("must be inline, ring or direct".into()),
    }
}
