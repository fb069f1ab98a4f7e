//! The bound on what a document may cost, for the fuzz targets alone: ordinary tests are never timed.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the laws may take for each 100 KiB that were begun. They read a document about a dozen times, in a build that
/// counts its own steps; 50 ms for one reading in a plain build are what the benchmark holds it to.
const MOST: Duration = Duration::from_secs(2);

/// Runs the laws over bytes and holds the processor time of this thread to the bound.
pub(crate) fn timed(data: &[u8], laws: impl FnOnce(&[u8])) {
    let before = now();
    laws(data);
    let took = now().saturating_sub(before);
    let begun = u32::try_from(data.len() / (100 * 1024) + 1).unwrap_or(u32::MAX);
    assert!(took <= MOST * begun, "{} bytes took {took:?}", data.len());
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
