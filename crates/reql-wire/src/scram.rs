//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const BLOCK: usize = 64;
/// How often the password is hashed. It is not kept, so this protects nothing but a listener's view of the exchange.
pub(crate) const ITERATIONS: u32 = 4096;

pub(crate) fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// PBKDF2 with HMAC-SHA-256, of one block.
pub(crate) fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut all = last;
    for _ in 1..iterations {
        last = hmac(password, &last);
        all.iter_mut().zip(last).for_each(|(byte, other)| *byte ^= other);
    }
    all
}

/// Whether the client's proof (base64) shows that it knows the password; then the server's signature (base64).
pub(crate) fn check(salted: &[u8; 32], exchanged: &str, proof: &str) -> Option<String> {
    let proof: [u8; 32] = STANDARD.decode(proof).ok()?.try_into().ok()?;
    let client_key = hmac(salted, b"Client Key");
    let signature = hmac(&Sha256::digest(client_key), exchanged.as_bytes());
    let differs = (0..32).fold(0, |differs, at| differs | (client_key[at] ^ signature[at] ^ proof[at]));
    (differs == 0).then(|| STANDARD.encode(hmac(&hmac(salted, b"Server Key"), exchanged.as_bytes())))
}

pub(crate) fn random_text() -> String {
    STANDARD.encode(rand::random::<[u8; 18]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exchange_of_rfc_7677() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted(b"pencil", &salt, 4096);
        let exchanged = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = check(&salted, exchanged, "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(signature.as_deref(), Some("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert_eq!(check(&salted, exchanged, "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVU="), None);
        assert_eq!(check(&salted, exchanged, "no base64"), None);
    }
}
