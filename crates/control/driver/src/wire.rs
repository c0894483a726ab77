//! The JSON objects that scripts and webhooks receive and return.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::driver::{Added, Ask, Listed};

/// Longest accepted answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest accepted id, in bytes.
const ID_BYTES_MAX: usize = 1024;

#[derive(Serialize)]
struct Question<'a> {
    action: &'a str,
    pool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

/// `{"action":"add","pool":"web","name":"web-e1","size":"small","key":"...","attempt":1}`. A
/// request to `remove` also has the address and the id.
pub(crate) fn question(action: &str, ask: &Ask) -> Vec<u8> {
    json(&Question {
        action,
        pool: &ask.pool,
        name: Some(&ask.name),
        size: ask.size.as_deref(),
        key: Some(&ask.key),
        attempt: Some(ask.attempt),
        address: ask.address,
        id: ask.id.as_deref(),
    })
}

/// `{"action":"list","pool":"web"}`.
pub(crate) fn list_question(pool: &str) -> Vec<u8> {
    let (action, name, size, key, attempt, address, id) =
        ("list", None, None, None, None, None, None);
    json(&Question { action, pool, name, size, key, attempt, address, id })
}

fn json(question: &Question<'_>) -> Vec<u8> {
    serde_json::to_vec(question).expect("strings and numbers are written as JSON")
}

/// Unknown fields are ignored, so that a script may return more.
#[derive(Deserialize)]
struct AddAnswer {
    address: SocketAddr,
    id: Option<String>,
}

#[derive(Deserialize)]
struct ListAnswer {
    backends: Vec<ListRow>,
}

#[derive(Deserialize)]
struct ListRow {
    name: String,
    address: SocketAddr,
    id: Option<String>,
    size: Option<String>,
}

/// An answer that does not have the expected content.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not the expected JSON object.
    #[error("the answer to `{action}` is {found:?}; expected {expected}")]
    Shape {
        /// The requested action.
        action: &'static str,
        /// The expected object.
        expected: &'static str,
        /// The beginning of the answer.
        found: String,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The address is one at which no backend can be reached.
    #[error("the answer has the address {0}, where no backend can be reached")]
    Unreachable(SocketAddr),
    /// The id is too long.
    #[error("the answer has an id of {0} bytes; at most {ID_BYTES_MAX} are kept")]
    IdTooLong(usize),
}

/// Parses `{"address":"10.0.0.7:8080","id":"i-42"}`. A missing id is replaced by the name.
pub(crate) fn added(answer: &[u8], name: &str) -> Result<Added, AnswerError> {
    let expected = r#"{"address": "IP:PORT", "id": "..."}"#;
    let answer: AddAnswer = parse("add", expected, answer)?;
    checked(answer.address, answer.id, name)
}

/// Parses `{"backends":[{"name":"web-e1","address":"10.0.0.7:8080","id":"i-42","size":"small"}]}`.
pub(crate) fn listed(answer: &[u8]) -> Result<Vec<Listed>, AnswerError> {
    let expected =
        r#"{"backends": [{"name": "...", "address": "IP:PORT", "id": "...", "size": "..."}]}"#;
    let answer: ListAnswer = parse("list", expected, answer)?;
    let row = |row: ListRow| {
        let added = checked(row.address, row.id, &row.name)?;
        Ok(Listed { name: row.name, added, size: row.size })
    };
    answer.backends.into_iter().map(row).collect()
}

fn checked(address: SocketAddr, id: Option<String>, name: &str) -> Result<Added, AnswerError> {
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err(AnswerError::Unreachable(address));
    }
    let id = id.unwrap_or_else(|| name.to_string());
    if id.len() > ID_BYTES_MAX {
        return Err(AnswerError::IdTooLong(id.len()));
    }
    Ok(Added { address, id })
}

fn parse<T: serde::de::DeserializeOwned>(
    action: &'static str,
    expected: &'static str,
    answer: &[u8],
) -> Result<T, AnswerError> {
    serde_json::from_slice(answer).map_err(|source| {
        let found = beginning(answer);
        AnswerError::Shape { action, expected, found, source }
    })
}

/// The first 200 bytes, as text.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_an_address_that_can_be_reached() {
        let fine = added(br#"{"address": "10.0.0.7:80", "id": "i", "zone": "b"}"#, "n").unwrap();
        assert_eq!(fine, Added { address: "10.0.0.7:80".parse().unwrap(), id: "i".to_string() });
        assert_eq!(added(br#"{"address": "[::1]:80"}"#, "n").unwrap().id, "n");
        let long = format!(r#"{{"address": "10.0.0.7:80", "id": "{}"}}"#, "x".repeat(2000));
        let rows: [(&[u8], &str); 7] = [
            (b"", "is \"\"; expected {\"address\": \"IP:PORT\", \"id\": \"...\"}"),
            (b"started!", "is \"started!\""),
            (br#"{"id": "i"}"#, "expected"),
            (br#"{"address": "backend:80"}"#, "expected"),
            (br#"{"address": "0.0.0.0:80"}"#, "no backend can be reached"),
            (br#"{"address": "10.0.0.7:0"}"#, "no backend can be reached"),
            (long.as_bytes(), "an id of 2000 bytes"),
        ];
        for (answer, expected) in rows {
            let found = added(answer, "n").unwrap_err().to_string();
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
    }

    #[test]
    fn a_listing_is_read_whole_or_not_at_all() {
        let one = r#"{"name": "web-e1", "address": "10.0.0.7:80", "size": "small"}"#;
        let found = listed(format!(r#"{{"backends": [{one}]}}"#).as_bytes()).unwrap();
        assert_eq!((found[0].name.as_str(), found[0].size.as_deref()), ("web-e1", Some("small")));
        assert!(listed(format!(r#"{{"backends": [{one}, 7]}}"#).as_bytes()).is_err());
        assert!(listed(b"[]").is_err());
    }
}
