//! What the API itself counts, in Prometheus' text format. Gauges of the product are asked for at each scrape.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
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
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("atoll");
        let answered = Family::<Answered, Counter>::default();
        // 1 ms to 65 s.
        let seconds = Seconds::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 17)));
        registry.register("http_requests", "Requests answered", answered.clone());
        registry.register("http_request_seconds", "Time to an answer's head", seconds.clone());
        Self {
            registry: Arc::new(registry),
            answered,
            seconds,
        }
    }

    /// `route` is the pattern, so that the number of series is bounded.
    pub(crate) fn answered(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let method = match *method {
            Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD => method.to_string(),
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
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
