//! What the server counted, in Prometheus' text format: requests, counted here, and the product's own numbers, asked for
//! at each scrape.

use std::{fmt, sync::Arc, time::Duration};

use atoll_control::{BUCKETS_MS, Control, HistogramView};
use http::{Method, StatusCode};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The content type of the text that [`Meter::text`] writes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: String,
    route: String,
}

type Seconds = Family<Route, Histogram, fn() -> Histogram>;

/// Counts requests. A clone counts into the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    registry: Arc<Registry>,
    answered: Family<Answered, Counter>,
    seconds: Seconds,
}

impl Meter {
    pub(crate) fn new(control: Control) -> Self {
        let mut registry = Registry::with_prefix("atoll");
        let answered = Family::<Answered, Counter>::default();
        // 1 ms to 65 s.
        let seconds = Seconds::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 17)));
        registry.register("http_requests", "Requests answered", answered.clone());
        registry.register("http_request_seconds", "Time to an answer's head", seconds.clone());
        registry.register_collector(Box::new(Product(control)));
        Self {
            registry: Arc::new(registry),
            answered,
            seconds,
        }
    }

    /// `route` is the pattern, so that the number of series is bounded.
    pub(crate) fn answered(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let method = match *method {
            Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD => {
                method.to_string()
            }
            _ => "other".to_owned(),
        };
        let label = Route {
            method: method.clone(),
            route: route.to_owned(),
        };
        self.seconds.get_or_create(&label).observe(took.as_secs_f64());
        let label = Answered {
            method,
            route: route.to_owned(),
            status: status.as_u16(),
        };
        self.answered.get_or_create(&label).inc();
    }

    /// The numbers so far.
    ///
    /// # Errors
    /// Never in practice: the buffer is a string.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The product's numbers.
#[derive(Debug)]
struct Product(Control);

impl Collector for Product {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let view = self.0.metrics();
        for (name, help, histogram) in [
            (
                "create_seconds",
                "Creates that succeeded, from call to answer",
                &view.creates,
            ),
            (
                "boot_seconds",
                "From the start of a restore to the agent's acknowledgement",
                &view.boots,
            ),
            ("cell_seconds", "Cells that ended", &view.cells),
            ("exec_seconds", "Commands that ended", &view.execs),
        ] {
            encode_histogram(&mut encoder, name, help, histogram)?;
        }
        for (name, help, value) in [
            ("create_failures", "Creates that began and failed", view.create_failures),
            (
                "creates_refused",
                "Creates refused for want of room",
                view.creates_refused,
            ),
            (
                "machine_deaths",
                "Machines that ended by themselves",
                view.machine_deaths,
            ),
            (
                "agent_losses",
                "Calls on which the agent fell silent",
                view.agent_losses,
            ),
            ("expirations", "Sandboxes that their idle limit ended", view.expirations),
            ("deletes", "Sandboxes that callers deleted", view.deletes),
        ] {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, value) in [
            ("live_sandboxes", "Sandboxes that live now", view.live_sandboxes),
            ("open_calls", "Calls to sandboxes that are open now", view.open_calls),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

fn encode_histogram(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, view: &HistogramView) -> fmt::Result {
    // The encoder sums up the buckets itself.
    let bounds = BUCKETS_MS
        .iter()
        .map(|millis| *millis as f64 / 1000.0)
        .chain([f64::INFINITY]);
    let mut before = 0;
    let buckets: Vec<(f64, u64)> = bounds
        .zip(view.cumulative)
        .map(|(bound, cumulative)| {
            let count = cumulative - before;
            before = cumulative;
            (bound, count)
        })
        .collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(view.sum_micros as f64 / 1e6, before, &buckets, None)
}
