//! The records of a batch, decompressed.

use std::io;
use std::path::Path;

use engine::compression::decompress;
use wire::batch::Batch;
use wire::record::Records;

use super::item::{Item, RecordItem};
use super::report::{Fault, Report};

/// The most that the records of one batch may have decompressed.
const RECORDS_BYTES_MAX: usize = 1 << 30;

/// Shows the records and checks that they are what the header says.
pub(super) fn dump(
    file: &Path,
    position: u64,
    batch: &Batch<'_>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let compression = batch.attributes().compression();
    let fault = |what: String| Fault::new(file, what).at(position).offset(batch.base_offset().0);
    let payload = match decompress(compression, batch.payload(), RECORDS_BYTES_MAX) {
        Ok(payload) => payload,
        Err(error) => return report.fault(fault(error.to_string())),
    };
    let mut last_delta = -1;
    for record in Records::new(&payload, batch.record_count()) {
        let record = match record {
            Ok(record) => record,
            Err(error) => return report.fault(fault(format!("its records: {error}"))),
        };
        let delta = record.offset_delta;
        if delta <= last_delta || delta > batch.last_offset_delta() {
            let most = batch.last_offset_delta();
            let what =
                format!("a record at +{delta} stands after +{last_delta}, the last is +{most}");
            report.fault(fault(what))?;
        }
        last_delta = delta;
        if !report.is_quiet() {
            report.item(file, &Item::Record(RecordItem::of(batch, &record)))?;
        }
    }
    Ok(())
}
