//! What a table admits: how many requests and bytes a second, and whether any at all. In Apache Pegasus' words, whose
//! operators know them.

use crate::RequestError;
use crate::text::json_is_text;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const NONE: &str = "none";

/// The settings of a table that say what it admits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Admission {
    /// Requests a second, of all clients and on all nodes together.
    pub write_rate: Rate,
    /// Requests a second that only read, of all clients and on all nodes together.
    pub read_rate: Rate,
    /// Bytes a second: of the requests that write, of the replies to those that read.
    pub write_byte_rate: Rate,
    /// Bytes a second of the replies to requests that read.
    pub read_byte_rate: Rate,
    /// Requests that are refused whatever the rates are.
    pub deny: Denial,
}

/// A rate in two steps: beyond the first, requests are delayed, beyond the second refused. By default there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rate(Option<Box<Steps>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Steps {
    /// As it was given.
    text: String,
    delay: Option<(u64, Duration)>,
    reject: Option<(u64, Duration)>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The request is carried out at once.
    Now,
    /// The request is carried out after this delay.
    After(Duration),
    /// The request is refused after this delay.
    Refused(RequestError, Duration),
    /// The request is refused; protocols that allow it send no reply.
    Dropped(RequestError),
}

impl Rate {
    /// What becomes of a request after which `counted` units were counted in this second, if this node may use `share` of the rate.
    pub fn judge(&self, counted: u64, share: f64) -> Admitted {
        let is_beyond = |units: u64| counted as f64 > units as f64 * share;
        match self.0.as_deref() {
            Some(Steps { reject: Some((units, after)), .. }) if is_beyond(*units) => {
                Admitted::Refused(RequestError::Throttled, *after)
            }
            Some(Steps { delay: Some((units, after)), .. }) if is_beyond(*units) => Admitted::After(*after),
            _ => Admitted::Now,
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `UNITS*delay*MS,UNITS*reject*MS`, of which one part is enough, or `none`; `K` and `M` stand for thousands and
    /// millions.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self::default());
        }
        let wrong = || format!("'{text}' is no rate; an example: 2000*delay*100,20000*reject*100");
        let mut steps = Steps { text: text.into(), ..Steps::default() };
        for part in text.split(',') {
            let fields: Vec<&str> = part.split('*').collect();
            let [units, what, millis] = fields[..] else { return Err(wrong()) };
            let (digits, factor) = match units.as_bytes().last() {
                Some(b'K') => (&units[..units.len() - 1], 1_000),
                Some(b'M') => (&units[..units.len() - 1], 1_000_000),
                _ => (units, 1),
            };
            let units = digits.parse::<u64>().ok().and_then(|units| units.checked_mul(factor));
            let (Some(units), Ok(millis)) = (units, millis.parse()) else { return Err(wrong()) };
            let place = match what {
                "delay" => &mut steps.delay,
                "reject" => &mut steps.reject,
                _ => return Err(wrong()),
            };
            if place.replace((units, Duration::from_millis(millis))).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self(Some(Box::new(steps))))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_ref().map_or(NONE, |steps| &steps.text))
    }
}

/// Which requests are denied, and how. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Denial {
    /// Whether requests that read are denied.
    pub reads: bool,
    /// Whether requests that write are denied.
    pub writes: bool,
    /// Whether clients of Pegasus are left without an answer. If not, they ask where the partition is led.
    pub is_silent: bool,
}

const SILENT: &str = "timeout";
const ASK_AGAIN: &str = "reconfig";

impl FromStr for Denial {
    type Err = String;

    /// Reads `none`, `timeout*all` and the like.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not none, and not timeout or reconfig, '*', and all, read or write");
        if text == NONE {
            return Ok(Self::default());
        }
        let (how, which) = text.split_once('*').ok_or_else(wrong)?;
        let (reads, writes) = match which {
            "all" => (true, true),
            "read" => (true, false),
            "write" => (false, true),
            _ => return Err(wrong()),
        };
        match how {
            SILENT | ASK_AGAIN => Ok(Self { reads, writes, is_silent: how == SILENT }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match (self.reads, self.writes) {
            (false, false) => return formatter.write_str(NONE),
            (true, true) => "all",
            (true, false) => "read",
            (false, true) => "write",
        };
        write!(formatter, "{}*{which}", if self.is_silent { SILENT } else { ASK_AGAIN })
    }
}

json_is_text!(Rate);
json_is_text!(Denial);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_kept() {
        let rate: Rate = "2K*delay*100,1M*reject*200".parse().unwrap();
        let throttled = |millis| Admitted::Refused(RequestError::Throttled, Duration::from_millis(millis));
        let delayed = Admitted::After(Duration::from_millis(100));
        for (counted, share, expected) in [
            (2_000, 1.0, Admitted::Now),
            (2_001, 1.0, delayed.clone()),
            (1_001, 0.5, delayed),
            (1_000_001, 1.0, throttled(200)),
            (500_001, 0.5, throttled(200)),
        ] {
            assert_eq!(rate.judge(counted, share), expected, "{counted} of {share}");
        }
        assert_eq!("5*reject*0".parse::<Rate>().unwrap().judge(6, 1.0), throttled(0));
        assert_eq!("none".parse::<Rate>().unwrap().judge(u64::MAX, 0.1), Admitted::Now);
        for wrong in ["", "5", "5*reject", "x*reject*1", "5*drop*1", "5*delay*x", "5*delay*1,6*delay*1", "-1*delay*1"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn denials_are_read() {
        let denial = |reads, writes, is_silent| Denial { reads, writes, is_silent };
        assert_eq!("reconfig*write".parse(), Ok(denial(false, true, false)));
        assert_eq!("timeout*all".parse(), Ok(denial(true, true, true)));
        for wrong in ["", "timeout", "timeout*some", "busy*all"] {
            assert!(wrong.parse::<Denial>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_holds_the_text() {
        let json = r#"{"write_rate":"2K*delay*100","read_rate":"none","write_byte_rate":"none","read_byte_rate":"5M*reject*0","deny":"timeout*read"}"#;
        let admission: Admission = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&admission).unwrap(), json);
        assert_eq!(serde_json::from_str::<Admission>("{}").unwrap(), Admission::default());
        assert!(serde_json::from_str::<Admission>(r#"{"deny":"everything"}"#).is_err());
    }
}
