//! Server ids of QUIC with the names of their backends.

use std::str::FromStr;

use equipoise_packet::{NotHex, ServerId};

/// `NAME=ID` of `server-ids`. Names may have a `=`.
pub(super) struct NamedId {
    pub(super) name: String,
    pub(super) id: ServerId,
}

impl FromStr for NamedId {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<NamedId, NotHex> {
        let (name, id) =
            text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or(NotHex)?;
        Ok(NamedId { name: name.into(), id: id.parse()? })
    }
}
