//! Passwords as a configuration keeps them.

use crate::scram::ScramPassword;
use argon2::password_hash::SaltString;
use argon2::{Argon2, PasswordHash, PasswordHasher, PasswordVerifier};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// A password, kept so that it cannot be read.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// Its SHA-256. Sound for random tokens. A password that people choose is soon guessed by whoever has seen this.
    Sha256([u8; 32]),
    /// Its Argon2 hash with a salt, in the form that begins with `$argon2`: slow on purpose.
    Argon2(String),
    /// With it clients of other protocols, which prove that they know the password, can log in too. Hashed many times, with a salt.
    Scram(ScramPassword),
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(hidden)")
    }
}

/// The text that configurations have.
impl fmt::Display for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(hash) => hash.iter().try_for_each(|byte| write!(formatter, "{byte:02x}")),
            Self::Argon2(text) => formatter.write_str(text),
            Self::Scram(password) => password.fmt(formatter),
        }
    }
}

impl Password {
    /// From 64 hexadecimal digits, as `sha256sum` prints them.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self::Sha256(hash))
    }

    /// From what [`hash`](Self::hash) returned, or any other Argon2 hash with its parameters and its salt.
    pub fn from_argon2(text: &str) -> Option<Self> {
        let hash = PasswordHash::new(text).ok()?;
        let is_whole = hash.algorithm.as_str().starts_with("argon2") && hash.salt.is_some() && hash.hash.is_some();
        is_whole.then(|| Self::Argon2(text.into()))
    }

    /// From a hash of either kind that has a salt.
    pub fn from_salted(text: &str) -> Option<Self> {
        Self::from_argon2(text).or_else(|| text.parse().ok().map(Self::Scram))
    }

    /// The Argon2 hash of a password with a new salt. It takes some tens of milliseconds and 19 MiB.
    ///
    /// # Errors
    /// If the password is longer than Argon2 takes (4 GiB).
    pub fn hash(clear: &[u8]) -> Result<String, String> {
        let salt = SaltString::encode_b64(&rand::random::<[u8; 16]>()).map_err(|error| error.to_string())?;
        Argon2::default().hash_password(clear, &salt).map(|hash| hash.to_string()).map_err(|error| error.to_string())
    }

    /// Whether it takes long to compare with this one.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Argon2(_) | Self::Scram(_))
    }

    /// Whether it is this one. Blocks for as long as [`hash`](Self::hash) if [`is_slow`](Self::is_slow).
    pub fn is(&self, clear: &[u8]) -> bool {
        match self {
            Self::Sha256(hash) => hash.ct_eq(&<[u8; 32]>::from(Sha256::digest(clear))).into(),
            Self::Argon2(text) => {
                PasswordHash::new(text).is_ok_and(|hash| Argon2::default().verify_password(clear, &hash).is_ok())
            }
            Self::Scram(password) => password.is(clear),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_all_kinds_know_their_password() {
        let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let hash = Password::hash(b"secret").unwrap();
        assert_ne!(hash, Password::hash(b"secret").unwrap(), "each has a salt of its own");
        let scram = ScramPassword::new(b"secret", 100).to_string();
        let [slow, provable] = [&hash, &scram].map(|text| Password::from_salted(text).unwrap());
        assert!(slow.is_slow() && provable.is_slow());
        for password in [Password::from_hex(hex).unwrap(), slow, provable] {
            assert!(password.is(b"secret") && !password.is(b"Secret") && !password.is(b""));
        }
        assert_eq!(Password::from_hex("2bb8"), None);
        for wrong in [
            "",
            "secret",
            "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ",
            hex,
            "$pbkdf2-sha256$i=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        ] {
            assert_eq!(Password::from_salted(wrong), None, "{wrong}");
        }
    }
}
