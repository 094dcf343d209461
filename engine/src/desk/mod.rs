//! The desk: one ordinary thread for what is not the data path. It keeps the checkpoint files, finds
//! addresses, writes down losses, and shows the metrics. No shard ever waits for it.

pub mod checkpoints;
mod http;
pub mod losses;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::ids::ShardId;
use crate::io::Disk;
use crate::metrics::ShardMetrics;
use crate::shard::mail::{DeskLetter, Letter, Mailbox, Slot};
use crate::store::identity::{CleanShutdown, FlushFailed};
use checkpoints::Checkpoints;

/// What the desk is told when it starts.
pub struct DeskOptions {
    pub data: Arc<Path>,
    pub mailbox: Arc<Mailbox<DeskLetter>>,
    /// Rung when the mailbox has letters.
    pub bell: Arc<Notify>,
    pub shards: Vec<Slot<Letter>>,
    pub checkpoints: Checkpoints,
    pub metrics: Vec<Arc<ShardMetrics>>,
    /// Where metrics are shown; nowhere if not said.
    pub http: Option<std::net::TcpListener>,
}

/// Runs the desk on the calling thread until every shard has stopped. Gives whether all logs were
/// closed cleanly.
///
/// # Errors
/// Where the thread cannot have a runtime or the HTTP socket cannot be used.
pub fn run(options: DeskOptions, disk: &mut dyn Disk) -> std::io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let mut options = options;
        if let Some(listener) = options.http.take() {
            http::serve(listener, options.metrics.clone())?;
        }
        let desk = Desk { stopped: 0, clean: true, are_written: true, mail_waits: false, options };
        Ok(desk.run(disk).await)
    })
}

struct Desk {
    options: DeskOptions,
    stopped: usize,
    clean: bool,
    /// Whether all checkpoints are in their files.
    are_written: bool,
    /// Whether a shard's box was too full for a letter.
    mail_waits: bool,
}

/// How soon a full box is tried again.
const MAIL_AGAIN: std::time::Duration = std::time::Duration::from_millis(10);

impl Desk {
    async fn run(mut self, disk: &mut dyn Disk) -> bool {
        let (found, mut answers) = tokio::sync::mpsc::channel(64);
        while self.stopped < self.options.shards.len() {
            tokio::select! {
                () = self.options.bell.notified() => {}
                () = tokio::time::sleep(MAIL_AGAIN), if self.mail_waits => {}
                Some((shard, host, addresses)) = answers.recv() => {
                    self.send(shard, Letter::Resolved { host, addresses });
                }
            }
            while let Some(letter) = self.options.mailbox.take() {
                self.read(letter, disk, &found);
            }
            let Self { options, .. } = &mut self;
            let written = options.checkpoints.write(disk, &options.data);
            if let Err(damage) = &written {
                tracing::error!("a checkpoint could not be written: {damage}");
            }
            self.are_written = written.is_ok();
            let flushed = self.options.shards.iter_mut().map(Slot::flush);
            self.mail_waits = flushed.fold(false, |waits, more| waits | more);
        }
        // Without the last checkpoints a start that believes the logs' ends would believe old starts.
        self.clean &= self.are_written;
        let clean = CleanShutdown { broker_epoch: None };
        if self.clean {
            match clean.write(disk, &self.options.data) {
                // All is on disk: what failed before does not matter any more.
                Ok(()) => {
                    if let Err(damage) = FlushFailed::clear(disk, &self.options.data) {
                        tracing::warn!("an unclean stop will cost more than it must: {damage}");
                    }
                }
                Err(damage) => {
                    tracing::warn!("the next start reads the ends of all logs again: {damage}");
                }
            }
        }
        self.clean
    }

    fn send(&mut self, shard: ShardId, letter: Letter) {
        self.options.shards[usize::from(shard.0)].send(letter);
    }

    fn read(&mut self, letter: DeskLetter, disk: &mut dyn Disk, found: &Found) {
        match letter {
            DeskLetter::Checkpoint { partitions } => self.options.checkpoints.take(partitions),
            DeskLetter::Loss { shard, partition, loss, wall_clock_ms } => {
                let data = &self.options.data;
                let result = losses::record(disk, data, &partition, &loss, wall_clock_ms)
                    .map_err(|error| error.to_string());
                self.send(shard, Letter::LossRecorded { partition, loss, result });
            }
            DeskLetter::Resolve { shard, host } => {
                let found = found.clone();
                tokio::spawn(async move {
                    let addresses = addresses_of(&host).await;
                    // Where nobody listens any more the desk has ended, and nobody asks.
                    let _ = found.send((shard, host, addresses)).await;
                });
            }
            DeskLetter::Stopped { clean, .. } => {
                self.stopped += 1;
                self.clean &= clean;
            }
        }
    }
}

/// Where addresses go that were found.
type Found = tokio::sync::mpsc::Sender<(ShardId, Arc<str>, Result<Vec<IpAddr>, String>)>;

async fn addresses_of(host: &str) -> Result<Vec<IpAddr>, String> {
    match tokio::net::lookup_host((host, 0)).await {
        Ok(found) => Ok(found.map(|address: SocketAddr| address.ip()).collect()),
        Err(error) => Err(format!("no address for {host}: {error}")),
    }
}
