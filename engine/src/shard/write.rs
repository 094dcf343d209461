//! Writes to segment files, from plan to acknowledgement: what waits for them, and the flush of a
//! segment that was closed.

use std::sync::Arc;

use wire::ids::Offset;

use crate::ids::{FileId, PartitionKey};
use crate::io::{Chunk, Done, Io, Op};
use crate::store::AppendPiece;

use super::cell::Flushing;
use super::{Purpose, Shard};

impl<I: Io> Shard<I> {
    pub(super) fn write(
        &mut self,
        key: PartitionKey,
        piece: &AppendPiece,
        bytes: Chunk,
        backfill: bool,
    ) {
        let file = self.file_of(key, piece);
        let cell = &mut self.cells[key.0 as usize];
        if piece.rolled.is_some() {
            // What comes before this piece is durable once the closed segment is flushed.
            cell.closed.push_back(Offset(piece.next.0));
        }
        cell.writes += 1;
        self.writing_bytes += bytes.len();
        let purpose = Purpose::Append { key, next: piece.next, bytes: bytes.len() as u64 };
        let token = self.in_flight.add(purpose);
        self.io.submit(token, Op::Write { file, position: piece.position, bytes, backfill });
    }

    /// The file of a piece: mostly the one that was written to before.
    fn file_of(&mut self, key: PartitionKey, piece: &AppendPiece) -> FileId {
        let cell = &mut self.cells[key.0 as usize];
        match &cell.file {
            Some((path, file)) if Arc::ptr_eq(path, &piece.path) || *path == piece.path => *file,
            _ => {
                let file = self.io.file(&piece.path);
                cell.file = Some((Arc::clone(&piece.path), file));
                file
            }
        }
    }

    pub(super) fn written(&mut self, key: PartitionKey, next: Offset, bytes: u64, done: Done) {
        self.writing_bytes -= bytes as usize;
        let cell = &mut self.cells[key.0 as usize];
        cell.writes -= 1;
        match done {
            Done::Written { .. } if !cell.log.is_poisoned() => {
                cell.log.appended(next);
                if let Some(mirror) = &mut cell.mirror {
                    mirror.written();
                }
                self.metrics.appended_bytes.add(bytes);
                self.upkeep.touched(key);
                self.follow_log_start(key);
                self.wake_watchers(key);
                self.flush_closed(key);
            }
            // Something before it failed: what is on disk is for recovery to say.
            Done::Written { .. } => {}
            Done::Failed { error } => self.write_refused(key, bytes as usize, &error),
            other => unreachable!("a write answered {other:?}"),
        }
        self.located(key);
        self.reopen(key);
    }

    /// Flushes what was closed, once everything before it is written; one flush at a time.
    fn flush_closed(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        let is_due = cell.closed.front().is_some_and(|&at| cell.log.log_end() >= at);
        if !is_due || cell.flushing.is_some() {
            return;
        }
        while cell.closed.pop_front_if(|at| cell.log.log_end() >= *at).is_some() {}
        self.flush(key);
    }

    /// Flushes all that is written and not yet durable.
    pub(super) fn flush(&mut self, key: PartitionKey) {
        let cell = &mut self.cells[key.0 as usize];
        let plan = match cell.log.flush_plan(self.io.disk()) {
            Ok(plan) => plan,
            Err(damage) => return self.damaged(key, &damage),
        };
        if plan.files.is_empty() {
            return;
        }
        let left = u32::try_from(plan.files.len()).expect("a log has fewer than 2^32 files");
        cell.flushing = Some(Flushing { left, up_to: plan.up_to, failed: false });
        for path in plan.files {
            // Clients may be reading a segment, and writes may be under way to it; its name is
            // forgotten when it is removed.
            let forget = path.extension().is_none_or(|extension| extension != "log");
            let file = self.io.file(&path);
            let purpose = Purpose::Flush { key, file, forget };
            let token = self.in_flight.add(purpose);
            self.io.submit(token, Op::Flush { file });
        }
    }

    pub(super) fn segment_flushed(&mut self, key: PartitionKey, done: Done) {
        let cell = &mut self.cells[key.0 as usize];
        let Some(flushing) = &mut cell.flushing else { return };
        flushing.left -= 1;
        flushing.failed |= matches!(done, Done::Failed { .. });
        let finished = (flushing.left == 0).then_some(*flushing);
        if let Done::Failed { error } = done {
            self.flush_refused(key, &error);
        }
        let cell = &mut self.cells[key.0 as usize];
        let Some(Flushing { up_to, failed, .. }) = finished else { return };
        cell.flushing = None;
        // The flush was of this log: one that is opened in its place has files that nobody flushed.
        if !failed && let Err(damage) = cell.log.flushed(self.io.disk(), up_to) {
            self.damaged(key, &damage);
            return self.reopen(key);
        }
        self.upkeep.touched(key);
        self.reopen(key);
        self.flush_closed(key);
    }
}
