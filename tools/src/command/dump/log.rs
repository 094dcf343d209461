//! The batches of a segment file, one at a time, in memory that is used again.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use wire::batch::{Batch, BatchError, BatchHeader, HEADER_SIZE};

/// The largest batch that is read: no response could carry a larger one.
const BATCH_BYTES_MAX: usize = engine::limits::RESPONSE_BYTES_MAX;

/// A segment file on its way from the first to the last batch.
pub(super) struct LogFile {
    reader: BufReader<File>,
    length: u64,
    position: u64,
    bytes: Vec<u8>,
    broken: bool,
}

/// What stands next in the file.
pub(super) enum Next<'a> {
    Batch {
        position: u64,
        batch: Batch<'a>,
    },
    /// No batch: what follows cannot be found.
    Broken {
        error: BatchError,
        left: u64,
    },
    /// A batch that claims to be larger than any that can be sent.
    TooLarge {
        position: u64,
        offset: i64,
        size: usize,
    },
    End,
}

impl LogFile {
    /// Opens a file that may grow meanwhile; what is added now is not read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let reader = BufReader::with_capacity(256 << 10, file);
        Ok(Self { reader, length, position: 0, bytes: Vec::new(), broken: false })
    }

    /// How long the file was when it was opened.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        let left = self.length - self.position;
        if left == 0 || self.broken {
            return Ok(Next::End);
        }
        let place = usize::try_from(self.position).unwrap_or(usize::MAX);
        let head = usize::try_from(left).unwrap_or(usize::MAX).min(HEADER_SIZE);
        self.bytes.resize(head, 0);
        self.reader.read_exact(&mut self.bytes)?;
        let (size, offset) = match BatchHeader::read(&self.bytes, place) {
            Ok(header) => (header.size(), header.base_offset().0),
            Err(error) => return Ok(self.broken_at(error, left)),
        };
        if size as u64 <= left && size > BATCH_BYTES_MAX {
            self.broken = true;
            return Ok(Next::TooLarge { position: self.position, offset, size });
        }
        let whole = size.min(usize::try_from(left).unwrap_or(usize::MAX)).min(BATCH_BYTES_MAX);
        self.bytes.resize(whole, 0);
        self.reader.read_exact(&mut self.bytes[HEADER_SIZE..])?;
        if size > whole {
            // The file ends inside the batch.
            let error = Batch::read(&self.bytes, place).expect_err("it is not whole");
            return Ok(self.broken_at(error, left));
        }
        let position = self.position;
        self.position += size as u64;
        match Batch::read(&self.bytes, place) {
            Ok(batch) => Ok(Next::Batch { position, batch }),
            Err(error) => {
                self.broken = true;
                Ok(Next::Broken { error, left })
            }
        }
    }

    const fn broken_at(&mut self, error: BatchError, left: u64) -> Next<'static> {
        self.broken = true;
        Next::Broken { error, left }
    }
}
