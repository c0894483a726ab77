use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of a cluster, a node or a controller: 1 to 64 letters, digits, `.`, `_` and `-`, the
/// first a letter or digit. It fits a certificate's common name, a URI and a key of the store
/// without escaping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The text is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a name; accepted: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit"
)]
pub struct NotAName {
    given: String,
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Name, NotAName> {
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let accepted = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if begins_well && text.len() <= 64 && text.bytes().all(accepted) {
            return Ok(Name(text.to_string()));
        }
        // It may come from a peer, so only a line of it is kept.
        Err(NotAName { given: text.chars().take(80).collect() })
    }
}

impl TryFrom<String> for Name {
    type Error = NotAName;

    fn try_from(text: String) -> Result<Name, NotAName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_unsafe_in_a_uri_or_store_key_is_rejected() {
        for good in ["a", "edge-1", "10.0.0.1", "A_b.c", &"x".repeat(64)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".", "a/b", "a b", "a%2f", "é", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
