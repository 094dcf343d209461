//! pwrite(2) on the shard's own thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Step, WriteJob, Writer};
use crate::ring::files::Handle;

pub(super) struct Inline;

impl Writer for Inline {
    fn advance(&mut self, job: &mut WriteJob, file: &Handle) -> Step {
        let until = job.bytes.len();
        match write_until(job, file.descriptor(), until) {
            Ok(()) => Step::Finished,
            Err(error) => Step::Failed(error),
        }
    }

    fn in_flight_max(&self) -> usize {
        1
    }
}

/// Writes the job's bytes up to the one at `until`.
pub(super) fn write_until(job: &mut WriteJob, file: &File, until: usize) -> io::Result<()> {
    while job.done < until {
        let position = job.position + job.done as u64;
        match file.write_at(&job.bytes[job.done..until], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => job.done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
