use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// No server is believed that it is away for longer: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How long a server asks to be left alone: a number of seconds, or a date (RFC 9110, section 10.2.3). `None` where it
/// says nothing, or nothing that can be read.
///
/// A date counts from the answer's own `Date` where there is one, so that two clocks that differ do no harm, and from
/// `now` otherwise.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(header::RETRY_AFTER)?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time all the same.
        return Some(asked.parse().map_or(LONGEST, Duration::from_secs).min(LONGEST));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let from = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let wait = until.duration_since(from.unwrap_or(now));
    // A time that is over asks for nothing more.
    Some(wait.unwrap_or_default().min(LONGEST))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(asked: &str, date: Option<&str>, expected: Option<u64>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_str(asked).unwrap());
        if let Some(date) = date {
            headers.insert(header::DATE, HeaderValue::from_str(date).unwrap());
        }
        // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110, section 5.6.7.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let found = retry_after(&headers, now);
        assert_eq!(found, expected.map(Duration::from_secs), "{asked} {date:?}");
    }

    #[test]
    fn seconds_and_dates_of_all_three_forms_are_read() {
        check("120", None, Some(120));
        check(" 0 ", None, Some(0));
        check("99999999999999999999999", None, Some(LONGEST.as_secs()));
        check("Sun, 06 Nov 1994 08:50:37 GMT", None, Some(60));
        check("Sunday, 06-Nov-94 08:50:37 GMT", None, Some(60));
        check("Sun Nov  6 08:50:37 1994", None, Some(60));
        check("Fri, 31 Dec 9999 23:59:59 GMT", None, Some(LONGEST.as_secs()));
    }

    #[test]
    fn a_date_counts_from_the_servers_own_clock() {
        let date = Some("Wed, 01 Jan 2025 00:00:00 GMT");
        check("Wed, 01 Jan 2025 00:00:09 GMT", date, Some(9));
        check("Tue, 31 Dec 2024 23:59:59 GMT", date, Some(0));
        check("Sun, 06 Nov 1994 08:50:37 GMT", Some("no date"), Some(60));
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for asked in [
            "",
            "soon",
            "-1",
            "1.5",
            "0x10",
            "12 s",
            "Sun, 99 Nov 1994 08:50:37 GMT",
        ] {
            check(asked, None, None);
        }
        assert_eq!(retry_after(&HeaderMap::new(), SystemTime::UNIX_EPOCH), None);
    }
}
