//! Bearer tokens. Only a token's digest is stored, and only its name is shown.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Role;

/// Smallest length of a token in a file: 32 characters of 6 bits cannot be guessed.
const TOKEN_BYTES_MIN: usize = 32;
/// Largest length of a token, which must fit in a header.
const TOKEN_BYTES_MAX: usize = 1024;

/// A bearer token, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Reasons why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// Too short or too long.
    #[error(
        "it holds a token of {0} characters; accepted: {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}, at random (equipoise api-token FILE)"
    )]
    Length(usize),
    /// Characters that a header cannot carry, or more than one line.
    #[error(
        "it holds several tokens or invalid characters; accepted: one line of letters, digits and -._~+/="
    )]
    Characters,
}

impl Token {
    /// Creates a token from 256 bits of the system's randomness.
    pub fn of_randomness(bytes: [u8; 32]) -> Token {
        Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The secret text, for sending it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = BadToken;

    /// Reads the content of a file or variable. White space around the token is ignored.
    fn from_str(text: &str) -> Result<Token, BadToken> {
        let text = text.trim();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) {
            return Err(BadToken::Length(text.len()));
        }
        // RFC 6750, section 2.1.
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !text.bytes().all(fits) {
            return Err(BadToken::Characters);
        }
        Ok(Token(text.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}

/// SHA-256 of a token. Because tokens are random, no slower hash is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not `sha256:` and 64 hexadecimal digits")]
pub struct BadDigest;

impl TokenDigest {
    /// The digest of a token that a caller presents.
    pub fn of(presented: &[u8]) -> TokenDigest {
        TokenDigest(Sha256::digest(presented).into())
    }
}

impl FromStr for TokenDigest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<TokenDigest, BadDigest> {
        let hex = text.strip_prefix("sha256:").ok_or(BadDigest)?.as_bytes();
        let mut digest = [0; 32];
        if hex.len() != 2 * digest.len() || !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadDigest);
        }
        for (byte, pair) in digest.iter_mut().zip(hex.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| BadDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| BadDigest)?;
        }
        Ok(TokenDigest(digest))
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(not shown)")
    }
}

/// An accepted token, of which only the digest is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Name of its holder in the audit log; unique.
    pub name: Arc<str>,
    /// Role of its holder.
    pub role: Role,
    /// Digest of the token.
    pub digest: TokenDigest,
}

/// The accepted token that was presented, if it is one. The time does not depend on which token
/// matches or whether one does: all are compared, each completely.
pub(super) fn find<'t>(tokens: &'t [ApiToken], presented: &[u8]) -> Option<&'t ApiToken> {
    let presented = TokenDigest::of(presented);
    let mut found = None;
    for token in tokens {
        if bool::from(token.digest.0.ct_eq(&presented.0)) {
            found = Some(token);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_of_enough_characters() {
        let good = "0123456789abcdef0123456789abcdef";
        assert_eq!(format!(" {good}\n").parse::<Token>().unwrap().reveal(), good);
        assert_eq!("".parse::<Token>(), Err(BadToken::Length(0)));
        assert_eq!("short".parse::<Token>(), Err(BadToken::Length(5)));
        assert_eq!("x".repeat(1025).parse::<Token>(), Err(BadToken::Length(1025)));
        assert_eq!(format!("{good}\n{good}").parse::<Token>(), Err(BadToken::Characters));
        assert_eq!(format!("{good}\u{e9}").parse::<Token>(), Err(BadToken::Characters));
    }

    #[test]
    fn neither_a_token_nor_its_digest_is_shown_by_debug() {
        let token: Token = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let digest = TokenDigest::of(token.reveal().as_bytes());
        let kept = ApiToken { name: "ci".into(), role: Role::Read, digest };
        let shown = format!("{token:?} {kept:?}");
        assert!(!shown.contains("0123") && !shown.contains(&digest.to_string()[7..15]), "{shown}");
    }

    #[test]
    fn a_digest_reads_as_it_is_written() {
        // FIPS 180-2, appendix B.1.
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenDigest::of(b"abc").to_string(), known);
        assert_eq!(known.parse(), Ok(TokenDigest::of(b"abc")));
        for bad in ["", "sha256:", &known[7..], &known[..70], "sha256:+7", &known.replace('b', "g")]
        {
            assert_eq!(bad.parse::<TokenDigest>(), Err(BadDigest), "{bad}");
        }
    }

    #[test]
    fn only_the_whole_token_is_found() {
        let kept = |name: &str, text: &str| ApiToken {
            name: name.into(),
            role: Role::Read,
            digest: TokenDigest::of(text.as_bytes()),
        };
        let tokens = [kept("a", "alpha"), kept("b", "beta")];
        assert_eq!(find(&tokens, b"beta").unwrap().name.as_ref(), "b");
        for wrong in ["", "bet", "betaa", "BETA"] {
            assert!(find(&tokens, wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(find(&[], b"alpha").is_none());
    }
}
