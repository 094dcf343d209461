//! The log of a partition as one run of bytes, however it is cut into segments.
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Base offset i64 and batch length i32: all of a batch that is before the length's count.
const BATCH_HEAD_BYTES: usize = 12;

/// Where the count of offsets of a batch lies: last offset delta, i32.
const LAST_OFFSET_DELTA_AT: usize = 23;

/// How much is compared at once.
const CHUNK_BYTES: usize = 1 << 16;

/// The segment files of a partition, oldest first.
pub fn segments(partition: &Path) -> Result<Vec<PathBuf>, String> {
    files(partition, "log")
}

/// All files of a partition with this ending, in order of their names.
pub fn files(partition: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(partition).map_err(|e| format!("{}: {e}", partition.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == ending));
    paths.sort();
    Ok(paths)
}

/// Reads the batches of a partition, from the first that ends at or after an offset on.
#[derive(Debug)]
pub struct JoinedLog {
    open: Option<BufReader<File>>,
    /// Last is next.
    rest: Vec<PathBuf>,
}

impl JoinedLog {
    /// With `from` 0 it is the whole log.
    pub fn open(partition: &Path, from: i64) -> Result<JoinedLog, String> {
        let mut rest = segments(partition)?;
        rest.reverse();
        let mut log = JoinedLog { open: None, rest };
        while let Some(path) = log.rest.pop() {
            let bad = |error: io::Error| format!("{}: {error}", path.display());
            let mut file = BufReader::new(File::open(&path).map_err(bad)?);
            if skip_before(&mut file, from).map_err(bad)? {
                log.open = Some(file);
                break;
            }
        }
        Ok(log)
    }
}

impl Read for JoinedLog {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(file) = &mut self.open {
                let count = file.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
            }
            match self.rest.pop() {
                Some(path) => self.open = Some(BufReader::new(File::open(path)?)),
                None => return Ok(0),
            }
        }
    }
}

/// Leaves the file at the first batch whose last offset is not below `from`; false if there is none.
fn skip_before(file: &mut BufReader<File>, from: i64) -> io::Result<bool> {
    let mut position = 0;
    loop {
        let mut head = [0; LAST_OFFSET_DELTA_AT + 4];
        if read_all(file, &mut head)? < head.len() {
            // A torn batch at the end counts as there: somebody will want to see it.
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(position))?;
            return Ok(position < length);
        }
        let last = base_offset(&head) + i64::from(i32_at(&head, LAST_OFFSET_DELTA_AT));
        if last >= from {
            file.seek(SeekFrom::Start(position))?;
            return Ok(true);
        }
        position += batch_bytes(&head);
        file.seek(SeekFrom::Start(position))?;
    }
}

/// The whole log in memory.
pub fn joined_log(partition: &Path, from: i64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut log = JoinedLog::open(partition, from)?;
    log.read_to_end(&mut bytes).map_err(|e| format!("{}: {e}", partition.display()))?;
    Ok(bytes)
}

/// Length and CRC-64 of a log, to compare it with itself later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint {
    pub bytes: u64,
    pub crc64: u64,
}

pub fn fingerprint(partition: &Path, from: i64) -> Result<Fingerprint, String> {
    let mut log = JoinedLog::open(partition, from)?;
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let count = log.read(&mut chunk).map_err(|e| format!("{}: {e}", partition.display()))?;
        if count == 0 {
            return Ok(Fingerprint { bytes, crc64: crc.finalize() });
        }
        crc.update(&chunk[..count]);
        bytes += count as u64;
    }
}

/// Where two logs part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// Counted from the first byte compared.
    pub position: u64,
    /// The batch of `one` that the position lies in, or would follow.
    pub batch_base_offset: i64,
    /// The position inside that batch, such as 12 for the leader epoch.
    pub byte_in_batch: u64,
    pub how: How,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    Differ { one: u8, other: u8 },
    OneEnds,
    OtherEnds,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { position, batch_base_offset: base, byte_in_batch: byte, how } = self;
        match how {
            How::Differ { one, other } => write!(f, "{one:#04x} here and {other:#04x} there")?,
            How::OneEnds => write!(f, "ends here, goes on there")?,
            How::OtherEnds => write!(f, "goes on here, ends there")?,
        }
        write!(f, " at position {position}, byte {byte} of the batch at offset {base}")
    }
}

/// The first difference of the logs of two partition folders, from the batch with `from` on.
/// `None`: equal to the last byte.
pub fn first_difference(one: &Path, other: &Path, from: i64) -> Result<Option<Difference>, String> {
    let mut logs = (JoinedLog::open(one, from)?, JoinedLog::open(other, from)?);
    let (mut ours, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut batches = Batches::default();
    loop {
        let our_count =
            read_all(&mut logs.0, &mut ours).map_err(|e| format!("{}: {e}", one.display()))?;
        let their_count =
            read_all(&mut logs.1, &mut theirs).map_err(|e| format!("{}: {e}", other.display()))?;
        let both = our_count.min(their_count);
        let differs = (0..both).find(|&at| ours[at] != theirs[at]);
        let how = match differs {
            Some(at) => How::Differ { one: ours[at], other: theirs[at] },
            None if our_count < their_count => How::OneEnds,
            None if their_count < our_count => How::OtherEnds,
            None if both == 0 => return Ok(None),
            None => {
                batches.pass(&ours[..both]);
                continue;
            }
        };
        let at = differs.unwrap_or(both);
        // One byte more, so that the batch the position lies in has begun.
        let begun = our_count.min(at + 1);
        batches.pass(&ours[..begun]);
        let position = if at < our_count { batches.position - 1 } else { batches.position };
        // And the rest of its head, for its offset.
        let mut missing = vec![0; batches.missing_head_bytes()];
        let found = read_all(&mut ours[begun..our_count].chain(&mut logs.0), &mut missing)
            .map_err(|e| format!("{}: {e}", one.display()))?;
        batches.pass(&missing[..found]);
        return Ok(Some(Difference {
            position,
            batch_base_offset: batches.base_offset,
            byte_in_batch: position - batches.started,
            how,
        }));
    }
}

/// Follows batch borders through chunks of bytes.
#[derive(Debug, Default)]
struct Batches {
    position: u64,
    /// Where the current batch started, where the next one will, and what its head said.
    started: u64,
    next: u64,
    base_offset: i64,
    head: Vec<u8>,
}

impl Batches {
    /// Nothing once the head is whole, or before the first byte.
    fn missing_head_bytes(&self) -> usize {
        if self.head.is_empty() { 0 } else { BATCH_HEAD_BYTES.saturating_sub(self.head.len()) }
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.position == self.next {
                self.started = self.position;
                self.head.clear();
                // Unknown until the head is whole; no batch is shorter than its head.
                self.next = self.position + BATCH_HEAD_BYTES as u64;
            }
            let step = usize::try_from(self.next - self.position).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(step.min(bytes.len()));
            if self.head.len() < BATCH_HEAD_BYTES {
                self.head.extend_from_slice(now);
                if self.head.len() == BATCH_HEAD_BYTES {
                    self.base_offset = base_offset(&self.head);
                    self.next = self.started + batch_bytes(&self.head);
                }
            }
            self.position += now.len() as u64;
            bytes = rest;
        }
    }
}

fn base_offset(head: &[u8]) -> i64 {
    i64::from_be_bytes(*head.first_chunk().expect("a whole head"))
}

/// Of the whole batch; bytes that are no batch count as a bare head, so that walking goes on.
fn batch_bytes(head: &[u8]) -> u64 {
    BATCH_HEAD_BYTES as u64 + u64::try_from(i32_at(head, 8)).unwrap_or(0)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(*bytes[at..].first_chunk().expect("a whole head"))
}

/// Fills the buffer unless the end comes first; how much it holds.
fn read_all(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of `count` offsets, `filler` bytes long after the fields we read.
    fn batch(base: i64, count: i32, filler: &[u8]) -> Vec<u8> {
        let mut bytes = base.to_be_bytes().to_vec();
        let length = i32::try_from(15 + filler.len()).unwrap();
        bytes.extend(length.to_be_bytes());
        bytes.extend([0; 11]);
        bytes.extend((count - 1).to_be_bytes());
        bytes.extend(filler);
        bytes
    }

    fn partition(segments: &[&[Vec<u8>]]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for batches in segments {
            let name = format!("{:020}.log", base_offset(&batches[0]));
            std::fs::write(folder.path().join(name), batches.concat()).unwrap();
        }
        folder
    }

    #[test]
    fn the_same_batches_cut_into_other_segments_are_the_same_log() {
        let batches = [batch(0, 3, b"abc"), batch(3, 1, b"d"), batch(4, 6, b"efg")];
        let one = partition(&[&batches[..1], &batches[1..]]);
        let other = partition(&[&batches]);
        assert_eq!(first_difference(one.path(), other.path(), 0), Ok(None));
        assert_eq!(joined_log(one.path(), 0).unwrap(), batches.concat());
        assert_eq!(fingerprint(one.path(), 0), fingerprint(other.path(), 0));
    }

    #[test]
    fn reading_from_an_offset_starts_with_the_batch_that_holds_it() {
        let batches = [batch(0, 3, b"abc"), batch(3, 1, b"d"), batch(4, 6, b"efg")];
        let log = partition(&[&batches[..2], &batches[2..]]);
        assert_eq!(joined_log(log.path(), 3).unwrap(), batches[1..].concat());
        assert_eq!(joined_log(log.path(), 9).unwrap(), batches[2]);
        assert_eq!(joined_log(log.path(), 10).unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn a_difference_names_the_batch_and_the_byte_in_it() {
        let one = partition(&[&[batch(0, 3, b"abc"), batch(3, 1, b"xyz")]]);
        let other = partition(&[&[batch(0, 3, b"abc"), batch(3, 1, b"xyZ")]]);
        let found = first_difference(one.path(), other.path(), 0).unwrap().unwrap();
        let how = How::Differ { one: b'z', other: b'Z' };
        let expected = Difference { position: 59, batch_base_offset: 3, byte_in_batch: 29, how };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_log_that_ends_early_differs_where_it_ends() {
        let batches = [batch(0, 3, b"abc"), batch(3, 1, b"d")];
        let (one, other) = (partition(&[&batches[..1]]), partition(&[&batches]));
        let shorter = first_difference(one.path(), other.path(), 0).unwrap().unwrap();
        assert_eq!((shorter.how, shorter.position), (How::OneEnds, 30));
        let longer = first_difference(other.path(), one.path(), 0).unwrap().unwrap();
        assert_eq!((longer.how, longer.batch_base_offset), (How::OtherEnds, 3));
    }

    #[test]
    fn differences_beyond_the_first_chunk_are_found_in_their_batch() {
        let long = vec![b'x'; CHUNK_BYTES];
        let mut changed = long.clone();
        changed[CHUNK_BYTES - 1] = b'y';
        let one = partition(&[&[batch(0, 3, b"abc"), batch(3, 1, &long)]]);
        let other = partition(&[&[batch(0, 3, b"abc"), batch(3, 1, &changed)]]);
        let found = first_difference(one.path(), other.path(), 0).unwrap().unwrap();
        assert_eq!(found.batch_base_offset, 3);
        assert_eq!(found.byte_in_batch, 27 + CHUNK_BYTES as u64 - 1);
    }
}
