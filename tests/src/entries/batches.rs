//! The walk over batches, admission, and the records in them.

use engine::compression::decompress;
use engine::mirror::admit::{Expectation, admit};
use wire::batch::{Batches, BatchesMut, Compression, HEADER_SIZE, crc32c};
use wire::ids::{LeaderEpoch, Offset};
use wire::record::{ControlRecord, Records};

use super::choices::Choices;

/// Where magic, CRC and what is under it stand in a batch.
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const FIELDS_AT: usize = 21;

const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Walks and admits the rest of the bytes; the first one says whether their CRCs are set right
/// before, which no fuzzer guesses.
pub fn batches(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.u8();
    let expectation = Expectation {
        next: Offset(choices.offset()),
        log_is_empty: flags & 2 != 0,
        last_epoch: LeaderEpoch(if flags & 4 != 0 { choices.i32() } else { -1 }),
        source_epoch: LeaderEpoch(if flags & 8 != 0 { choices.i32() } else { -1 }),
    };
    let mut bytes = choices.rest().to_vec();
    if flags & 1 != 0 {
        mend(&mut bytes);
    }
    walk(&bytes);
    if expectation.next.0 >= 0 {
        check_admission(&bytes, &expectation);
    }
    rewrite(&mut bytes);
}

/// The bytes with magic and CRC of every batch set right, as far as lengths lead.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    mend(&mut bytes);
    bytes
}

fn mend(bytes: &mut [u8]) {
    let mut position = 0;
    while let Some(head) = bytes[position..].first_chunk::<12>() {
        let length = i32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let Ok(length) = usize::try_from(length) else { return };
        let Some(batch) = bytes[position..].get_mut(..12 + length) else { return };
        if batch.len() < HEADER_SIZE {
            return;
        }
        batch[MAGIC_AT] = 2;
        let crc = crc32c(&batch[FIELDS_AT..]).to_be_bytes();
        batch[CRC_AT..FIELDS_AT].copy_from_slice(&crc);
        position += batch.len();
    }
}

fn walk(bytes: &[u8]) {
    let mut batches = Batches::new(bytes);
    let mut end = 0;
    for walked in batches.by_ref() {
        let Ok((position, batch)) = walked else { break };
        assert_eq!(position, end, "batches follow one another");
        end = position + batch.size();
        let _ = batch.verify_crc();
        let _ = ControlRecord::of(&batch).map(|record| record.end_txn_marker());
        let compression = batch.attributes().compression();
        let payload = match decompress(compression, batch.payload(), DECOMPRESSED_BYTES_MAX) {
            Ok(payload) => payload,
            Err(_) => continue,
        };
        assert!(compression == Compression::None || payload.len() <= DECOMPRESSED_BYTES_MAX);
        let mut count = 0;
        for record in Records::new(&payload, batch.record_count()) {
            let Ok(record) = record else { break };
            count += 1;
            assert!(record.headers.count() <= payload.len());
        }
        assert!(count <= payload.len(), "more records than bytes");
    }
    assert_eq!(batches.rest().position, end);
    assert_eq!(batches.rest().left, bytes.len() - end);
}

fn check_admission(bytes: &[u8], expectation: &Expectation) {
    let mut admitted = Vec::new();
    let admission = admit(bytes, expectation, &mut admitted);
    let (skipped, length) = (admission.skipped, admission.length);
    assert!(skipped + length <= bytes.len());
    let mut position = 0;
    let mut next = expectation.next;
    let mut epoch = expectation.last_epoch;
    for (index, batch) in admitted.iter().enumerate() {
        let reaches_in = index == 0 && expectation.log_is_empty;
        assert_eq!(batch.position, position, "what was admitted is one run of bytes");
        assert!(batch.base_offset >= next || reaches_in, "offsets go on");
        assert!(batch.last_offset >= batch.base_offset && batch.last_offset >= next);
        let is_unknown = batch.leader_epoch == LeaderEpoch::UNKNOWN;
        assert!(batch.leader_epoch >= epoch || is_unknown, "epochs do not go back");
        position += batch.size;
        next = batch.last_offset.next();
        epoch = epoch.max(batch.leader_epoch);
    }
    assert_eq!(position, length);
    assert_eq!(admission.next, next);
    let mut again = Vec::new();
    let second = admit(&bytes[skipped..skipped + length], expectation, &mut again);
    assert_eq!(second.refusal, None, "what was admitted is admitted again");
    assert_eq!(again, admitted);
}

/// A header that was rewritten keeps its CRC right where it was right before.
fn rewrite(bytes: &mut [u8]) {
    let mut batches = BatchesMut::new(bytes);
    while let Some(Ok((_, mut batch))) = batches.next() {
        let was_right = batch.as_batch().verify_crc().is_ok();
        let attributes = batch.as_batch().attributes();
        batch.set_base_offset(Offset(7));
        batch.set_partition_leader_epoch(LeaderEpoch(7));
        let mut edit = batch.edit();
        edit.set_attributes(attributes.with_control(!attributes.is_control()));
        edit.set_last_offset_delta(3);
        edit.finish();
        assert_eq!(batch.as_batch().verify_crc().is_ok(), was_right);
    }
}
