//! `strftime` for chat templates that tell the model the date, in UTC and in English.

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn now(format: &str) -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    at(seconds, format)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Formats a time given in seconds since 1970; a directive that is not known stays as it is.
fn at(seconds: u64, format: &str) -> String {
    let days = seconds / 86_400;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (year, month, day) = civil(days);
    let month_name = MONTHS[month as usize - 1];
    let weekday = WEEKDAYS[(days as usize + 4) % 7];
    let hour12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out += &year.to_string(),
            Some('y') => out += &format!("{:02}", year % 100),
            Some('m') => out += &format!("{month:02}"),
            Some('d') => out += &format!("{day:02}"),
            Some('e') => out += &format!("{day:2}"),
            Some('B') => out += month_name,
            Some('b' | 'h') => out += &month_name[..3],
            Some('A') => out += weekday,
            Some('a') => out += &weekday[..3],
            Some('H') => out += &format!("{hour:02}"),
            Some('I') => out += &format!("{hour12:02}"),
            Some('M') => out += &format!("{minute:02}"),
            Some('S') => out += &format!("{second:02}"),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('j') => out += &format!("{:03}", days - days_before(year, 1, 1) + 1),
            Some('F') => out += &format!("{year}-{month:02}-{day:02}"),
            Some('T') => out += &format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// The date that many days after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Never too late a year, and at most a few too early.
    let mut year = 1970 + days / 366;
    while days_before(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|&month| days_before(year, month, 1) <= days).unwrap_or(1);
    (year, month, days - days_before(year, month, 1) + 1)
}

/// Days from 1970-01-01 to a date.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_days = |through: u64| through / 4 - through / 100 + through / 400;
    let is_leap = leap_days(year) > leap_days(year - 1);
    let leap_day = u64::from(is_leap && month > 2);
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
        + BEFORE_MONTH[month as usize - 1]
        + leap_day
        + day
        - 1
}

#[cfg(test)]
mod tests {
    use super::at;

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
            assert_eq!(at(seconds, "%F %a %A %b %d %j %T %I %p %y"), expected);
        }
        assert_eq!(at(0, "%B %e, %Y, %H:%M:%S; 100%% %Q %"), "January  1, 1970, 00:00:00; 100% %Q %");
    }
}
