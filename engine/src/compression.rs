//! Decompressing the records of a batch, for the rare look inside: lookups by time, `dump`, tests.
//! The data path never does. The result is bounded, whatever the bytes claim.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use wire::batch::Compression;

/// Why a payload could not be decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecompressError {
    /// A code that Kafka has not given out.
    UnknownCodec(u8),
    /// The bytes are not of their codec; what the codec said.
    Broken { codec: &'static str, reason: String },
    /// There would be more than was allowed.
    TooLarge { bytes_max: usize },
}

impl fmt::Display for DecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCodec(code) => write!(f, "unknown compression {code}"),
            Self::Broken { codec, reason } => write!(f, "broken {codec}: {reason}"),
            Self::TooLarge { bytes_max } => write!(f, "more than {bytes_max} bytes decompressed"),
        }
    }
}

impl std::error::Error for DecompressError {}

/// Gives the records of a payload as they stand uncompressed, at most `bytes_max` of them.
pub fn decompress(
    compression: Compression,
    payload: &[u8],
    bytes_max: usize,
) -> Result<Cow<'_, [u8]>, DecompressError> {
    let bytes = match compression {
        Compression::None => return Ok(Cow::Borrowed(payload)),
        // Java writes one member, but reads several.
        Compression::Gzip => {
            read_all("gzip", flate2::read::MultiGzDecoder::new(payload), bytes_max)?
        }
        Compression::Snappy => snappy(payload, bytes_max)?,
        Compression::Lz4 => {
            read_all("lz4", lz4_flex::frame::FrameDecoder::new(payload), bytes_max)?
        }
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(payload)
                .map_err(|error| broken("zstd", &error))?;
            read_all("zstd", decoder, bytes_max)?
        }
        Compression::Unknown(code) => return Err(DecompressError::UnknownCodec(code)),
    };
    Ok(Cow::Owned(bytes))
}

fn broken(codec: &'static str, error: &dyn fmt::Display) -> DecompressError {
    DecompressError::Broken { codec, reason: error.to_string() }
}

fn read_all(
    codec: &'static str,
    decoder: impl Read,
    bytes_max: usize,
) -> Result<Vec<u8>, DecompressError> {
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    decoder.take(limit).read_to_end(&mut bytes).map_err(|error| broken(codec, &error))?;
    if bytes.len() > bytes_max { Err(DecompressError::TooLarge { bytes_max }) } else { Ok(bytes) }
}

/// What snappy-java puts before its blocks: a magic, a version and the oldest version that reads it.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const XERIAL_HEAD: usize = 16;

/// Blocks, each behind its length, after the head; other clients write one bare block.
fn snappy(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let mut bytes = Vec::new();
    if !payload.starts_with(XERIAL_MAGIC) {
        snappy_block(payload, &mut bytes, bytes_max)?;
        return Ok(bytes);
    }
    let cut = || broken("snappy", &"the bytes end inside a block");
    let mut rest = payload.get(XERIAL_HEAD..).ok_or_else(cut)?;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        // Streams that were put one behind the other have their heads in between.
        if rest.starts_with(XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEAD..).ok_or_else(cut)?;
            continue;
        }
        let length = u32::from_be_bytes(*length) as usize;
        snappy_block(after.get(..length).ok_or_else(cut)?, &mut bytes, bytes_max)?;
        rest = &after[length..];
    }
    if rest.is_empty() { Ok(bytes) } else { Err(cut()) }
}

/// A snappy element of three bytes says at most 64.
const SNAPPY_EXPANSION_MAX: usize = 22;

fn snappy_block(
    block: &[u8],
    bytes: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), DecompressError> {
    let length = snap::raw::decompress_len(block).map_err(|error| broken("snappy", &error))?;
    if length > bytes_max - bytes.len() {
        return Err(DecompressError::TooLarge { bytes_max });
    }
    // Before room is made for what a few bytes claim.
    if length > block.len().saturating_mul(SNAPPY_EXPANSION_MAX) {
        let reason = format!("{} bytes cannot become {length}", block.len());
        return Err(DecompressError::Broken { codec: "snappy", reason });
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    let mut decoder = snap::raw::Decoder::new();
    decoder.decompress(block, &mut bytes[start..]).map_err(|error| broken("snappy", &error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text() -> Vec<u8> {
        b"offsets are exact, bytes are the same; ".repeat(1_000)
    }

    fn compressed(compression: Compression) -> Vec<u8> {
        let text = text();
        match compression {
            Compression::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&text).expect("memory");
                encoder.finish().expect("memory")
            }
            Compression::Snappy => {
                let mut bytes = XERIAL_MAGIC.to_vec();
                bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
                for block in text.chunks(32 << 10) {
                    let block = snap::raw::Encoder::new().compress_vec(block).expect("memory");
                    bytes.extend_from_slice(
                        &u32::try_from(block.len()).expect("small").to_be_bytes(),
                    );
                    bytes.extend_from_slice(&block);
                }
                bytes
            }
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&text).expect("memory");
                encoder.finish().expect("memory")
            }
            Compression::Zstd => zstd::encode_all(text.as_slice(), 1).expect("memory"),
            _ => text,
        }
    }

    const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    #[test]
    fn every_codec_gives_back_what_went_in_and_no_more_than_allowed() {
        for compression in ALL {
            let bytes = compressed(compression);
            assert_eq!(decompress(compression, &bytes, 1 << 20).as_deref(), Ok(&text()[..]));
            if compression != Compression::None {
                let most = text().len() - 1;
                let refused = decompress(compression, &bytes, most);
                assert_eq!(refused, Err(DecompressError::TooLarge { bytes_max: most }));
            }
        }
    }

    #[test]
    fn a_bare_snappy_block_is_read_too() {
        let block = snap::raw::Encoder::new().compress_vec(&text()).expect("memory");
        assert_eq!(decompress(Compression::Snappy, &block, 1 << 20).as_deref(), Ok(&text()[..]));
    }

    /// Twenty bytes that announced 219 MB got as much zeroed room, in each lookup by time: half a second
    /// in which a shard did nothing else. Found by the fuzzer.
    #[test]
    fn a_snappy_block_gets_no_room_that_its_bytes_cannot_fill() {
        let announced = [0x80, 0x80, 0x80, 0x50, 0, b'x'];
        let most = 256 << 20;
        let length = snap::raw::decompress_len(&announced).expect("a length");
        assert!((100 << 20..most).contains(&length));
        match decompress(Compression::Snappy, &announced, most) {
            Err(DecompressError::Broken { reason, .. }) => {
                assert!(reason.contains("cannot become"))
            }
            other => panic!("{other:?}"),
        }
        let same = vec![b'x'; 1 << 20];
        let block = snap::raw::Encoder::new().compress_vec(&same).expect("memory");
        assert_eq!(decompress(Compression::Snappy, &block, most).as_deref(), Ok(&same[..]));
    }

    #[test]
    fn bytes_that_were_cut_are_an_error_and_never_a_panic() {
        for compression in ALL.into_iter().skip(1) {
            let bytes = compressed(compression);
            for cut in (0..bytes.len()).step_by(7) {
                if let Ok(read) = decompress(compression, &bytes[..cut], 1 << 20) {
                    assert!(read.len() < text().len(), "{compression:?} cut at {cut}");
                }
            }
        }
        let unknown = decompress(Compression::Unknown(7), &[], 1);
        assert_eq!(unknown, Err(DecompressError::UnknownCodec(7)));
    }
}
