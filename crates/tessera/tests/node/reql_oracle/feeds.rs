//! Plays the steps about feeds: a feed stays open under its name, and gives its messages when a step takes them.

use super::player::{integer, items, object, readable, string};
use super::socket::{Nothing, Socket};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_oracle::{Json, text, write};

/// How long recorded messages may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long is waited for messages that were not recorded.
const SILENCE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct Feeds(BTreeMap<String, Feed>);

struct Feed {
    token: i64,
    came: Vec<Json>,
    /// Whether a CONTINUE waits for an answer.
    is_asked: bool,
    /// The answer with which it has ended.
    end: Option<Json>,
}

impl Feeds {
    pub fn play(&mut self, socket: &mut Socket, token: i64, step: &Json) -> Result<Json, Nothing> {
        let name = text(step, "feed").unwrap_or_default();
        match text(step, "op").unwrap() {
            "open" => self.open(socket, token, step),
            "stop" => self.stop(socket, name, step),
            "read" => {
                let count = usize::try_from(integer(step, "count").unwrap()).unwrap();
                self.wait_for(socket, name, count, false)?;
                let feed = self.0.get_mut(name).unwrap();
                let rest = feed.came.split_off(count.min(feed.came.len()));
                let rows = Json::Array(std::mem::replace(&mut feed.came, rest));
                let end = feed.end.clone().map(|end| (Arc::from("end"), end));
                Ok(Json::Object(told(rows).into_iter().chain(end).collect()))
            }
            _ => self.drain(socket, step),
        }
    }

    fn open(&mut self, socket: &mut Socket, token: i64, step: &Json) -> Result<Json, Nothing> {
        socket.send_frame(token, write(step.get("q").unwrap()).as_bytes(), None)?;
        let name = text(step, "feed").unwrap().to_string();
        let feed = Feed { token, came: Vec::new(), is_asked: true, end: None };
        self.0.insert(name.clone(), feed);
        let mut reply = loop {
            let (came_for, response) = socket.frame(PATIENCE)?;
            self.take(came_for, &response);
            if came_for == token {
                break readable(&response);
            }
        };
        let kind = reply.iter().find(|(name, _)| &**name == "t").map(|(_, kind)| kind.clone());
        match kind {
            Some(Json::String(kind)) if &*kind == "SUCCESS_PARTIAL" => {
                reply
                    .iter_mut()
                    .filter(|(name, _)| &**name == "r")
                    .for_each(|(_, rows)| *rows = Json::Array(Vec::new()));
            }
            _ => drop(self.0.remove(&name)),
        }
        Ok(Json::Object(reply))
    }

    /// Notes an answer of a feed.
    fn take(&mut self, token: i64, response: &Json) {
        let Some(feed) = self.0.values_mut().find(|feed| feed.token == token) else { return };
        feed.is_asked = false;
        if matches!(integer(response, "t"), Some(2 | 3)) {
            feed.came.extend_from_slice(items(response, "r"));
        }
        if integer(response, "t") != Some(3) {
            feed.end = Some(Json::Object(readable(response)));
        }
    }

    fn ask(socket: &mut Socket, feed: &mut Feed) -> Result<(), Nothing> {
        if feed.end.is_none() && !feed.is_asked {
            socket.send_frame(feed.token, b"[2]", None)?;
            feed.is_asked = true;
        }
        Ok(())
    }

    /// Waits until a feed has so many messages, or has ended.
    fn wait_for(&mut self, socket: &mut Socket, name: &str, count: usize, goes_on: bool) -> Result<(), Nothing> {
        let began = Instant::now();
        loop {
            let feed = self.0.get_mut(name).unwrap();
            let has_enough = feed.came.len() >= count || feed.end.is_some();
            if goes_on || !has_enough {
                Self::ask(socket, feed)?;
            }
            if has_enough || began.elapsed() > PATIENCE {
                return Ok(());
            }
            match socket.frame(PATIENCE) {
                Ok((token, response)) => self.take(token, &response),
                Err(Nothing::Quiet) => return Ok(()),
                Err(nothing) => return Err(nothing),
            }
        }
    }

    fn drain(&mut self, socket: &mut Socket, step: &Json) -> Result<Json, Nothing> {
        let expected = step.get("reply").unwrap().get("r").cloned().unwrap_or(Json::Null);
        let names = items(step, "feeds").iter();
        let names: Vec<Arc<str>> =
            names.filter_map(|name| if let Json::String(name) = name { Some(name.clone()) } else { None }).collect();
        let open: Vec<Arc<str>> = names.into_iter().filter(|name| self.0.contains_key(&**name)).collect();
        for name in &open {
            Self::ask(socket, self.0.get_mut(&**name).unwrap())?;
        }
        let ends = step.get("reply").unwrap().get("end").is_some();
        for name in &open {
            let is_to_end = ends && step.get("reply").unwrap().get("end").unwrap().get(name).is_some();
            let count = if is_to_end { usize::MAX } else { items(&expected, name).len() };
            self.wait_for(socket, name, count, true)?;
        }
        // What was not recorded, if it comes soon.
        loop {
            for name in &open {
                Self::ask(socket, self.0.get_mut(&**name).unwrap())?;
            }
            match socket.frame(SILENCE) {
                Ok((token, response)) => self.take(token, &response),
                Err(Nothing::Quiet) => break,
                Err(nothing) => return Err(nothing),
            }
        }
        let (mut messages, mut ended) = (Vec::new(), Vec::new());
        for name in open {
            let feed = self.0.get_mut(&*name).unwrap();
            messages.push((name.clone(), Json::Array(std::mem::take(&mut feed.came))));
            ended.extend(feed.end.clone().map(|end| (name, end)));
        }
        let mut reply = told(Json::Object(messages));
        if !ended.is_empty() {
            reply.push((Arc::from("end"), Json::Object(ended)));
        }
        Ok(Json::Object(reply))
    }

    fn stop(&mut self, socket: &mut Socket, name: &str, step: &Json) -> Result<Json, Nothing> {
        let Some(feed) = self.0.remove(name) else { return Ok(object([("t", string("NOT_OPEN"))])) };
        socket.send_frame(feed.token, b"[3]", None)?;
        let count = items(step.get("reply").unwrap(), "r").len();
        let mut came = Vec::new();
        loop {
            let patience = if came.len() < count { PATIENCE } else { SILENCE };
            match socket.frame(patience) {
                Ok((token, response)) if token == feed.token => {
                    let mut response = readable(&response);
                    // Which feed it was is not told.
                    response.retain(|(name, _)| &**name != "n");
                    for (_, value) in &mut response {
                        blank(value, feed.token);
                    }
                    came.push(Json::Object(response));
                }
                Ok((token, response)) => self.take(token, &response),
                Err(Nothing::Quiet) => break,
                Err(nothing) => return Err(nothing),
            }
        }
        Ok(object([("t", string("FRAMES")), ("r", Json::Array(came))]))
    }
}

fn told(messages: Json) -> Vec<(Arc<str>, Json)> {
    vec![(Arc::from("t"), string("MESSAGES")), (Arc::from("r"), messages)]
}

/// Replaces the token in a message.
fn blank(json: &mut Json, token: i64) {
    match json {
        Json::String(text) => *text = Arc::from(text.replace(&format!("Token {token} "), "Token <token> ")),
        Json::Array(items) => items.iter_mut().for_each(|item| blank(item, token)),
        _ => {}
    }
}
