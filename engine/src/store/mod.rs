//! Which bytes lie where on disk: exactly Kafka's files, so that a broker can be started on them.
//!
//! On the hot path `store` only plans: [`Log::append`] says which bytes go where, [`Log::read`]
//! where to send from, and the shard carries it out. For what is rare (opening, recovery, rolling,
//! index pages, truncation, removal) it calls [`crate::io::Disk`].
//!
//! | file           | what it decides                                                           |
//! |----------------|---------------------------------------------------------------------------|
//! | `log`          | a partition's log: its parts, its ends                                    |
//! | `append`       | where the next batches go, when a segment is closed                       |
//! | `read`         | from which place in which file an offset is served                        |
//! | `lookup`       | offsets by time                                                           |
//! | `recover`      | what is true after a crash                                                |
//! | `flush`        | what must be durable before the recovery point moves; closing             |
//! | `truncate`     | forgetting the end                                                        |
//! | `retain`       | forgetting the start                                                      |
//! | `segment`      | one file of batches, its indexes, when it is full                         |
//! | `index`        | entries of offset and time index, in memory and on disk                   |
//! | `transactions` | aborted transactions                                                      |
//! | `producers`    | producer state, the last stable offset, snapshots                         |
//! | `epochs`       | where each leader epoch begins                                            |
//! | `checkpoint`   | the offsets that a data folder keeps of all its logs                      |
//! | `identity`     | whose folder this is, and whether it was left cleanly                     |
//! | `scan`         | walking the batches of a file                                             |
//! | `names`        | names of files                                                            |
//! | `config`       | what an operator may say of a log                                         |
//! | `damage`       | what is wrong with a file, where, and what to do                          |

mod append;
pub mod checkpoint;
mod config;
mod damage;
mod epochs;
mod flush;
pub mod identity;
mod index;
mod log;
mod lookup;
mod names;
mod producers;
mod read;
mod recover;
mod retain;
mod scan;
mod segment;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transactions;
mod truncate;

pub use append::AppendPiece;
pub use config::LogConfig;
pub use damage::{Damage, DamageKind, remedy_for};
pub use epochs::LeaderEpochs;
pub use flush::FlushPlan;
pub use log::{Checkpointed, Log, Place, folder_of};
pub use lookup::TimestampedOffset;
pub use producers::{Producer, Producers};
pub use read::{Isolation, ReadError, ReadPlan};
pub use recover::{Cut, Left, Recovery};
pub use retain::{Removed, mark_deleted};
pub use transactions::{AbortedTransaction, read_all as read_transactions};
