//! `strftime` for chat templates that tell the model the date, in UTC and in English.

use jiff::{Timestamp, fmt::strtime, tz::Offset};

pub(super) fn now(format: &str) -> String {
    at(Timestamp::now(), format)
}

/// A directive that is not known stays as it is, and so does one that asks for a time zone.
fn at(time: Timestamp, format: &str) -> String {
    let time = strtime::BrokenDownTime::from(Offset::UTC.to_datetime(time));
    let config = strtime::Config::new().lenient(true);
    time.to_string_with_config(&config, format).unwrap_or_else(|_| format.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts from Python's `datetime.fromtimestamp(s, timezone.utc).strftime`.
    #[test]
    fn dates_are_pythons() {
        for (seconds, expected) in [
            (0, "1970-01-01 Thu Thursday Jan 01 001 00:00:00 12 AM 70"),
            (951_782_399, "2000-02-28 Mon Monday Feb 28 059 23:59:59 11 PM 00"),
            (951_782_400, "2000-02-29 Tue Tuesday Feb 29 060 00:00:00 12 AM 00"),
            (1_735_689_599, "2024-12-31 Tue Tuesday Dec 31 366 23:59:59 11 PM 24"),
            (4_107_542_400, "2100-03-01 Mon Monday Mar 01 060 00:00:00 12 AM 00"),
        ] {
            assert_eq!(
                at(Timestamp::from_second(seconds).unwrap(), "%F %a %A %b %d %j %T %I %p %y"),
                expected
            );
        }
        assert_eq!(at(Timestamp::UNIX_EPOCH, "%-d %D %Z %s"), "1 01/01/70 %Z %s");
        assert_eq!(
            at(Timestamp::UNIX_EPOCH, "%B %e, %Y, %H:%M:%S; 100%% %Q %"),
            "January  1, 1970, 00:00:00; 100% %Q %"
        );
    }
}
