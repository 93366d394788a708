//! Hosts with addresses, and links between them that can be cut or made slow: network namespaces, joined by a bridge in one
//! more, in which the test's own threads live. Needs root, and `ip` and `tc` of iproute2.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Hosts of one test.
pub struct Net {
    /// Namespaces are named `PREFIX-hub`, `PREFIX-0`, `PREFIX-1` and so on.
    prefix: String,
    hosts: usize,
}

fn ip(arguments: &str) -> bool {
    run("ip", arguments)
}

fn run(program: &str, arguments: &str) -> bool {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Net {
    /// `None` if this process may not make namespaces here.
    pub fn new(hosts: usize) -> Option<Self> {
        // Several tests of one process may each have a network.
        static NETS: AtomicUsize = AtomicUsize::new(0);
        let number = NETS.fetch_add(1, Ordering::Relaxed);
        let net = Self { prefix: format!("tessera{}-{number}", std::process::id()), hosts };
        let hub = net.hub();
        let make_hub = [
            format!("netns add {hub}"),
            format!("-n {hub} link set lo up"),
            format!("-n {hub} link add bridge0 type bridge"),
            format!("-n {hub} link set bridge0 up"),
            format!("-n {hub} addr add 10.77.0.254/24 dev bridge0"),
        ];
        let make_hosts = (0..hosts).flat_map(|at| {
            let (name, address) = (net.name(at), net.address(at));
            [
                format!("netns add {name}"),
                format!("-n {hub} link add port{at} type veth peer name eth0 netns {name}"),
                format!("-n {hub} link set port{at} master bridge0 up"),
                format!("-n {name} addr add {address}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
                format!("-n {name} link set lo up"),
            ]
        });
        // What was made so far goes with `net` if one of them fails.
        let is_made = make_hub.into_iter().chain(make_hosts).all(|arguments| ip(&arguments));
        is_made.then_some(net)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    pub fn name(&self, at: usize) -> String {
        format!("{}-{at}", self.prefix)
    }

    pub fn address(&self, at: usize) -> String {
        format!("10.77.0.{}", at + 1)
    }

    /// Moves the calling thread, and what it starts from now on, to where all hosts can be reached.
    pub fn enter(&self) {
        let namespace = File::open(format!("/run/netns/{}", self.hub())).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// What one host sends another one is lost from now on.
    pub fn cut(&self, from: usize, to: usize) {
        // It may be cut already.
        ip(&format!("-n {} route add blackhole {}/32", self.name(from), self.address(to)));
    }

    /// What a host is sent, or what it sends, goes no faster than so many kbit a second from now on: it is delayed by up to so
    /// many milliseconds, and lost where that is not enough.
    pub fn slow(&self, at: usize, is_incoming: bool, rate: u32, delay: u32) {
        let (name, device) = self.device(at, is_incoming);
        let made = run(
            "tc",
            &format!("-n {name} qdisc add dev {device} root tbf rate {rate}kbit burst 5kb latency {delay}ms"),
        );
        assert!(made, "a link cannot be made slow");
    }

    /// Where everything passes that a host is sent, or sends.
    fn device(&self, at: usize, is_incoming: bool) -> (String, String) {
        if is_incoming { (self.hub(), format!("port{at}")) } else { (self.name(at), "eth0".into()) }
    }

    pub fn heal(&self) {
        for at in 0..self.hosts {
            for (name, device) in [self.device(at, true), self.device(at, false)] {
                run("tc", &format!("-n {name} qdisc del dev {device} root"));
            }
        }
        for from in 0..self.hosts {
            for to in (0..self.hosts).filter(|to| *to != from) {
                ip(&format!("-n {} route del blackhole {}/32", self.name(from), self.address(to)));
            }
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        (0..self.hosts).for_each(|at| _ = ip(&format!("netns del {}", self.name(at))));
        ip(&format!("netns del {}", self.hub()));
    }
}
