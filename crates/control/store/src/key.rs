use std::fmt;
use std::sync::Arc;

/// Name of an entry: segments joined by `/`. The first segment is the kind of state (`pools/web`).
///
/// A segment has one or more of `A-Z a-z 0-9 . _ : @ + -`, so that keys are readable in `etcdctl`,
/// logs and URLs, and a prefix never ends inside a name. A key has at most [`Key::BYTES_MAX`]
/// bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// A folder of keys: whole segments with a final `/`. The empty prefix contains all keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(Arc<str>);

/// Reason why a text is not a valid [`Key`] or [`Prefix`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// The text or a segment is empty.
    #[error(
        "store key {0:?} has an empty segment: write segments joined by single slashes, as in pools/web"
    )]
    EmptySegment(String),
    /// The text has a character that is not allowed.
    #[error(
        "store key {key:?} has {character:?}; accepted are letters, digits and . _ : @ + -, and / between segments"
    )]
    Character {
        /// The text.
        key: String,
        /// The first invalid character.
        character: char,
    },
    /// The text is longer than [`Key::BYTES_MAX`].
    #[error("a store key of {bytes} bytes is too long; at most {max}", max = Key::BYTES_MAX)]
    TooLong {
        /// Length of the text, bytes.
        bytes: usize,
    },
}

impl Key {
    /// Maximum length of a key, bytes.
    pub const BYTES_MAX: usize = 512;

    /// Parses a key.
    ///
    /// # Errors
    /// [`KeyError`] if the text is not a sequence of segments joined by `/`.
    pub fn new(text: &str) -> Result<Key, KeyError> {
        check(text).map(|()| Key(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last segment: the entry's name among its kind.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl Prefix {
    /// Returns the prefix of all keys.
    pub fn all() -> Prefix {
        Prefix("".into())
    }

    /// Returns the prefix of all keys below `folder`: `Prefix::of("pools")` contains `pools/web`.
    ///
    /// # Errors
    /// [`KeyError`] if the text is not a sequence of segments joined by `/`.
    pub fn of(folder: &str) -> Result<Prefix, KeyError> {
        check(folder).map(|()| Prefix(format!("{folder}/").into()))
    }

    /// Returns the key `name` in this folder.
    ///
    /// # Errors
    /// [`KeyError`] if `name` is not a valid segment, or the key is too long.
    pub fn key(&self, name: &str) -> Result<Key, KeyError> {
        Key::new(&format!("{}{name}", self.0))
    }

    /// Whether `key` is in this folder.
    pub fn has(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    /// Returns the text, with its final `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<(), KeyError> {
    if text.len() > Key::BYTES_MAX {
        return Err(KeyError::TooLong { bytes: text.len() });
    }
    if text.split('/').any(str::is_empty) {
        return Err(KeyError::EmptySegment(text.to_string()));
    }
    let accepted = |c: char| c.is_ascii_alphanumeric() || "._:@+-/".contains(c);
    match text.chars().find(|c| !accepted(*c)) {
        Some(character) => Err(KeyError::Character { key: text.to_string(), character }),
        None => Ok(()),
    }
}

/// Allows range searches by prefix in a map of keys.
impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

macro_rules! shown_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

shown_as_text!(Key, Prefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_segments_joined_by_slashes() {
        for good in ["a", "pools/web", "members/edge-1", "n/10.0.0.1:80"] {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        for empty in ["", "/", "/a", "a/", "a//b"] {
            assert_eq!(Key::new(empty), Err(KeyError::EmptySegment(empty.to_string())));
        }
        for bad in ["a b", "é", "a\0", "a%2f", "a\\b", "[::1]"] {
            assert!(matches!(Key::new(bad), Err(KeyError::Character { .. })), "{bad:?}");
        }
    }

    #[test]
    fn a_key_has_at_most_512_bytes() {
        assert!(Key::new(&"a".repeat(512)).is_ok());
        assert_eq!(Key::new(&"a".repeat(513)), Err(KeyError::TooLong { bytes: 513 }));
    }

    #[test]
    fn a_prefix_does_not_end_inside_a_name() {
        let pools = Prefix::of("pools").unwrap();
        assert!(pools.has(&Key::new("pools/web").unwrap()));
        assert!(pools.has(&Key::new("pools/web/backends").unwrap()));
        assert!(!pools.has(&Key::new("pools").unwrap()));
        assert!(!pools.has(&Key::new("poolside/web").unwrap()));
        assert!(Prefix::all().has(&Key::new("anything").unwrap()));
        assert_eq!(pools.key("web").unwrap().name(), "web");
        assert!(pools.key("").is_err());
    }
}
