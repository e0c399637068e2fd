//! Numbers on the command line, refused here with their range instead of by a server that has to be asked first.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use atoll_model::limits::MAX_TIMEOUT_SECONDS;

/// The longest deadline, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a day in seconds is exact in a double")]
const LONGEST: f64 = MAX_TIMEOUT_SECONDS as f64;

/// A parser of whole numbers of a range, for clap.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let value = text.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("it is a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Seconds of a deadline, fractions allowed.
pub(crate) fn deadline(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= LONGEST);
    seconds.ok_or_else(|| format!("it is a number of seconds, more than 0 and at most {LONGEST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_range_is_refused_with_the_range() {
        let parse = whole(0..=60_u64);
        assert_eq!((parse("0"), parse("60")), (Ok(0), Ok(60)));
        for wrong in ["-5", "61", "1.5", "", "99999999999999999999999"] {
            let refused = parse(wrong).unwrap_err();
            assert!(refused.contains("from 0 to 60"), "{wrong:?}: {refused}");
        }
    }

    #[test]
    fn a_deadline_is_positive_and_at_most_a_day() {
        assert_eq!(deadline("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "86401", "1e18", "NaN", "inf", "soon", ""] {
            assert!(deadline(wrong).is_err(), "{wrong:?}");
        }
    }
}
