//! The ring writes, on a worker thread of the kernel.

use super::{Step, WriteJob, Writer};
use crate::io::BufferPool;
use crate::ring::files::Handle;
use crate::ring::flight::Request;

pub(super) struct Queued;

/// The kernel carries out the writes to one file one after another; a few in flight keep it busy
/// while we look at the completion of the last. Where one of them fails, later ones may have been
/// written all the same: a hole behind what was reported, which recovery cuts.
const IN_FLIGHT_MAX: usize = 4;

impl Writer for Queued {
    fn advance(&mut self, job: &mut WriteJob, file: &mut Handle, _pool: &BufferPool) -> Step {
        let (rest, position) = job.rest();
        if rest.is_empty() {
            return Step::Finished;
        }
        let (bytes, from) = (job.bytes.clone(), job.done);
        Step::Submit(Request::Write { file: file.target(), position, bytes, from })
    }

    fn in_flight_max(&self) -> usize {
        IN_FLIGHT_MAX
    }
}
