//! Carries out one fault.

use std::path::PathBuf;

use engine::io::IoErrorKind;
use tools::synthetic::{Damage, Trouble as PartitionTrouble};
use wire::api::ErrorCode;
use wire::ids::Offset;

use super::disk::{Trouble, TroubleKind};
use super::faults::Fault;
use super::process::DATA;
use super::random::Random;
use super::world::{Verdict, World};

const SECOND: u64 = 1_000_000;

/// Carries out a fault of this kind.
///
/// # Errors
/// What the oracle found, who looks before something is removed at the source.
pub fn strike(world: &mut World, random: &mut Random, fault: Fault) -> Verdict {
    world.space.borrow_mut().note(format_args!("fault {fault:?}"));
    match fault {
        Fault::Kill | Fault::PowerCut => return kill(world, random, fault == Fault::PowerCut),
        Fault::Restart => {
            if world.process.is_some() {
                world.stop()?;
            }
        }
        Fault::DiskFull
        | Fault::WriteError
        | Fault::SyncError
        | Fault::SyncDrops
        | Fault::SlowDisk => {
            strike_disk(world, random, fault);
        }
        Fault::Cut | Fault::Stall | Fault::Refuse => strike_network(world, random, fault),
        Fault::BrokerDown | Fault::Evict => {
            let ids: Vec<_> = world.source.cluster.broker_ids().collect();
            let broker = *random.pick(&ids);
            if fault == Fault::Evict {
                world.source.cluster.evict_sessions(broker);
            } else {
                let is_up = world.source.cluster.is_up(broker);
                world.source.set_up(broker, !is_up);
            }
        }
        Fault::Flip => world.source.flips += random.between(1, 3) as u32,
        Fault::Damage => damage(world, random),
        Fault::Trouble => trouble(world, random),
        _ => return strike_source(world, random, fault),
    }
    Ok(())
}

fn strike_disk(world: &mut World, random: &mut Random, fault: Fault) {
    if fault == Fault::SlowDisk {
        world.space.borrow_mut().disk_slowness = *random.pick(&[50, 1_000, 20_000, 100_000]);
        return;
    }
    let (kind, left) = match fault {
        Fault::DiskFull => (TroubleKind::Write(IoErrorKind::DiskFull), random.between(1, 50)),
        Fault::SyncError => (TroubleKind::Sync, 1),
        Fault::SyncDrops => (TroubleKind::SyncDrops, 1),
        _ => (TroubleKind::Write(IoErrorKind::Disk), 1),
    };
    let trouble = Trouble { below: any_folder(world, random), kind, left: left as u32 };
    world.space.borrow_mut().drive.troubles.push(trouble);
}

fn strike_network(world: &mut World, random: &mut Random, fault: Fault) {
    let mut space = world.space.borrow_mut();
    if fault == Fault::Refuse {
        space.network.refusals = *random.pick(&[0, 300, 900]);
        space.network.silences = *random.pick(&[0, 0, 100]);
        return;
    }
    let links: Vec<_> = space.network.links.keys().copied().collect();
    for link in links {
        if !random.chance(300) {
            continue;
        }
        match fault {
            Fault::Cut => space.cut(link),
            _ => space.stall(link, random.between(10_000, 40 * SECOND)),
        }
    }
}

/// What producers, leaders and operators do at the source. The oracle looks first: from then on it
/// could not tell any more what was there.
fn strike_source(world: &mut World, random: &mut Random, fault: Fault) -> Verdict {
    world.look()?;
    let now_ms = world.space.borrow().wall_ms();
    let World { source, workload, .. } = world;
    match fault {
        Fault::MoveLeader => workload.move_leader(source, random, now_ms),
        Fault::DeleteRecords => workload.delete_records(source, random, now_ms),
        // Neither reads what is damaged.
        Fault::Compact | Fault::UncleanElection if source.damaged => {}
        Fault::Compact => workload.compact(source, random),
        Fault::UncleanElection => workload.elect_unclean(source, random),
        Fault::NewTopic if random.chance(500) => workload.more_partitions(source, random),
        Fault::NewTopic => workload.new_topic(source, random),
        Fault::ReplaceTopic => {
            let again = random.chance(700);
            workload.replace_topic(source, random, again);
        }
        _ => {}
    }
    Ok(())
}

fn kill(world: &mut World, random: &mut Random, power: bool) -> Verdict {
    if world.process.is_none() {
        return Ok(());
    }
    if random.chance(500) {
        return world.crash(power);
    }
    // In the middle of a call to the disk.
    world.fuse_is_power = power;
    world.space.borrow_mut().drive.fuse = Some(random.below(40));
    Ok(())
}

fn any_folder(world: &World, random: &mut Random) -> PathBuf {
    let names: Vec<_> = world.oracle.held.keys().collect();
    if names.is_empty() || random.chance(300) {
        return PathBuf::from(DATA);
    }
    PathBuf::from(DATA).join(random.pick(&names))
}

/// All partitions that the source has.
pub fn partitions(world: &World) -> Vec<(String, i32)> {
    let topics = world.source.cluster.topics();
    let all = topics.flat_map(|(name, topic)| {
        (0..).take(topic.partitions().len()).map(move |index| (name.to_owned(), index))
    });
    all.collect()
}

fn damage(world: &mut World, random: &mut Random) {
    let all = partitions(world);
    if all.is_empty() {
        return;
    }
    let (topic, index) = random.pick(&all).clone();
    let partition = world.source.cluster.partition(&topic, index);
    let (start, end) = (partition.stored().start().0, partition.stored().end().0);
    let last = partition.stored().batches(Offset(start), Offset(end)).last();
    let Some(last) = last.map(|bytes| i64::from_be_bytes(bytes[..8].try_into().expect("8"))) else {
        return;
    };
    partition.damage(Offset(last), Damage::Crc);
    world.source.damaged = true;
}

fn trouble(world: &mut World, random: &mut Random) {
    let all = partitions(world);
    if all.is_empty() {
        return;
    }
    let (topic, index) = random.pick(&all).clone();
    let errors = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ];
    let trouble = PartitionTrouble {
        error: random.chance(300).then(|| *random.pick(&errors)),
        delay_ms: *random.pick(&[0, 0, 300]),
        bytes_max: *random.pick(&[None, None, Some(200)]),
    };
    world.source.cluster.partition(&topic, index).trouble(trouble);
    world.source.resume_all();
}
