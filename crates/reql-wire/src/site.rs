//! The addresses that nodes tell of themselves.

use std::net::IpAddr;
use tessera_cluster::Site;

/// The host and the port of an address.
pub(crate) fn parts(address: &str) -> (&str, Option<u16>) {
    match address.rsplit_once(':') {
        Some((host, port)) => (host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()),
        None => (address, None),
    }
}

/// Whether a node is at an address. Of one that tells names of itself only its own machine knows.
pub(crate) fn is_at(site: &Site, address: IpAddr) -> bool {
    let all = [&site.peer, &site.redis, &site.admin, &site.pegasus, &site.reql];
    let own = all.into_iter().filter_map(|own| parts(own).0.parse::<IpAddr>().ok());
    own.map(|own| own.to_canonical()).any(|own| own == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(parts("10.0.0.1:7000"), ("10.0.0.1", Some(7000)));
        assert_eq!(parts("[::1]:7000"), ("::1", Some(7000)));
        assert_eq!(parts("nowhere"), ("nowhere", None));
    }

    #[test]
    fn nodes_are_at_the_addresses_that_they_tell() {
        let (peer, reql) = ("9.9.9.9:7000".into(), "[2620:fe::fe]:28015".into());
        let site = Site { peer, reql, admin: "node.example:8080".into(), ..Site::default() };
        for (address, expected) in
            [("9.9.9.9", true), ("::ffff:9.9.9.9", true), ("2620:fe::fe", true), ("9.9.9.8", false)]
        {
            assert_eq!(is_at(&site, address.parse().unwrap()), expected, "{address}");
        }
    }
}
