//! The client's side of SCRAM-SHA-256 as drivers of RethinkDB speak it, written by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Where a client departs from the protocol.
#[derive(Clone, Copy, PartialEq)]
pub enum Flaw {
    None,
    Proof,
    Nonce,
    Binding,
    NoProof,
}

/// A client that is about to log in.
pub struct ScramClient<'a> {
    /// The first message, without what it says about the channel.
    bare: String,
    password: &'a str,
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).unwrap_or(&0) ^ pad).collect() };
    let inner = Sha256::digest([&padded(0x36), text].concat());
    Sha256::digest([&padded(0x5c)[..], &inner[..]].concat()).into()
}

impl<'a> ScramClient<'a> {
    pub fn new(user: &str, password: &'a str) -> Self {
        let name = user.replace('=', "=3D").replace(',', "=2C");
        Self { bare: format!("n={name},r=abc"), password }
    }

    /// The message that says who comes.
    pub fn first(&self) -> Value {
        json!({
            "protocol_version": 0, "authentication_method": "SCRAM-SHA-256", "authentication": format!("n,,{}", self.bare)
        })
    }

    /// The message that proves it, given what the server answered, and how the server proves who it is.
    pub fn last(&self, challenge: &str, flaw: Flaw) -> (Value, String) {
        let part = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
        let salt = STANDARD.decode(part("s=")).unwrap();
        let mut last = hmac(self.password.as_bytes(), &[&salt[..], &[0, 0, 0, 1]].concat());
        let mut salted = last;
        for _ in 1..part("i=").parse::<u32>().unwrap() {
            last = hmac(self.password.as_bytes(), &last);
            salted.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
        }
        let binding = if flaw == Flaw::Binding { "eSws" } else { "biws" };
        let spoiled = if flaw == Flaw::Nonce { "x" } else { "" };
        let mut message = format!("c={binding},r={spoiled}{}", part("r="));
        let exchanged = format!("{},{challenge},{message}", self.bare);
        let key = hmac(&salted, b"Client Key");
        let signature = hmac(&Sha256::digest(key), exchanged.as_bytes());
        let mut proof: Vec<u8> = key.iter().zip(signature).map(|(byte, other)| byte ^ other).collect();
        if flaw == Flaw::Proof {
            proof[0] ^= 1;
        }
        if flaw != Flaw::NoProof {
            message.push_str(&format!(",p={}", STANDARD.encode(proof)));
        }
        let signature = STANDARD.encode(hmac(&hmac(&salted, b"Server Key"), exchanged.as_bytes()));
        (json!({"authentication": message}), format!("v={signature}"))
    }
}
