//! The message path: bytes in, bytes out. Answers are read with the `domain` crate, which shares no
//! code with the writer.

mod additional;
mod answers;
mod edns;
mod errors;
mod limits;
mod mutated;
mod nested;

use domain::base::iana::Rcode;
use domain::base::{Message, Name as DomainName};
use domain::rdata::ZoneRecordData;

pub(super) use crate::fixture::{Server, config, name, query, snapshot, states, wire, with_opt};
pub(super) use crate::message::code::*;

/// A response in text: code, flags, and the records of each section.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(super) struct Told {
    pub(super) code: String,
    pub(super) flags: String,
    pub(super) sections: [Vec<String>; 3],
}

/// Reads a whole response; panics if anything is wrong with it.
pub(super) fn told(bytes: &[u8]) -> Told {
    let message = Message::from_octets(bytes).expect("a message");
    let header = message.header();
    assert!(header.qr());
    let flags = [
        (header.aa(), "aa"),
        (header.tc(), "tc"),
        (header.rd(), "rd"),
        (header.ra(), "ra"),
        (header.cd(), "cd"),
    ];
    let flags: Vec<_> = flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word).collect();
    let mut sections: [Vec<String>; 3] = Default::default();
    let (_, answer, authority, additional) = message.sections().expect("sections");
    let mut end = 0;
    for (section, told) in [answer, authority, additional].into_iter().zip(&mut sections) {
        let mut records = section;
        for record in &mut records {
            let record = record.expect("a record");
            if record.rtype() == domain::base::iana::Rtype::OPT {
                continue;
            }
            let record = record
                .into_record::<ZoneRecordData<_, _>>()
                .expect("record data")
                .expect("of a known type");
            told.push(format!(
                "{} {} {} {}",
                record.owner(),
                record.ttl().as_secs(),
                record.rtype(),
                record.data()
            ));
        }
        end = records.pos();
    }
    assert_eq!(end, bytes.len(), "bytes behind the last record");
    let code = message.opt_rcode();
    assert!(code != domain::base::iana::OptRcode::NOERROR || header.rcode() == Rcode::NOERROR);
    Told { code: code.to_string(), flags: flags.join(" "), sections }
}

pub(super) fn ask(server: &mut Server, text: &str, rtype: u16) -> Told {
    told(&server.udp(&query(text, rtype)))
}

/// The address, or the last word, of each record of a section.
pub(super) fn last_words(records: &[String]) -> Vec<&str> {
    records.iter().filter_map(|record| record.rsplit(' ').next()).collect()
}

#[test]
fn every_name_of_the_fixture_is_a_name() {
    assert!(DomainName::<Vec<u8>>::from_octets(wire("www.cluster.example.")).is_ok());
    assert_eq!(crate::zone::check(&crate::fixture::zone()), []);
    assert_eq!(name("a."), name("A."));
    drop(snapshot(&config(), &[]));
}
