//! Writes and flushes of one file in their order: a flush waits for the writes before it, and the
//! writes behind it wait until it was started.

use std::io;

use super::error::{disk, is_transient, os_error};
use super::files::{FileOp, Refusal};
use super::flight::{Event, Purpose, Request};
use super::writer::{DIRECT_BYTES_LEAST, Step, WriteJob};
use super::{Ring, Waiter};
use crate::ids::{FileId, Token};
use crate::io::{Done, IoError, IoErrorKind};

impl Ring {
    pub(super) fn work_on(&mut self, file: FileId, op: FileOp) {
        match self.files.get_mut(file) {
            Some(known) => {
                if let FileOp::Write(job) = &op {
                    self.load.add(job.bytes.len());
                }
                known.waiting.push_back(op);
                self.drive_file(file);
            }
            None => {
                let detail = "the file was forgotten before this operation".to_owned();
                self.fail(op.token(), IoError { kind: IoErrorKind::NotFound, detail });
            }
        }
    }

    /// Starts what waits on a file, as far as the order allows.
    pub(super) fn drive_file(&mut self, file: FileId) {
        while let Some(known) = self.files.get_mut(file) {
            let create = match known.waiting.front() {
                None => break,
                Some(_) if known.starved => return,
                Some(FileOp::Write(_)) if known.writing >= self.writer.in_flight_max() => return,
                Some(FileOp::Flush(_)) if known.writing > 0 => return,
                Some(FileOp::Write(_)) => true,
                Some(FileOp::Flush(_)) => false,
            };
            let acquired = self.files.acquire(file, create, &mut self.kernel);
            let acquired = acquired.map(|handle| handle.target());
            let Some(known) = self.files.get_mut(file) else { return };
            if matches!(acquired, Err(Refusal::Busy)) {
                known.starved = true;
                return self.waiters.push_back(Waiter::File(file));
            }
            let Some(op) = known.waiting.pop_front() else { return };
            match (acquired, op) {
                (Ok(_), FileOp::Write(mut job)) => {
                    known.writing += 1;
                    let bytes = job.bytes.len();
                    job.direct =
                        job.direct && bytes >= DIRECT_BYTES_LEAST && self.load.may_go_direct(bytes);
                    self.advance_write(job);
                }
                (Ok(target), FileOp::Flush(token)) => {
                    self.kernel
                        .start(Request::Sync { file: target }, Purpose::Flush { token, file });
                }
                (Err(Refusal::Failed(error)), op) => {
                    let error = disk("open", &self.files.path_of(file), &error);
                    self.fail_op(&op, error);
                }
                (Err(Refusal::Busy), _) => unreachable!("returned above"),
            }
        }
        self.files.drop_if_forgotten(file, &mut self.kernel);
    }

    fn advance_write(&mut self, mut job: WriteJob) {
        let file = job.file;
        let handle = self.files.held(file);
        let outcome = match self.writer.advance(&mut job, handle, &self.pool) {
            Step::Submit(request) => {
                return self.kernel.start(request, Purpose::Write { job });
            }
            Step::Finished => Done::Written { file },
            Step::Failed(error) => {
                Done::Failed { error: disk("write", &self.files.path_of(file), &error) }
            }
        };
        self.end_write(&job, outcome);
    }

    fn end_write(&mut self, job: &WriteJob, outcome: Done) {
        let file = job.file;
        let has_failed = matches!(outcome, Done::Failed { .. });
        self.ready.push((job.token, outcome));
        self.load.remove(job.bytes.len());
        if let Some(known) = self.files.get_mut(file) {
            known.writing -= 1;
        }
        if has_failed {
            self.fail_waiting_writes(file);
        }
        self.files.release(file, &mut self.kernel);
    }

    /// Fails the writes behind one that failed: they would leave a hole.
    fn fail_waiting_writes(&mut self, file: FileId) {
        let path = self.files.path_of(file);
        let Some(known) = self.files.get_mut(file) else { return };
        let is_write = |op: &FileOp| matches!(op, FileOp::Write(_));
        let (writes, others): (Vec<_>, _) = known.waiting.drain(..).partition(is_write);
        known.waiting = others.into();
        for op in writes {
            let detail = format!("{}: a write before this one failed", path.display());
            self.fail_op(&op, IoError { kind: IoErrorKind::Disk, detail });
        }
    }

    /// Fails an operation that was never started.
    fn fail_op(&mut self, op: &FileOp, error: IoError) {
        if let FileOp::Write(job) = op {
            self.load.remove(job.bytes.len());
        }
        self.fail(op.token(), error);
    }

    pub(super) fn on_write(&mut self, mut job: WriteJob, event: Event) {
        let file = job.file;
        if event.result > 0 || is_transient(event.result) {
            job.done += event.result.max(0) as usize;
            self.advance_write(job);
        } else if job.direct && matches!(-event.result, libc::EINVAL | libc::EOPNOTSUPP) {
            // A disk that asks for more than whole blocks, or does not know this way after all.
            job.direct = false;
            self.files.held(file).refuse_direct();
            self.advance_write(job);
        } else {
            let error = match event.result {
                0 => io::Error::from(io::ErrorKind::WriteZero),
                result => os_error(result),
            };
            let error = disk("write", &self.files.path_of(file), &error);
            self.end_write(&job, Done::Failed { error });
        }
        self.drive_file(file);
    }

    pub(super) fn on_flush(&mut self, token: Token, file: FileId, event: &Event) {
        let outcome = match event.result {
            0.. => Done::Flushed { file },
            result => {
                let error = disk("flush", &self.files.path_of(file), &os_error(result));
                Done::Failed { error }
            }
        };
        self.ready.push((token, outcome));
        self.files.release(file, &mut self.kernel);
    }
}

impl FileOp {
    fn token(&self) -> Token {
        match self {
            Self::Write(job) => job.token,
            Self::Flush(token) => *token,
        }
    }
}
