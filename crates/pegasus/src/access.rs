//! Who may use the face. Its protocol knows no users and no passwords, so where others have to log in it is closed but for those whom the
//! settings name.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Addresses that begin alike, as `ADDRESS` or `ADDRESS/BITS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let parse = || {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(most), str::parse).ok().filter(|bits| *bits <= most)?;
            Some(Self { address, bits })
        };
        parse().ok_or_else(|| format!("'{text}' is no address and no network: 10.1.2.3 and 10.1.0.0/16 are"))
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// To whom the face is open.
#[derive(Clone, Debug, Default)]
pub struct Openings {
    /// Whether the configuration of the node names users. If it does not, and `admin` of the cluster has no password, everybody may do
    /// everything.
    pub has_users: bool,
    /// Who comes from one of these may do everything.
    pub networks: Vec<Network>,
    /// The names of tables whose records everybody may read and write.
    pub tables: Arc<[String]>,
}

/// What a connection may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Everything,
    /// Read and write records of these tables, and ask where they are.
    Tables(Arc<[String]>),
}

impl Openings {
    /// `None` for who may do nothing. `is_closed` says whether `admin` of the cluster has a password.
    pub(crate) fn access(&self, address: IpAddr, is_closed: bool) -> Option<Access> {
        match self {
            _ if !self.has_users && !is_closed => Some(Access::Everything),
            Self { networks, .. } if networks.iter().any(|network| network.contains(address)) => {
                Some(Access::Everything)
            }
            Self { tables, .. } if tables.is_empty() => None,
            Self { tables, .. } => Some(Access::Tables(tables.clone())),
        }
    }
}

impl Access {
    pub(crate) fn is_everything(&self) -> bool {
        *self == Self::Everything
    }

    pub(crate) fn includes(&self, table: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Tables(tables) => tables.iter().any(|open| open == table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_open_everything_and_tables_are_open_to_all() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let networks = ["10.1.0.0/16", "192.168.7.7", "fd00::/8"].map(|text| text.parse().unwrap());
        let mut openings = Openings { has_users: true, networks: networks.into(), tables: Arc::default() };
        let access = |openings: &Openings, from: &str| openings.access(address(from), false);
        for inside in ["10.1.255.3", "192.168.7.7", "::ffff:10.1.0.1", "fd12::1"] {
            assert_eq!(access(&openings, inside), Some(Access::Everything), "{inside}");
        }
        for outside in ["10.2.0.1", "192.168.7.8", "fe00::1", "127.0.0.1"] {
            assert_eq!(access(&openings, outside), None, "{outside}");
        }
        openings.tables = ["temp".to_string()].into();
        let access = access(&openings, "10.2.0.1").unwrap();
        openings.has_users = false;
        assert_eq!(openings.access(address("10.2.0.1"), false), Some(Access::Everything));
        assert_eq!(openings.access(address("10.2.0.1"), true), Some(access.clone()), "`admin` has a password");
        assert!(access.includes("temp") && !access.includes("stat") && !access.is_everything());
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains(address("8.8.8.8")));
        for wrong in ["10.0.0.0/33", "localhost", "", "10.0.0.1/", "10.0.0.1/-1"] {
            wrong.parse::<Network>().unwrap_err();
        }
    }
}
