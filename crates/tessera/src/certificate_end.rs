//! The end of the node's certificate, in words.

use crate::doors::Door;
use std::time::{Duration, SystemTime};

/// For how long before its end it is told.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// What is to be said of a certificate that ends then, if anything.
pub fn certificate_door(ends: SystemTime, now: SystemTime) -> Option<Door> {
    let left = ends.duration_since(now);
    if left.as_ref().is_ok_and(|left| *left > SOON) {
        return None;
    }
    let date = httpdate::fmt_http_date(ends);
    let words = match left {
        Ok(_) => format!(
            "the certificate for TLS ends on {date}, and clients that look at it come in no more then: put a new one in its place \
             (tls.certificate), and start the node again before"
        ),
        Err(_) => format!(
            "the certificate for TLS expired on {date}, and clients that look at it do not come in: put a new one in its place \
             (tls.certificate), and start the node again"
        ),
    };
    Some(Door { words, is_risky: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_two_weeks_before_and_from_then_on() {
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let said = |now| certificate_door(ends, now).map(|door| door.words);
        let day = Duration::from_secs(86_400);
        assert_eq!(said(ends - 15 * day), None);
        assert!(said(ends - 13 * day).unwrap().contains("ends on Fri, 15 Jan 2027 08:00:00 GMT"));
        assert!(said(ends + day).unwrap().contains("expired on Fri, 15 Jan 2027 08:00:00 GMT"));
    }
}
