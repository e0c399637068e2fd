//! Counters of the whole host, cheap to bump and to read.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the buckets of every latency histogram, in milliseconds; one more bucket takes the rest.
pub const BUCKETS_MS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 15_000, 60_000];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_micros: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramView {
    /// How many observations were at most [`BUCKETS_MS`]`[i]`, cumulative; the last is all of them.
    pub cumulative: [u64; BUCKETS_MS.len() + 1],
    /// Their sum in microseconds.
    pub sum_micros: u64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let millis = took.as_millis();
        let index = BUCKETS_MS.partition_point(|bound| u128::from(*bound) < millis);
        self.buckets[index].fetch_add(1, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    fn view(&self) -> HistogramView {
        let mut cumulative = [0; BUCKETS_MS.len() + 1];
        let mut all = 0;
        for (slot, bucket) in cumulative.iter_mut().zip(&self.buckets) {
            all += bucket.load(Relaxed);
            *slot = all;
        }
        HistogramView {
            cumulative,
            sum_micros: self.sum_micros.load(Relaxed),
        }
    }
}

/// The live counters; bumped by the use cases.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) creates: Histogram,
    pub(crate) boots: Histogram,
    pub(crate) cells: Histogram,
    pub(crate) execs: Histogram,
    pub(crate) create_failures: AtomicU64,
    pub(crate) creates_refused: AtomicU64,
    pub(crate) machine_deaths: AtomicU64,
    pub(crate) agent_losses: AtomicU64,
    pub(crate) expirations: AtomicU64,
    pub(crate) deletes: AtomicU64,
}

/// Adds one.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// All counters at one moment; counted since the server started, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsView {
    /// Creates that succeeded, from call to answer.
    pub creates: HistogramView,
    /// From the start of a restore to the agent's acknowledgement.
    pub boots: HistogramView,
    /// Cells that ended, however they ended.
    pub cells: HistogramView,
    /// Commands that ended, however they ended.
    pub execs: HistogramView,
    /// Creates that began and failed.
    pub create_failures: u64,
    /// Creates refused for want of room.
    pub creates_refused: u64,
    /// Machines that ended by themselves.
    pub machine_deaths: u64,
    /// Calls on which the agent fell silent.
    pub agent_losses: u64,
    /// Sandboxes that their idle limit ended.
    pub expirations: u64,
    /// Sandboxes that callers deleted.
    pub deletes: u64,
    /// Sandboxes that live now.
    pub live_sandboxes: u64,
    /// Guest calls open now.
    pub open_calls: u64,
}

impl Metrics {
    pub(crate) fn view(&self, live_sandboxes: u64, open_calls: u64) -> MetricsView {
        MetricsView {
            creates: self.creates.view(),
            boots: self.boots.view(),
            cells: self.cells.view(),
            execs: self.execs.view(),
            create_failures: self.create_failures.load(Relaxed),
            creates_refused: self.creates_refused.load(Relaxed),
            machine_deaths: self.machine_deaths.load(Relaxed),
            agent_losses: self.agent_losses.load(Relaxed),
            expirations: self.expirations.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            live_sandboxes,
            open_calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_counts_in_its_bucket_and_all_above() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_millis(5));
        histogram.observe(Duration::from_millis(6));
        histogram.observe(Duration::from_secs(3600));
        let view = histogram.view();
        assert_eq!(view.cumulative[1], 0);
        assert_eq!(view.cumulative[2], 1);
        assert_eq!(view.cumulative[3], 2);
        assert_eq!(view.cumulative[BUCKETS_MS.len()], 3);
    }
}
