//! Compressing records the way Kafka's clients do, and back.

use std::io::{self, Read, Write};

use wire::batch::Compression;

/// What Kafka's Java client (snappy-java) puts before blocks of snappy: a magic, then two versions.
const XERIAL_HEADER: [u8; 16] =
    [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

/// The records of a batch, compressed.
///
/// # Panics
/// For a compression that nobody knows.
#[must_use]
pub fn compress(compression: Compression, records: &[u8]) -> Vec<u8> {
    try_compress(compression, records).expect("compressing into memory does not fail")
}

fn try_compress(compression: Compression, records: &[u8]) -> io::Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(records.to_vec()),
        Compression::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(records)?;
            encoder.finish()
        }
        Compression::Snappy => {
            let mut out = XERIAL_HEADER.to_vec();
            for block in records.chunks(XERIAL_BLOCK_BYTES) {
                let block = snap::raw::Encoder::new().compress_vec(block)?;
                out.extend_from_slice(&(block.len() as u32).to_be_bytes());
                out.extend_from_slice(&block);
            }
            Ok(out)
        }
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records)?;
            Ok(encoder.finish()?)
        }
        Compression::Zstd => zstd::encode_all(records, 0),
        Compression::Unknown(code) => Err(unknown(code)),
    }
}

/// The records of a batch as they were before they were compressed.
pub fn decompress(compression: Compression, payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    match compression {
        Compression::None => records.extend_from_slice(payload),
        Compression::Gzip => {
            flate2::read::MultiGzDecoder::new(payload).read_to_end(&mut records)?;
        }
        Compression::Snappy => return unsnappy(payload),
        Compression::Lz4 => {
            lz4_flex::frame::FrameDecoder::new(payload).read_to_end(&mut records)?;
        }
        Compression::Zstd => records = zstd::decode_all(payload)?,
        Compression::Unknown(code) => return Err(unknown(code)),
    }
    Ok(records)
}

fn unsnappy(payload: &[u8]) -> io::Result<Vec<u8>> {
    let Some(mut blocks) = payload.strip_prefix(&XERIAL_HEADER) else {
        return Ok(snap::raw::Decoder::new().decompress_vec(payload)?);
    };
    let mut records = Vec::new();
    while let Some((size, rest)) = blocks.split_first_chunk::<4>() {
        let (block, rest) = rest
            .split_at_checked(u32::from_be_bytes(*size) as usize)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        records.extend(snap::raw::Decoder::new().decompress_vec(block)?);
        blocks = rest;
    }
    Ok(records)
}

fn unknown(code: u8) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("compression {code} is unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_comes_back() {
        let records: Vec<u8> = b"records ".iter().copied().cycle().take(100_000).collect();
        for code in 0..5 {
            let compression = wire::batch::Attributes(code).compression();
            let payload = compress(compression, &records);
            assert_eq!(decompress(compression, &payload).expect("sound"), records);
            assert!(code == 0 || payload.len() < records.len() / 4, "{compression:?}");
        }
    }
}
