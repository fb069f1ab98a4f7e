//! Sizes and times for people.

use std::time::Duration;

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// A size, to three digits or so.
pub(super) fn bytes(size: u64) -> String {
    let mut unit = 0;
    let mut scale = 1_u64;
    while size / scale >= 1024 && unit + 1 < UNITS.len() {
        scale *= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    let (whole, tenth) = (size / scale, size % scale * 10 / scale);
    if unit > 0 && whole < 100 {
        format!("{whole}.{tenth} {name}")
    } else {
        format!("{whole} {name}")
    }
}

/// How much is done, of how much.
pub(super) fn of_bytes(done: u64, total: u64) -> String {
    format!("{} of {}", bytes(done), bytes(total))
}

/// How long ago, in the largest unit that fits.
pub(super) fn age(now_ms: i64, at_ms: i64) -> String {
    let seconds = now_ms.saturating_sub(at_ms) / 1_000;
    match seconds {
        ..0 => "ahead".to_owned(),
        0..120 => format!("{seconds}s ago"),
        120..7_200 => format!("{}m ago", seconds / 60),
        7_200..172_800 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// A number and one of `s`, `m`, `h`, `d`; a plain 0 too.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let seconds = match (digits, unit) {
        (_, "s") | ("0", "") => 1,
        (_, "m") => 60,
        (_, "h") => 3_600,
        (_, "d") => 86_400,
        _ => 0,
    };
    let parsed = digits.parse::<u64>().ok().filter(|_| seconds > 0);
    parsed
        .and_then(|count| count.checked_mul(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "give a number and `s`, `m`, `h` or `d`, such as 12h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |size, expected: &str| assert_eq!(bytes(size), expected);
        check(0, "0 B");
        check(1_023, "1023 B");
        check(1_024, "1.0 KiB");
        check(1_587, "1.5 KiB");
        check(150 << 20, "150 MiB");
        check(u64::MAX, "16777215 TiB");
    }

    #[test]
    fn ages() {
        let check = |seconds: i64, expected: &str| assert_eq!(age(seconds * 1_000, 0), expected);
        check(-1, "ahead");
        check(0, "0s ago");
        check(120, "2m ago");
        check(7_200, "2h ago");
        check(3 * 86_400, "3d ago");
    }

    #[test]
    fn durations() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(
                parse_duration(text).ok().map(|time| time.as_secs()),
                seconds,
                "{text}"
            );
        };
        check("0", Some(0));
        check("90s", Some(90));
        check("30m", Some(1_800));
        check("12h", Some(43_200));
        check("7d", Some(604_800));
        for wrong in [
            "",
            "7",
            "d",
            "-1d",
            "1.5h",
            "7w",
            "7dd",
            "99999999999999999999d",
            "9999999999999999d",
        ] {
            check(wrong, None);
        }
    }
}
