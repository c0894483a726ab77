//! The answer that a query would get, for explanations.

use std::net::IpAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::base::iana::Rtype;
use domain::rdata::AllRecordData;

use crate::Reason;
use crate::config::{Name, UDP_PAYLOAD_MAX};
use crate::now::Now;
use crate::respond::{Published, Responder};
use crate::snapshot::NameStatus;
use crate::stats::{Shard, Transport};

/// The thread of a responder whose answers are not counted.
const NO_THREAD: usize = usize::MAX;

/// The answer that a query would get.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The name that is asked for, with its final dot.
    pub name: String,
    /// The response code, such as `NOERROR`.
    pub code: String,
    /// The records of the answer, each with name, TTL, type and data.
    pub records: Vec<String>,
    /// Addresses among them.
    pub addresses: Vec<IpAddr>,
    /// The balanced name of the answer. Its members are drawn for each answer, unless `by_load`.
    pub balanced: Option<NameStatus>,
    /// The load of this client is known, so its answers have the members furthest behind their
    /// shares.
    pub by_load: bool,
}

/// Error of a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreviewError {
    /// It is no domain name.
    #[error("`{0}` is not a domain name")]
    Name(String),
    /// It is no record type.
    #[error("`{0}` is not a record type; accepted: such as A, AAAA or SRV")]
    Type(String),
    /// There is no answer.
    #[error("a query for it gets no answer: {}", .0.name())]
    Dropped(Reason),
}

impl Published {
    /// The answer to a query of `client` over TCP, by the function that answers queries. Counts
    /// nothing, and leaves the accounts of loads as they are.
    ///
    /// # Errors
    /// [`PreviewError`].
    pub fn preview(
        &self,
        name: &str,
        rtype: &str,
        client: IpAddr,
    ) -> Result<Preview, PreviewError> {
        let asked = Name::vec_from_str(name).map_err(|_| PreviewError::Name(name.into()))?;
        let rtype = rtype.to_ascii_uppercase();
        let known = rtype.parse::<Rtype>().map_err(|_| PreviewError::Type(rtype.clone()))?;
        let query = query(&asked, known);
        // Without loads, members are drawn by share.
        let published = Published { snapshot: Arc::clone(&self.snapshot), loads: Arc::default() };
        let mut responder = Responder::new(NO_THREAD, rand::random());
        let mut out = vec![0; usize::from(u16::MAX).max(UDP_PAYLOAD_MAX.into())];
        let from = (client, Transport::Tcp);
        let length = responder
            .respond(&published, &Shard::default(), from, Now::default(), &query, &mut out)
            .map_err(PreviewError::Dropped)?;
        let mut preview = Preview {
            name: asked.fmt_with_dot().to_string(),
            code: String::new(),
            records: Vec::new(),
            addresses: Vec::new(),
            balanced: None,
            by_load: false,
        };
        preview.read(&out[..length]);
        let gives_all = |name: &NameStatus| name.mode.gives_all();
        preview.by_load = preview.balanced(&self.snapshot.names_told).is_some_and(|name| {
            let by_load = !gives_all(name) && self.loads.find_client(client).is_some();
            preview.balanced = Some(name.clone());
            by_load
        });
        Ok(preview)
    }
}

impl Preview {
    /// Reads an answer.
    fn read(&mut self, answer: &[u8]) {
        // The level's own answer is readable.
        let Ok(message) = Message::from_octets(answer) else { return };
        self.code = message.opt_rcode().to_string();
        let Ok(section) = message.answer() else { return };
        for record in section.limit_to::<AllRecordData<_, _>>().flatten() {
            match record.data() {
                AllRecordData::A(a) => self.addresses.push(a.addr().into()),
                AllRecordData::Aaaa(aaaa) => self.addresses.push(aaaa.addr().into()),
                _ => {}
            }
            let (owner, ttl) = (record.owner(), record.ttl().as_secs());
            let owner = owner.to_string();
            let text = format!("{owner}. {ttl} {} {}", record.rtype(), record.data());
            self.records.push(text);
        }
    }

    /// The balanced name: the last owner, or else the name itself.
    fn balanced<'n>(&self, names: &'n [NameStatus]) -> Option<&'n NameStatus> {
        let last = self.records.last().and_then(|record| record.split(' ').next());
        let owner = last.unwrap_or(&self.name);
        names.iter().find(|name| name.name.eq_ignore_ascii_case(owner))
    }
}

/// A query of class IN.
fn query(name: &Name, rtype: Rtype) -> Vec<u8> {
    let mut query = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(name.as_slice());
    query.extend(rtype.to_int().to_be_bytes());
    query.extend(1u16.to_be_bytes());
    query
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Standing;
    use crate::fixture::{Server, config, states};

    const CLIENT: &str = "198.51.100.7";

    fn preview(server: &Server, name: &str, rtype: &str) -> Result<Preview, PreviewError> {
        server.published.preview(name, rtype, CLIENT.parse().expect("an address"))
    }

    #[test]
    fn a_balanced_name_has_its_members_and_nothing_is_counted() {
        let parts = [
            (Standing::Serving, 3.0),
            (Standing::Draining, 1.0),
            (Standing::Serving, 1.0),
            (Standing::Unhealthy, 1.0),
        ];
        let server = Server::of(&config(), &states(parts));
        for _ in 0..20 {
            let found = preview(&server, "WWW.cluster.example", "a").expect("a name");
            assert_eq!(found.code, "NOERROR");
            let possible = |address: &IpAddr| {
                ["192.0.2.11", "192.0.2.13"].contains(&address.to_string().as_str())
            };
            assert!(!found.addresses.is_empty(), "{found:?}");
            assert!(found.addresses.iter().all(possible), "{found:?}");
            let balanced = found.balanced.expect("it is balanced");
            let shares: Vec<_> = balanced.nodes.iter().map(|node| node.share).collect();
            assert_eq!(shares, [0.75, 0.0, 0.25, 0.0]);
            assert!(!found.by_load);
        }
        assert!(server.published.snapshot.tallies().sums().iter().all(|(_, count)| *count == 0));
    }

    #[test]
    fn other_names_have_their_records_or_a_code() {
        let server = Server::new();
        let soa = preview(&server, "cluster.example.", "SOA").expect("a name");
        assert!(soa.records[0].starts_with("cluster.example. 3600 SOA "), "{soa:?}");
        let code = |name: &str| preview(&server, name, "A").expect("a name").code;
        assert_eq!(code("missing.cluster.example"), "NXDOMAIN");
        assert_eq!(code("other.example"), "REFUSED");
        let long = "a".repeat(64);
        assert_eq!(preview(&server, &long, "A"), Err(PreviewError::Name(long)));
        assert_eq!(preview(&server, "a.example", "x"), Err(PreviewError::Type("X".into())));
    }
}
