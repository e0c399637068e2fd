//! Deadlines as callers write them: numbers of seconds or milliseconds.

use std::time::Duration;

use atoll_model::limits::MAX_TIMEOUT_SECONDS;

use crate::error::{ApiError, ApiResult};

/// `timeout_seconds`, or another field of that unit.
pub(crate) fn from_seconds(field: &str, value: Option<f64>) -> ApiResult<Option<Duration>> {
    value
        .map(|seconds| positive(field, seconds, "seconds", 1.0))
        .transpose()
}

/// `timeout_ms`.
pub(crate) fn from_millis(field: &str, value: Option<f64>) -> ApiResult<Option<Duration>> {
    value
        .map(|millis| positive(field, millis, "milliseconds", 1000.0))
        .transpose()
}

fn positive(field: &str, value: f64, unit: &str, per_second: f64) -> ApiResult<Duration> {
    let longest = MAX_TIMEOUT_SECONDS as f64 * per_second;
    if value > 0.0 && value <= longest {
        // A deadline is counted in milliseconds further on; none becomes zero on the way.
        return Ok(Duration::from_secs_f64(value / per_second).max(Duration::from_millis(1)));
    }
    Err(ApiError::field(
        field,
        format!("{field} must be more than 0 and at most {longest} {unit}, not {value}"),
    ))
}

/// A deadline in words, as in `2s`, `0.5s`.
pub(crate) fn words(deadline: Duration) -> String {
    format!("{}s", deadline.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_honoured_and_nonsense_is_refused_by_name() {
        assert_eq!(from_seconds("t", Some(0.5)).unwrap(), Some(Duration::from_millis(500)));
        assert_eq!(from_seconds("t", Some(1e-9)).unwrap(), Some(Duration::from_millis(1)));
        assert_eq!(from_millis("t", Some(60_000.0)).unwrap(), Some(Duration::from_secs(60)));
        assert_eq!(from_seconds("t", None).unwrap(), None);
        for wrong in [0.0, -1.0, 1e18, f64::NAN, f64::INFINITY, 86_401.0] {
            let error = from_seconds("timeout_seconds", Some(wrong)).unwrap_err().body("r");
            assert_eq!(error.field.as_deref(), Some("timeout_seconds"), "{wrong}");
        }
    }

    #[test]
    fn a_deadline_reads_as_it_was_written() {
        assert_eq!(words(Duration::from_secs(60)), "60s");
        assert_eq!(words(Duration::from_millis(500)), "0.5s");
    }
}
