//! The secret that the nodes of a cluster share, and how a node proves to another one that it knows the secret, without
//! revealing it.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::{fmt, io};

/// Bytes of a nonce, and of a proof.
pub(crate) const LENGTH: usize = 32;

/// The secret, which all nodes of a cluster know and nobody else does. Without one, the empty secret is used, which
/// everybody knows.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// The secret of these bytes. The empty one proves nothing.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// HMAC-SHA256 over all parts in sequence. Their lengths are fixed, so different lists of parts have different
    /// bytes.
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> [u8; LENGTH] {
        let tag = hmac::sign(&self.0, &parts.concat());
        tag.as_ref().try_into().expect("an HMAC-SHA256 has 32 bytes")
    }

    /// Compares in a time that does not depend on where the proofs differ.
    pub(crate) fn is_proven(&self, parts: &[&[u8]], proof: &[u8; LENGTH]) -> bool {
        hmac::verify(&self.0, &parts.concat(), proof).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(not shown)")
    }
}

/// A random number that was never used before and that nobody can guess.
pub(crate) fn nonce() -> io::Result<[u8; LENGTH]> {
    let mut nonce = [0; LENGTH];
    SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second test case of RFC 4231.
    #[test]
    fn a_proof_is_an_hmac_over_all_parts() {
        let secret = Secret::new(b"Jefe");
        let proof = secret.prove(&[b"what do ya want", b" for nothing?"]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(secret.is_proven(&[b"what do ya want for nothing?"], &proof));
        assert!(!secret.is_proven(&[b"what do ya want for something?"], &proof));
        assert!(!Secret::new(b"").is_proven(&[b"what do ya want for nothing?"], &proof));
        assert!(!format!("{secret:?}").contains("Jefe"));
    }
}
