//! What must be true of the answer to a consumer's fetch.

use wire::batch::Batches;
use wire::fetch::{FetchedPartition, IsolationLevel};
use wire::ids::TopicId;
use wire::record::ControlKind;

use super::truth::{Fate, PartitionTruth};

/// A fetch of one partition.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub id: TopicId,
    pub index: i32,
    pub offset: i64,
    pub isolation: IsolationLevel,
}

/// Holds an answer against what the source had. Gives how many batches there were and where the
/// consumer reads on.
///
/// # Errors
/// What is wrong.
pub fn check(
    asked: &Fetch,
    told: &FetchedPartition<'_>,
    records: &[u8],
    truth: &PartitionTruth,
) -> Result<(u64, i64), String> {
    let readable = match asked.isolation {
        IsolationLevel::READ_COMMITTED => told.last_stable_offset.0,
        _ => told.high_watermark.0,
    };
    if told.last_stable_offset > told.high_watermark {
        return Err("the last stable offset is above the high watermark".into());
    }
    let (mut next, mut count) = (asked.offset, 0);
    for batch in Batches::new(records) {
        let (_, batch) = batch.map_err(|error| error.to_string())?;
        let base = batch.base_offset().0;
        let end = truth.check_batch(base, batch.as_bytes())?;
        if base > next
            && let Some((missing, _)) = truth.first_in(next, base, &[Fate::Present])
        {
            return Err(format!("offsets {next} to {base} are left out, among them {missing}"));
        }
        if count > 0 && base < next || end <= asked.offset {
            return Err(format!("a batch of {base} to {end} where {next} was next"));
        }
        if end > readable {
            return Err(format!("a batch of {base} to {end}, but {readable} is the end"));
        }
        next = end;
        count += 1;
    }
    check_transactions(asked, told, (next, count), truth)?;
    Ok((count, next))
}

/// Open transactions bound the last stable offset; aborted ones that were read are named.
fn check_transactions(
    asked: &Fetch,
    told: &FetchedPartition<'_>,
    (next, count): (i64, u64),
    truth: &PartitionTruth,
) -> Result<(), String> {
    let (stable, start) = (told.last_stable_offset.0, told.log_start_offset.0.max(0));
    if truth.was_cut {
        // A mirror that holds what an election lost has other transactions, and has stopped.
        return Ok(());
    }
    if asked.isolation != IsolationLevel::READ_COMMITTED || told.log_start_offset.0 < 0 {
        return Ok(());
    }
    let is_whole = |first: i64| {
        first >= start && truth.entries.get(&first).is_some_and(|at| at.fate == Fate::Present)
    };
    for each in truth.transactions.iter().filter(|each| is_whole(each.first)) {
        let marker = each.end.map_or(i64::MAX, |(_, marker)| marker);
        if each.first < stable && marker >= told.high_watermark.0 && each.end.is_none() {
            return Err(format!("stable up to {stable}, but {each:?} is open"));
        }
        let was_aborted = matches!(each.end, Some((ControlKind::Abort, _)));
        let was_read = count > 0 && each.first < next && marker >= asked.offset && marker < stable;
        let is_it = |named: &wire::fetch::AbortedTransaction| {
            named.producer_id.0 == each.producer && named.first_offset.0 == each.first
        };
        if was_aborted && was_read && !told.aborted_transactions.clone().any(|named| is_it(&named))
        {
            let named: Vec<_> = told.aborted_transactions.collect();
            return Err(format!(
                "{each:?} was read up to {next} and is not named as aborted, but {named:?}; \
                 log start {start}, stable {stable}, high watermark {}",
                told.high_watermark
            ));
        }
    }
    for named in told.aborted_transactions {
        let fits = |each: &&super::truth::Transaction| {
            each.producer == named.producer_id.0
                && matches!(each.end, Some((ControlKind::Abort, _)))
        };
        if !truth.transactions.iter().any(|each| fits(&each)) {
            return Err(format!("{named:?} is named as aborted and was not"));
        }
    }
    Ok(())
}
