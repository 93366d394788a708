//! Where the slots of a Redis cluster are: what a client that knows clusters asks before its first request.

use crate::socket::{ClientTls, EXPECTS_TLS, Socket};
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tessera_types::{REDIS_SLOTS, redis_slot};

/// A cluster that is loaded heavily may be about to elect a leader just now: how often it is asked again, and after what.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The node that each slot is led by.
#[derive(Clone, Debug)]
pub struct Route {
    pub(super) nodes: Vec<SocketAddr>,
    leads: Vec<usize>,
}

impl Route {
    /// To servers that are not asked: each has the slots whose number, modulo that of the servers, is its own.
    pub(super) fn over(servers: Vec<SocketAddr>) -> Self {
        let leads = (0..usize::from(REDIS_SLOTS)).map(|slot| slot % servers.len()).collect();
        Self { nodes: servers, leads }
    }

    /// Asks a node, after a greeting, until every slot has a leader or for some seconds.
    pub(super) fn ask(server: SocketAddr, tls: Option<&ClientTls>, greeting: &[Vec<String>]) -> anyhow::Result<Self> {
        let mut unled = 0;
        for _ in 0..TRIES {
            let route = Self::ask_once(server, tls, greeting)?;
            unled = route.unled();
            if unled == 0 {
                return Ok(route);
            }
            std::thread::sleep(PAUSE);
        }
        bail!("{unled} slots have no leader, says {server}")
    }

    fn ask_once(server: SocketAddr, tls: Option<&ClientTls>, greeting: &[Vec<String>]) -> anyhow::Result<Self> {
        let mut socket = Socket::connect(server, tls).with_context(|| format!("connecting to {server}"))?;
        let mut requests = Vec::new();
        let question = ["CLUSTER".to_string(), "SLOTS".to_string()];
        for words in greeting.iter().map(Vec::as_slice).chain([&question[..]]) {
            super::resp::request(words, &mut requests);
        }
        socket.write_all(&requests)?;
        socket.flush()?;
        let mut reader = BufReader::new(socket);
        if tls.is_none() {
            answers(&mut reader).with_context(|| server.to_string())?;
        }
        let mut reply = Reply::read(&mut reader);
        for _ in greeting {
            reply?;
            reply = Reply::read(&mut reader);
        }
        reply.and_then(|slots| Self::of(&slots)).with_context(|| format!("asking {server} for its CLUSTER SLOTS"))
    }

    fn of(slots: &Reply) -> anyhow::Result<Self> {
        let mut route = Self { nodes: Vec::new(), leads: vec![usize::MAX; usize::from(REDIS_SLOTS)] };
        for range in slots.array()? {
            let [from, to, leader, ..] = range.array()? else { bail!("a range of slots without a leader") };
            let [host, port, ..] = leader.array()? else { bail!("a leader without an address") };
            let address = (host.text()?, u16::try_from(port.integer()?)?).to_socket_addrs()?.next();
            let address = address.context("a leader's host has no address")?;
            let known = route.nodes.iter().position(|node| *node == address);
            let place = known.unwrap_or(route.nodes.len());
            if known.is_none() {
                route.nodes.push(address);
            }
            let slots = usize::try_from(from.integer()?)?..=usize::try_from(to.integer()?)?;
            route.leads.get_mut(slots).context("a slot that there is not")?.fill(place);
        }
        Ok(route)
    }

    /// How many slots have no leader.
    fn unled(&self) -> usize {
        self.leads.iter().filter(|place| **place == usize::MAX).count()
    }

    /// Which of the nodes leads a key's slot.
    pub(super) fn node_of(&self, key: &[u8]) -> usize {
        self.leads[usize::from(redis_slot(key))]
    }
}

/// # Errors
/// If what comes first is no reply of Redis' protocol: a server that expects TLS ends the connection, maybe with an alert before.
fn answers(reader: &mut impl BufRead) -> anyhow::Result<()> {
    let no_answer = || format!("the server does not answer in Redis' protocol; {EXPECTS_TLS}");
    match reader.fill_buf().with_context(no_answer)? {
        [b'+' | b'-' | b':' | b'$' | b'*', ..] => Ok(()),
        _ => bail!(no_answer()),
    }
}

enum Reply {
    Integer(i64),
    Text(String),
    Array(Vec<Reply>),
}

impl Reply {
    fn read(reader: &mut impl BufRead) -> anyhow::Result<Self> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let (kind, rest) = line.trim_end().split_at_checked(1).context("the connection ended")?;
        Ok(match kind {
            ":" => Self::Integer(rest.parse()?),
            "*" => Self::Array((0..rest.parse::<usize>()?).map(|_| Self::read(reader)).collect::<Result<_, _>>()?),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                reader.read_exact(&mut bytes)?;
                Self::Text(String::from_utf8_lossy(&bytes).trim_end().to_string())
            }
            "+" => Self::Text(rest.to_string()),
            _ => bail!("{rest}"),
        })
    }

    fn array(&self) -> anyhow::Result<&[Self]> {
        match self {
            Self::Array(elements) => Ok(elements),
            _ => bail!("an answer that is no array"),
        }
    }

    fn integer(&self) -> anyhow::Result<i64> {
        match self {
            Self::Integer(number) => Ok(*number),
            _ => bail!("an answer that is no number"),
        }
    }

    fn text(&self) -> anyhow::Result<&str> {
        match self {
            Self::Text(text) => Ok(text),
            _ => bail!("an answer that is no text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(answer: &str) -> anyhow::Result<Route> {
        Route::of(&Reply::read(&mut answer.replace(' ', "\r\n").as_bytes())?)
    }

    #[test]
    fn keys_go_to_the_leaders_of_their_slots() {
        let two = "*2 *4 :0 :8191 *3 $9 127.0.0.1 :7001 $1 a *3 $9 127.0.0.1 :7002 $1 b *3 :8192 :16383 *2 $9 127.0.0.1 :7002 ";
        let route = route(two).unwrap();
        assert_eq!(route.nodes.iter().map(SocketAddr::port).collect::<Vec<_>>(), [7001, 7002]);
        // The slots of these are 12,182 and 5,061.
        assert_eq!([route.node_of(b"foo"), route.node_of(b"bar")], [1, 0]);
    }

    #[test]
    fn keys_are_spread_over_servers_by_hash() {
        let servers: Vec<SocketAddr> = (1..=5).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let route = Route::over(servers);
        // 12,182 and 5,061 modulo 5.
        assert_eq!([route.node_of(b"foo"), route.node_of(b"bar")], [2, 1]);
        assert_eq!(route.unled(), 0);
        let mut counts = [0; 5];
        (0..10_000).for_each(|key: u32| counts[route.node_of(format!("user{key}").as_bytes())] += 1);
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_server_that_expects_tls_is_told_from_one_that_refuses() {
        for no_answer in [&b"\x15\x03\x03\0\x02\x02\x46"[..], b""] {
            let error = answers(&mut &no_answer[..]).unwrap_err().to_string();
            assert!(error.contains("--tls"), "{error}");
        }
        assert!(answers(&mut &b"-NOAUTH Authentication required.\r\n"[..]).is_ok());
    }

    #[test]
    fn slots_without_a_leader_are_noticed() {
        assert_eq!(route("*1 *3 :0 :16000 *2 $9 127.0.0.1 :7001 ").unwrap().unled(), 383);
        assert!(route("-ERR no ").is_err() && route("*1 *2 :0 :1 ").is_err() && route("").is_err());
    }
}
