//! What may go wrong in a simulation, and how often. No fault is worse than what the design must
//! survive: damage on the way strikes only bytes that a CRC seals, a disk loses only what was not
//! synced, a folder keeps its changes in their order.
//!
//! | fault            | what happens                                                | what must follow                        |
//! |------------------|-------------------------------------------------------------|-----------------------------------------|
//! | `Kill`           | the process dies, at once or inside a disk call to come     | the log recovers to all that was written|
//! | `PowerCut`       | so does the machine: unsynced pages, lengths, names go      | to at least the recovery point          |
//! | `Restart`        | a clean stop and start                                      | nothing is read again                   |
//! | `DiskFull`       | writes below a folder fail for a while                      | that partition stops; after a restart on|
//! | `WriteError`     | single writes fail                                          | the same                                |
//! | `SyncError`      | single syncs fail                                           | the same                                |
//! | `SyncDrops`      | single syncs fail and drop what they were to save           | the same, and what was dropped is written again |
//! | `SlowDisk`       | writes take up to seconds                                   | nothing but waiting                     |
//! | `Cut`            | connections to brokers or clients break                     | they are made again                     |
//! | `Stall`          | connections carry nothing for a while                       | the same                                |
//! | `Refuse`         | connecting or resolving fails, or nobody answers            | it is tried again                       |
//! | `BrokerDown`     | a broker stops for a while, its sessions are lost           | other leaders are found                 |
//! | `Evict`          | a broker forgets all fetch sessions                         | new ones are made                       |
//! | `Flip`           | a bit of a batch flips on the way                           | it is asked for again                   |
//! | `Damage`         | a batch is damaged at the source until it is mended         | that partition stops, others go on      |
//! | `Trouble`        | a partition answers errors, late, or little                 | it is asked again                       |
//! | `MoveLeader`     | a partition's leader moves                                  | it is followed                          |
//! | `DeleteRecords`  | a log's start moves, perhaps past what we have              | ours follows; what we lack is recorded  |
//! | `Compact`        | records go, holes stay                                      | what comes later has the same holes     |
//! | `NewTopic`       | a topic appears, or grows                                   | it is mirrored                          |
//! | `ReplaceTopic`   | a topic is deleted, or is another one under its name        | ours stays as it was and stops          |
//! | `UncleanElection`| records are lost at the source                              | a mirror that has them stops            |

//!
//! Where a process dies between a sync that drops and its word of that on the disk, the machine starts
//! again with it: the next process would read the dropped pages from memory, believe them, and lose them
//! when the power goes. Nobody survives that.

use super::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    PowerCut,
    Restart,
    DiskFull,
    WriteError,
    SyncError,
    SyncDrops,
    SlowDisk,
    Cut,
    Stall,
    Refuse,
    BrokerDown,
    Evict,
    Flip,
    Damage,
    Trouble,
    MoveLeader,
    DeleteRecords,
    Compact,
    NewTopic,
    ReplaceTopic,
    UncleanElection,
}

/// Each with its weight and how often in a thousand runs it is among those allowed.
const TABLE: [(Fault, u64, u64); 22] = [
    (Fault::Kill, 6, 600),
    (Fault::PowerCut, 6, 500),
    (Fault::Restart, 3, 400),
    (Fault::DiskFull, 2, 150),
    (Fault::WriteError, 2, 150),
    (Fault::SyncError, 2, 150),
    (Fault::SyncDrops, 2, 300),
    (Fault::SlowDisk, 3, 200),
    (Fault::Cut, 8, 500),
    (Fault::Stall, 5, 400),
    (Fault::Refuse, 4, 300),
    (Fault::BrokerDown, 5, 400),
    (Fault::Evict, 4, 300),
    (Fault::Flip, 5, 400),
    (Fault::Damage, 3, 150),
    (Fault::Trouble, 4, 300),
    (Fault::MoveLeader, 8, 500),
    (Fault::DeleteRecords, 8, 500),
    (Fault::Compact, 8, 500),
    (Fault::NewTopic, 3, 400),
    (Fault::ReplaceTopic, 2, 150),
    (Fault::UncleanElection, 2, 150),
];

impl Fault {
    /// Every kind.
    #[must_use]
    pub fn all() -> Vec<Self> {
        TABLE.iter().map(|(fault, _, _)| *fault).collect()
    }

    /// Some of them: a run with few kinds finds what a run with all of them hides.
    #[must_use]
    pub fn some(random: &mut Random) -> Vec<Self> {
        let mut some = Vec::new();
        for (fault, _, often) in TABLE {
            if random.chance(often) {
                some.push(fault);
            }
        }
        some
    }

    /// One of those allowed, by their weights.
    #[must_use]
    pub fn draw(allowed: &[Self], random: &mut Random) -> Option<Self> {
        let table = || TABLE.iter().filter(|(fault, _, _)| allowed.contains(fault));
        let mut left = random.below(table().map(|(_, weight, _)| weight).sum());
        for (fault, weight, _) in table() {
            match left.checked_sub(*weight) {
                Some(less) => left = less,
                None => return Some(*fault),
            }
        }
        None
    }
}
