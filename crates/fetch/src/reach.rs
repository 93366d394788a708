//! Which addresses requests may go to. Whoever may have a node make requests could otherwise use services that trust the node's
//! network, or its machine: other nodes, caches, the metadata of clouds.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Which addresses requests may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// None: no requests are made.
    #[serde(rename = "none")]
    Nowhere,
    /// Those that are reached through the internet: not this machine, private networks, links, multicast and the like.
    #[default]
    Public,
    /// All.
    #[serde(rename = "all")]
    Everywhere,
}

impl Reach {
    /// Whether requests may go to an address.
    pub fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Everywhere => true,
            Self::Public => match address.to_canonical() {
                IpAddr::V4(address) => is_public_v4(address),
                IpAddr::V6(address) => is_public_v6(address),
            },
        }
    }
}

/// Whether an address is one of this machine. The system tells by the address from which it would send something there; nothing is sent.
pub(crate) fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    own.is_ok_and(|own| own.ip() == address)
}

/// Whether an address is in none of the special ranges of <https://www.iana.org/assignments/iana-ipv4-special-registry>, nor in that of
/// multicast.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        (0 | 10 | 127, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            // Services of a cloud for its machines, by an address that is public by its looks.
            | (168, 63, 129)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224.., ..)
    );
    !is_special
}

/// Whether an address is global unicast, which NAT64 and others are not, and none of those that stand for others (6to4, Teredo) or for
/// nothing.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_global_unicast = first & 0xe000 == 0x2000;
    let is_special =
        matches!((first, second), (0x2001, 0..=0x01ff) | (0x2001, 0x0db8) | (0x2002, _) | (0x3fff, 0..=0x0fff));
    is_global_unicast && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_local("127.0.0.1".parse().unwrap()));
        assert!(!is_local("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn only_public_addresses_are_public() {
        for address in ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.0.1.1", "2606:4700::1111"]
        {
            assert!(Reach::Public.allows(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "168.63.129.16",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
        ] {
            assert!(!Reach::Public.allows(address.parse().unwrap()), "{address}");
            assert!(Reach::Everywhere.allows(address.parse().unwrap()), "{address}");
        }
        assert!(!Reach::Nowhere.allows("1.1.1.1".parse().unwrap()));
    }
}
