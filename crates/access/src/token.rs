use crate::password::Password;

/// The token of the admin API, kept so that it cannot be read: its SHA-256, which is sound for what is random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(Password);

impl Token {
    /// From 64 hexadecimal digits, as `sha256sum` prints them.
    pub fn from_hex(digits: &str) -> Option<Self> {
        Password::from_hex(digits).map(Self)
    }

    /// Whether it is this one. How long that takes does not depend on how much of it is right.
    pub fn is(&self, clear: &str) -> bool {
        self.0.is(clear.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash() {
        let hex = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let token = Token::from_hex(hex).unwrap();
        assert!(token.is("secret") && !token.is("Secret") && !token.is("") && !token.is(hex));
        assert_eq!((Token::from_hex(""), Token::from_hex(&hex[1..])), (None, None));
    }
}
