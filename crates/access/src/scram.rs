//! Passwords for SCRAM-SHA-256 (RFC 5802, RFC 7677), by which a client shows that it knows one without sending it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;

const BLOCK: usize = 64;
const SALT_BYTES: usize = 18;
const NAME: &str = "SCRAM-SHA-256";

/// What a server keeps of a password: with it one can check a client's proof, and can make none.
///
/// As text it is `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, as PostgreSQL has it, the parts but the first in Base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramPassword {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

/// A text that is none of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoScramPassword;

impl ScramPassword {
    /// How often new passwords are hashed. Clients do that each time they connect, for some hundredths of a second, and so does
    /// whoever has stolen the text, for each guess.
    pub const ITERATIONS: u32 = 1 << 16;
    /// A client that is told more would be kept busy for minutes.
    pub const MOST_ITERATIONS: u32 = 1 << 24;

    /// With a new salt.
    pub fn new(clear: &[u8], iterations: u32) -> Self {
        Self::with_salt(clear, rand::random::<[u8; SALT_BYTES]>().to_vec(), iterations)
    }

    fn with_salt(clear: &[u8], salt: Vec<u8>, iterations: u32) -> Self {
        let salted = salted(clear, &salt, iterations);
        let stored_key = Sha256::digest(hmac(&salted, b"Client Key")).into();
        Self { iterations, salt, stored_key, server_key: hmac(&salted, b"Server Key") }
    }

    /// One that nobody knows, always the same for `name` and `key`: what a user is asked for who does not exist.
    pub fn unknown(name: &str, key: &[u8; 32], iterations: u32) -> Self {
        let salt = hmac(key, name.as_bytes())[..SALT_BYTES].to_vec();
        Self { iterations, salt, stored_key: rand::random(), server_key: rand::random() }
    }

    /// What the client is told to hash its password with: the salt in Base64, and how often.
    pub fn challenge(&self) -> (String, u32) {
        (STANDARD.encode(&self.salt), self.iterations)
    }

    /// Whether this is the password. Takes as long as a client takes for it.
    pub fn is(&self, clear: &[u8]) -> bool {
        let other = Self::with_salt(clear, self.salt.clone(), self.iterations);
        other.stored_key.ct_eq(&self.stored_key).into()
    }

    /// Whether the proof shows that the client knows the password; then the server's signature in Base64. `exchanged` is what both
    /// have said before the proof.
    pub fn check(&self, exchanged: &str, proof: &[u8; 32]) -> Option<String> {
        let mut client_key = hmac(&self.stored_key, exchanged.as_bytes());
        client_key.iter_mut().zip(proof).for_each(|(byte, other)| *byte ^= other);
        let is_known: bool = Sha256::digest(client_key)[..].ct_eq(&self.stored_key[..]).into();
        is_known.then(|| STANDARD.encode(hmac(&self.server_key, exchanged.as_bytes())))
    }
}

impl fmt::Display for ScramPassword {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(formatter, "{NAME}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for ScramPassword {
    type Err = NoScramPassword;

    fn from_str(text: &str) -> Result<Self, NoScramPassword> {
        let read = || {
            let (name, rest) = text.split_once('$')?;
            let (hashing, keys) = rest.split_once('$')?;
            let ((iterations, salt), (stored, server)) = (hashing.split_once(':')?, keys.split_once(':')?);
            let decode = |text: &str| STANDARD.decode(text).ok();
            let iterations = iterations.parse().ok().filter(|count| (1..=Self::MOST_ITERATIONS).contains(count))?;
            let salt = decode(salt).filter(|salt| !salt.is_empty())?;
            let (stored_key, server_key) = (decode(stored)?.try_into().ok()?, decode(server)?.try_into().ok()?);
            (name == NAME).then_some(Self { iterations, salt, stored_key, server_key })
        };
        read().ok_or(NoScramPassword)
    }
}

/// A number that was never used before, as text without commas.
pub fn nonce() -> String {
    STANDARD.encode(rand::random::<[u8; SALT_BYTES]>())
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    Hmac::new(key).of(text)
}

/// HMAC-SHA-256 with its key taken in once, for many texts.
struct Hmac {
    inner: Sha256,
    outer: Sha256,
}

impl Hmac {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad: u8| Sha256::new().chain_update(block.map(|byte| byte ^ pad));
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    fn of(&self, text: &[u8]) -> [u8; 32] {
        let inner = self.inner.clone().chain_update(text).finalize();
        self.outer.clone().chain_update(inner).finalize().into()
    }
}

/// PBKDF2 with HMAC-SHA-256, of one block.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let hmac = Hmac::new(password);
    let mut last = hmac.of(&[salt, &1_u32.to_be_bytes()].concat());
    let mut all = last;
    for _ in 1..iterations {
        last = hmac.of(&last);
        all.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677.
    #[test]
    fn a_proof_shows_that_the_password_is_known() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let password = ScramPassword::with_salt(b"pencil", salt, 4096);
        assert_eq!(password.challenge(), ("W22ZaJ0SNY7soEsUEjb6gQ==".into(), 4096));
        let exchanged = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof: [u8; 32] =
            STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap().try_into().unwrap();
        let signature = password.check(exchanged, &proof);
        assert_eq!(signature.as_deref(), Some("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        let mut wrong = proof;
        wrong[31] ^= 1;
        assert_eq!(password.check(exchanged, &wrong), None);
        assert_eq!(password.check(&exchanged[1..], &proof), None);
        assert!(password.is(b"pencil") && !password.is(b"Pencil") && !password.is(b""));
    }

    #[test]
    fn the_text_of_a_password_is_read_as_it_was_written() {
        let password = ScramPassword::new(b"secret", 10);
        assert_ne!(password, ScramPassword::new(b"secret", 10), "each has a salt of its own");
        let text = password.to_string();
        assert_eq!(text.parse(), Ok(password));
        // What PostgreSQL would keep of the password of RFC 7677.
        let other = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                     wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let other: ScramPassword = other.parse().unwrap();
        assert!(other.is(b"pencil"));
        for wrong in ["", "$", "SCRAM-SHA-256", &text[1..], &text[..text.len() - 1], &text.replace("$10:", "$0:")] {
            assert_eq!(wrong.parse::<ScramPassword>(), Err(NoScramPassword), "{wrong}");
        }
        assert_eq!(text.replace("$10:", "$99999999:").parse::<ScramPassword>(), Err(NoScramPassword));
    }

    #[test]
    fn a_user_who_does_not_exist_has_the_same_salt_each_time() {
        let asked = |name| ScramPassword::unknown(name, &[7; 32], 10).challenge();
        assert_eq!(asked("ann"), asked("ann"));
        assert_ne!(asked("ann"), asked("ben"));
    }
}
