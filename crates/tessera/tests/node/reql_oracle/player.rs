//! Plays recorded steps through the ReQL port of a node.

use super::feeds::Feeds;
use super::socket::{Nothing, Socket};
use crate::scram::{Flaw, ScramClient};
use crate::server::wait_for;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tessera_oracle::{ENDLESS_ROWS, ENDLESS_SHOWN, JSON_DEPTH, Json, Player, parse_json, text, write};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long is waited for an answer that was not recorded.
const SILENCE: Duration = Duration::from_millis(30);

const RESPONSES: [(i64, &str); 8] = [
    (1, "SUCCESS_ATOM"),
    (2, "SUCCESS_SEQUENCE"),
    (3, "SUCCESS_PARTIAL"),
    (4, "WAIT_COMPLETE"),
    (5, "SERVER_INFO"),
    (16, "CLIENT_ERROR"),
    (17, "COMPILE_ERROR"),
    (18, "RUNTIME_ERROR"),
];

const ERRORS: [(i64, &str); 8] = [
    (1_000_000, "INTERNAL"),
    (2_000_000, "RESOURCE_LIMIT"),
    (3_000_000, "QUERY_LOGIC"),
    (3_100_000, "NON_EXISTENCE"),
    (4_100_000, "OP_FAILED"),
    (4_200_000, "OP_INDETERMINATE"),
    (5_000_000, "USER"),
    (6_000_000, "PERMISSION_ERROR"),
];

const NOTES: [&str; 5] = ["SEQUENCE_FEED", "ATOM_FEED", "ORDER_BY_LIMIT_FEED", "UNIONED_FEED", "INCLUDES_STATES"];

/// The greeting of drivers that give no key: the version, the length of the key, and that queries are JSON.
const V0_4_WITHOUT_KEY: [u32; 3] = [0x400c_2d20, 0, 0x7e69_70c7];

/// The term that gives the time, as queries have it.
const NOW: &str = "[103,[]]";

/// Plays scenarios, each one through one of the nodes of a cluster.
pub struct WirePlayer {
    ports: Vec<u16>,
    /// The node that is asked in this scenario.
    at: usize,
    connections: BTreeMap<i64, Socket>,
    feeds: Feeds,
    token: i64,
    /// When the time was asked for last, in milliseconds.
    asked_for_time: u128,
}

pub(super) fn string(text: &str) -> Json {
    Json::String(Arc::from(text))
}

pub(super) fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect())
}

pub(super) fn integer(json: &Json, name: &str) -> Option<i64> {
    match json.get(name) {
        Some(Json::Number(number)) => Some(*number as i64),
        _ => None,
    }
}

pub(super) fn items<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    match json.get(name) {
        Some(Json::Array(items)) => items,
        _ => &[],
    }
}

fn name_of(names: &[(i64, &str)], number: Option<i64>) -> Json {
    let found = names.iter().find(|(own, _)| Some(*own) == number);
    found.map_or(Json::Null, |(_, name)| string(name))
}

/// A response of the wire in the form of the recordings.
pub(super) fn readable(response: &Json) -> Vec<(Arc<str>, Json)> {
    let mut fields = vec![
        (Arc::from("t"), name_of(&RESPONSES, integer(response, "t"))),
        (Arc::from("r"), response.get("r").cloned().unwrap_or(Json::Array(Vec::new()))),
    ];
    if let Some(error) = integer(response, "e") {
        fields.push((Arc::from("e"), name_of(&ERRORS, Some(error))));
    }
    fields.extend(response.get("b").map(|backtrace| (Arc::from("b"), backtrace.clone())));
    let notes = items(response, "n").iter().map(|note| match note {
        Json::Number(note) => string(NOTES[*note as usize - 1]),
        _ => Json::Null,
    });
    let notes: Vec<Json> = notes.collect();
    if !notes.is_empty() {
        fields.push((Arc::from("n"), Json::Array(notes)));
    }
    fields.extend(response.get("p").map(|_| (Arc::from("p"), Json::Bool(true))));
    fields
}

/// The connection of this number, which is opened when it is used first.
fn connected(connections: &mut BTreeMap<i64, Socket>, number: i64, port: u16) -> Result<&mut Socket, Nothing> {
    Ok(match connections.entry(number) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Socket::greeted(port, PATIENCE)?),
    })
}

/// Texts in which the node's name is the one that the recorded server had.
fn renamed(json: &mut Json) {
    match json {
        Json::String(text) if text.contains("node-1") => *text = Arc::from(text.replace("node-1", "oracle")),
        Json::Array(items) => items.iter_mut().for_each(renamed),
        Json::Object(fields) => fields.iter_mut().for_each(|(_, value)| renamed(value)),
        _ => {}
    }
}

/// Whether a query has terms that tell where the replicas of a table are.
fn tells_places(json: &Json) -> bool {
    match json {
        Json::Array(items) => {
            let code = if let Some(Json::Number(code)) = items.first() { *code as i32 } else { 0 };
            let has_arguments = matches!(items.get(1), Some(Json::Array(_)));
            has_arguments && matches!(code, 60 | 61 | 174..=176 | 179) || items.iter().any(tells_places)
        }
        Json::Object(fields) => fields.iter().any(|(_, value)| tells_places(value)),
        _ => false,
    }
}

/// An answer of a handshake without nonces, salts and versions.
fn greeting(answer: &str) -> Json {
    match parse_json(answer, JSON_DEPTH) {
        Ok(Json::Object(mut fields)) => {
            let accidental = |name: &str| ["authentication", "server_version"].contains(&name);
            fields.iter_mut().filter(|(name, _)| accidental(name)).for_each(|(_, value)| *value = string("<string>"));
            Json::Object(fields)
        }
        _ => string(answer),
    }
}

fn bytes_of(piece: &Json) -> Vec<u8> {
    match text(piece, "hex") {
        Some(hex) => (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect(),
        None => text(piece, "text").unwrap().as_bytes().to_vec(),
    }
}

/// All that comes: as much as was recorded with patience, and what was not recorded, if it comes soon. Says whether the server closed
/// the connection.
fn take_all<T>(step: &Json, came: &mut Vec<T>, mut take: impl FnMut(Duration) -> Result<T, Nothing>) -> bool {
    let reply = step.get("reply").unwrap();
    let (count, is_closed) = (items(reply, "r").len(), reply.get("closed") == Some(&Json::Bool(true)));
    loop {
        let patience = if came.len() < count || is_closed { PATIENCE } else { SILENCE };
        match take(patience) {
            Ok(one) => came.push(one),
            Err(nothing) => return nothing == Nothing::Closed,
        }
    }
}

impl Player for WirePlayer {
    fn begin(&mut self) {
        self.connections.clear();
        self.feeds = Feeds::default();
        self.at = (self.at + 1) % self.ports.len();
        wait_for("an empty database", PATIENCE, || self.is_empty_again().then_some(()));
    }

    fn play(&mut self, step: &Json) -> Option<Json> {
        let number = integer(step, "conn").unwrap_or(0);
        let played = match text(step, "op")? {
            "q" => {
                let query = write(step.get("q").unwrap());
                if query.contains(NOW) {
                    self.wait_for_another_time();
                }
                self.query(number, &query)
            }
            "text" => self.query(number, text(step, "text")?),
            "open" | "read" | "drain" | "stop" => self.feed(number, step),
            "handshake" => Ok(self.handshake(step)),
            "login" => self.login(number, step),
            "scram" => self.scram(step),
            "frames" => self.frames(step),
            _ => return None,
        };
        let mut reply = played.unwrap_or_else(|nothing| {
            self.connections.remove(&number);
            object([("t", string(if nothing == Nothing::Quiet { "NO_ANSWER" } else { "CLOSED" }))])
        });
        // Of several nodes it rightly tells something else where replicas are than of the one that was recorded.
        if self.ports.len() > 1 && step.get("q").is_some_and(tells_places) {
            return None;
        }
        renamed(&mut reply);
        Some(reply)
    }
}

impl WirePlayer {
    pub fn new(ports: Vec<u16>) -> Self {
        Self { ports, at: 0, connections: BTreeMap::new(), feeds: Feeds::default(), token: 0, asked_for_time: 0 }
    }

    /// The recorded server took longer than a millisecond for a write, so that no two queries had the same time, as two of a faster one
    /// may.
    fn wait_for_another_time(&mut self) {
        let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let before = self.asked_for_time;
        self.asked_for_time =
            wait_for("another millisecond", PATIENCE, || Some(millis()).filter(|now| *now > before + 1));
    }

    fn port(&self) -> u16 {
        self.ports[self.at]
    }

    /// Drops everything and makes the database again, with no user but `admin`. `false` if the node did not know yet what another one had
    /// made.
    fn is_empty_again(&mut self) -> bool {
        let databases = self.query(0, "[1,[59,[]]]").unwrap();
        let Some(Json::Array(names)) = items(&databases, "r").first() else { panic!("{}", write(&databases)) };
        let others = names.iter().filter(|name| **name != string("rethinkdb"));
        let drops: Vec<String> = others.map(|name| format!("[1,[58,[{}]]]", write(name))).collect();
        let is_done = |reply: Json| reply.get("e").is_none();
        let forget = r#"[1,[54,[[39,[[15,[[14,["rethinkdb"]],"users"]],[69,[[2,[1]],[18,[[170,[[10,[1]],"id"]],"admin"]]]]]]]]]"#;
        is_done(self.query(0, forget).unwrap())
            && drops.iter().all(|drop| is_done(self.query(0, drop).unwrap()))
            && is_done(self.query(0, "[1,[57,[\"test\"]]]").unwrap())
    }

    /// All rows of a stream, or the value, or the error.
    fn query(&mut self, number: i64, query: &str) -> Result<Json, Nothing> {
        let port = self.port();
        self.token += 1;
        let token = self.token;
        let socket = connected(&mut self.connections, number, port)?;
        let mut rows = Vec::new();
        let mut request = query;
        loop {
            socket.send_frame(token, request.as_bytes(), None)?;
            let (_, response) = socket.frame(PATIENCE)?;
            let mut reply = readable(&response);
            let kind = integer(&response, "t");
            if matches!(kind, Some(2 | 3)) {
                rows.extend_from_slice(items(&response, "r"));
            }
            if kind == Some(3) && !items(&response, "n").is_empty() {
                socket.send_frame(token, b"[3]", None)?;
                socket.frame(PATIENCE)?;
                reply
                    .iter_mut()
                    .filter(|(name, _)| &**name == "r")
                    .for_each(|(_, rows)| *rows = Json::Array(Vec::new()));
                return Ok(Json::Object(reply));
            }
            if kind == Some(3) && rows.len() <= ENDLESS_ROWS {
                request = "[2]";
                continue;
            }
            if kind == Some(3) {
                socket.send_frame(token, b"[3]", None)?;
                socket.frame(PATIENCE)?;
                rows.truncate(ENDLESS_SHOWN);
                return Ok(object([("t", string("ENDLESS")), ("r", Json::Array(rows))]));
            }
            if kind == Some(2) {
                reply.iter_mut().filter(|(name, _)| &**name == "r").for_each(|(_, value)| {
                    *value = Json::Array(std::mem::take(&mut rows));
                });
            }
            return Ok(Json::Object(reply));
        }
    }

    fn feed(&mut self, number: i64, step: &Json) -> Result<Json, Nothing> {
        let port = self.port();
        self.token += 1;
        let socket = connected(&mut self.connections, number, port)?;
        self.feeds.play(socket, self.token, step)
    }

    fn handshake(&self, step: &Json) -> Json {
        let mut socket = Socket::to(self.port());
        let mut answers = Vec::new();
        let mut exchange = || -> Result<bool, Nothing> {
            for piece in items(step, "send") {
                socket.send(&bytes_of(piece))?;
                for _ in 0..integer(piece, "answers").unwrap_or(0) {
                    answers.push(socket.until_nul(PATIENCE)?);
                }
            }
            Ok(take_all(step, &mut answers, |patience| socket.until_nul(patience)))
        };
        let is_closed = exchange().unwrap_or_else(|nothing| nothing == Nothing::Closed);
        let answers = answers.iter().map(|answer| greeting(answer)).collect();
        object([("t", string("HANDSHAKE")), ("r", Json::Array(answers)), ("closed", Json::Bool(is_closed))])
    }

    /// Logs in on a connection. `admin` without a password comes as old drivers do.
    fn login(&mut self, number: i64, step: &Json) -> Result<Json, Nothing> {
        self.connections.remove(&number);
        let (user, password) = (text(step, "user").unwrap(), text(step, "password").unwrap());
        let mut socket = Socket::to(self.port());
        let refused = if user == "admin" && password.is_empty() {
            socket.send(&V0_4_WITHOUT_KEY.map(u32::to_le_bytes).concat())?;
            Some(socket.until_nul(PATIENCE)?).filter(|answer| answer != "SUCCESS")
        } else {
            let answers = Self::prove(&mut socket, user, password, Flaw::None)?;
            answers.into_iter().next_back().filter(|answer| !answer.contains("\"authentication\":\"v="))
        };
        Ok(match refused {
            Some(answer) => object([("t", string("REFUSED")), ("r", Json::Array(vec![greeting(&answer)]))]),
            None => {
                self.connections.insert(number, socket);
                object([("t", string("CONNECTED"))])
            }
        })
    }

    /// What a node answers to a whole handshake of today's drivers.
    fn prove(socket: &mut Socket, user: &str, password: &str, flaw: Flaw) -> Result<Vec<String>, Nothing> {
        let client = ScramClient::new(user, password);
        socket.send(&0x34c2_bdc3_u32.to_le_bytes())?;
        socket.send(format!("{}\0", client.first()).as_bytes())?;
        let mut answers = vec![socket.until_nul(PATIENCE)?, socket.until_nul(PATIENCE)?];
        let challenge: serde_json::Value = serde_json::from_str(&answers[1]).unwrap();
        if let Some(challenge) = challenge["authentication"].as_str() {
            socket.send(format!("{}\0", client.last(challenge, flaw).0).as_bytes())?;
            answers.push(socket.until_nul(PATIENCE)?);
        }
        Ok(answers)
    }

    /// A whole handshake of today's drivers, with a flaw perhaps.
    fn scram(&self, step: &Json) -> Result<Json, Nothing> {
        let (user, password) = (text(step, "user").unwrap(), text(step, "password").unwrap());
        let flaw = match text(step, "tweak") {
            None => Flaw::None,
            Some("proof") => Flaw::Proof,
            Some("nonce") => Flaw::Nonce,
            Some("binding") => Flaw::Binding,
            Some("no_proof") => Flaw::NoProof,
            Some(other) => panic!("no flaw {other}"),
        };
        let answers = Self::prove(&mut Socket::to(self.port()), user, password, flaw)?;
        let answers = answers.iter().map(|answer| greeting(answer)).collect();
        Ok(object([("t", string("HANDSHAKE")), ("r", Json::Array(answers))]))
    }

    /// Frames on a connection of their own, with what is answered to them.
    fn frames(&self, step: &Json) -> Result<Json, Nothing> {
        let mut socket = Socket::greeted(self.port(), PATIENCE)?;
        let mut answers = Vec::new();
        let mut exchange = || -> Result<bool, Nothing> {
            for frame in items(step, "send") {
                let length = integer(frame, "length").map(|length| u32::try_from(length).unwrap());
                socket.send_frame(integer(frame, "token").unwrap(), &bytes_of(frame), length)?;
                for _ in 0..integer(frame, "answers").unwrap_or(0) {
                    answers.push(socket.frame(PATIENCE)?);
                }
            }
            Ok(take_all(step, &mut answers, |patience| socket.frame(patience)))
        };
        let is_closed = exchange().unwrap_or_else(|nothing| nothing == Nothing::Closed);
        if step.get("by_token") == Some(&Json::Bool(true)) {
            answers.sort_by_key(|(token, _)| *token);
        }
        let told = |(token, response): &(i64, Json)| {
            let mut fields = vec![(Arc::from("token"), Json::Number(*token as f64))];
            fields.extend(readable(response));
            Json::Object(fields)
        };
        let answers = answers.iter().map(told).collect();
        Ok(object([("t", string("FRAMES")), ("r", Json::Array(answers)), ("closed", Json::Bool(is_closed))]))
    }
}
