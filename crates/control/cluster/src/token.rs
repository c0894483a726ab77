//! Join tokens, with which an operator lets a machine join, once or for a limited time.

mod admission;
mod shelf;

pub(crate) use admission::{Applicant, judge};
pub use admission::{JoinRefused, NodeRecord, TokenRecord, Used};
pub use shelf::{TokenError, TokenWish, Tokens};

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Fingerprint;
use crate::fingerprint::sha256;

/// `eqp1.ID.SECRET.FINGERPRINT`: the token's id, its secret, and the authority that its bearer
/// trusts.
///
/// The secret has 256 random bits, so storing its plain hash is enough. `Debug` shows only the id.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    id: TokenId,
    secret: [u8; 32],
    authority: Fingerprint,
}

/// Identifies a token in lists, logs and commands: 10 hexadecimal digits, not secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId(String);

/// The text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a join token; expected one line eqp1.ID.SECRET.FINGERPRINT, as printed by `equipoise cluster token create`"
)]
pub struct NotAToken;

const FORM: &str = "eqp1";

impl JoinToken {
    /// A new token for this authority's cluster.
    pub fn new(authority: Fingerprint) -> JoinToken {
        let id: [u8; 5] = rand::random();
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        JoinToken { id: TokenId(id), secret: rand::random(), authority }
    }

    /// The token's id.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The authority that its bearer trusts.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// The stored hash of the secret.
    pub fn secret_hash(&self) -> String {
        URL_SAFE_NO_PAD.encode(sha256(&self.secret))
    }

    /// The whole token, to hand it over. Not for logs.
    pub fn reveal(&self) -> String {
        format!("{FORM}.{}.{}.{}", self.id, URL_SAFE_NO_PAD.encode(self.secret), self.authority)
    }
}

impl FromStr for JoinToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<JoinToken, NotAToken> {
        let mut parts = text.trim().split('.');
        let (Some(FORM), Some(id), Some(secret), Some(authority), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAToken);
        };
        let secret = URL_SAFE_NO_PAD.decode(secret).map_err(|_| NotAToken)?;
        Ok(JoinToken {
            id: id.parse()?,
            secret: secret.try_into().map_err(|_| NotAToken)?,
            authority: authority.parse().map_err(|_| NotAToken)?,
        })
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("id", &self.id).finish_non_exhaustive()
    }
}

impl FromStr for TokenId {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<TokenId, NotAToken> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let fits = text.len() == 10 && text.bytes().all(is_digit);
        if fits { Ok(TokenId(text.to_string())) } else { Err(NotAToken) }
    }
}

impl TokenId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TokenId {
    type Error = NotAToken;

    fn try_from(text: String) -> Result<TokenId, NotAToken> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> String {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_its_debug_hides_the_secret() {
        let token = JoinToken::new(Fingerprint::of_key(b"some key"));
        let text = token.reveal();
        assert_eq!(format!("{text}\n").parse::<JoinToken>().unwrap(), token);
        let secret = text.split('.').nth(2).unwrap();
        let shown = format!("{token:?}");
        assert!(shown.contains(token.id().as_str()) && !shown.contains(secret), "{shown}");
        assert!(!text.contains(&token.secret_hash()));
    }

    #[test]
    fn new_tokens_differ_in_both_id_and_secret() {
        let authority = Fingerprint::of_key(b"some key");
        let (one, other) = (JoinToken::new(authority), JoinToken::new(authority));
        assert_ne!(one.id(), other.id());
        assert_ne!(one.secret, other.secret);
    }

    #[test]
    fn a_truncated_or_altered_token_text_is_rejected() {
        let text = JoinToken::new(Fingerprint::of_key(b"some key")).reveal();
        for cut in 0..text.len() {
            assert!(text[..cut].parse::<JoinToken>().is_err(), "{}", &text[..cut]);
        }
        for spoilt in [text.replacen("eqp1", "eqp2", 1), format!("{text}.x"), format!("{text}A")] {
            assert!(spoilt.parse::<JoinToken>().is_err(), "{spoilt}");
        }
    }
}
