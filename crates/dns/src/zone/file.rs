//! Reads a zone file (RFC 1035, section 5), of which everything but the balanced names comes.

use bytes::Bytes;
use domain::base::iana::Class;
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};

use crate::config::{Name, StaticRecord};

/// Records of a file: more of them belong on a server for large zones.
pub const RECORDS_MAX: usize = 100_000;

/// Why a zone file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneFileError {
    /// It is not what RFC 1035 describes.
    #[error(
        "not a zone file: {0}; accepted: records as in RFC 1035, section 5, such as `www 300 IN A 192.0.2.1`"
    )]
    Syntax(String),
    /// It names another file.
    #[error("$INCLUDE is not followed (\"{0}\"); accepted: its records in this file")]
    Include(String),
    /// A class other than IN.
    #[error("`{owner}` has class {class}; accepted: IN")]
    Class {
        /// Whose record it is.
        owner: String,
        /// Its class.
        class: String,
    },
    /// More than [`RECORDS_MAX`] records.
    #[error("more than {RECORDS_MAX} records; accepted: at most that many")]
    TooMany,
}

/// The records of a zone file. Names without a final dot are below `origin`, or below what `$ORIGIN` says.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read(text: &str, origin: &Name) -> Result<Vec<StaticRecord>, ZoneFileError> {
    let mut zonefile = Zonefile::from(text);
    if let Ok(origin) = domain::base::Name::from_octets(Bytes::copy_from_slice(origin.as_slice())) {
        zonefile.set_origin(origin);
    }
    zonefile.set_default_class(Class::IN);
    let mut records = Vec::new();
    while let Some(entry) = zonefile.next_entry().map_err(|error| syntax(&error))? {
        let record = match entry {
            Entry::Record(record) => record,
            Entry::Include { path, .. } => return Err(ZoneFileError::Include(path.to_string())),
        };
        let mut owner: Name = record.owner().to_vec();
        owner.make_canonical();
        if record.class() != Class::IN {
            let (owner, class) = (owner.fmt_with_dot().to_string(), record.class().to_string());
            return Err(ZoneFileError::Class { owner, class });
        }
        if records.len() == RECORDS_MAX {
            return Err(ZoneFileError::TooMany);
        }
        let mut body = Vec::new();
        if record.data().compose_rdata(&mut body).is_err() {
            return Err(ZoneFileError::Syntax(format!(
                "a record of {} is too long",
                owner.fmt_with_dot()
            )));
        }
        let (rtype, ttl) = (record.rtype(), record.ttl().as_secs());
        records.push(StaticRecord { owner, rtype, ttl, body });
    }
    Ok(records)
}

/// Where the scanner was, and what it met. A record whose last word is wrong is noticed at the start of the next
/// line; the line before is the one to look at.
fn syntax(error: &domain::zonefile::inplace::Error) -> ZoneFileError {
    let text = error.to_string();
    let parts: Vec<&str> = text.splitn(3, ':').collect();
    let told = match parts[..] {
        [line, column, what] => line.parse::<usize>().ok().map(|line| {
            let line = if column == "1" && line > 1 { line - 1 } else { line };
            format!("line {line}:{what}")
        }),
        _ => None,
    };
    ZoneFileError::Syntax(told.unwrap_or(text))
}
