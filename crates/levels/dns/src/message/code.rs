//! Protocol numbers that the message path uses.

use domain::base::iana::Rtype;

pub(crate) const HEADER: usize = 12;

/// Flags in the header's third byte.
pub(crate) const QR: u8 = 0x80;
pub(crate) const AA: u8 = 0x04;
pub(crate) const TC: u8 = 0x02;
pub(crate) const RD: u8 = 0x01;

pub(crate) const CLASS_IN: u16 = 1;
pub(crate) const CLASS_CHAOS: u16 = 3;

pub(crate) const A: u16 = Rtype::A.to_int();
pub(crate) const NS: u16 = Rtype::NS.to_int();
pub(crate) const CNAME: u16 = Rtype::CNAME.to_int();
pub(crate) const SOA: u16 = Rtype::SOA.to_int();
pub(crate) const PTR: u16 = Rtype::PTR.to_int();
pub(crate) const HINFO: u16 = Rtype::HINFO.to_int();
pub(crate) const MX: u16 = Rtype::MX.to_int();
pub(crate) const TXT: u16 = Rtype::TXT.to_int();
pub(crate) const AAAA: u16 = Rtype::AAAA.to_int();
pub(crate) const SRV: u16 = Rtype::SRV.to_int();
pub(crate) const DNAME: u16 = Rtype::DNAME.to_int();
pub(crate) const OPT: u16 = Rtype::OPT.to_int();
pub(crate) const DS: u16 = Rtype::DS.to_int();
pub(crate) const SVCB: u16 = Rtype::SVCB.to_int();
pub(crate) const HTTPS: u16 = Rtype::HTTPS.to_int();
pub(crate) const TSIG: u16 = Rtype::TSIG.to_int();
pub(crate) const ANY: u16 = Rtype::ANY.to_int();
/// From TKEY to AXFR, including TSIG and IXFR: query types that do not ask for records.
pub(crate) const TKEY: u16 = Rtype::TKEY.to_int();
pub(crate) const AXFR: u16 = Rtype::AXFR.to_int();

/// Query types with a counter of their own.
pub(crate) const QUERY_TYPES: [(u16, &str); 13] = [
    (A, "A"),
    (AAAA, "AAAA"),
    (HTTPS, "HTTPS"),
    (SRV, "SRV"),
    (NS, "NS"),
    (SOA, "SOA"),
    (MX, "MX"),
    (TXT, "TXT"),
    (CNAME, "CNAME"),
    (PTR, "PTR"),
    (DS, "DS"),
    (Rtype::DNSKEY.to_int(), "DNSKEY"),
    (ANY, "ANY"),
];

/// Index into [`QUERY_TYPES`] by type number.
const PLACES: [u8; ANY as usize + 1] = {
    let mut places = [QUERY_TYPES.len() as u8; ANY as usize + 1];
    let mut place = 0;
    while place < QUERY_TYPES.len() {
        places[QUERY_TYPES[place].0 as usize] = place as u8;
        place += 1;
    }
    places
};

/// Returns the index of a type in [`QUERY_TYPES`], or its length for other types.
#[inline]
pub(crate) fn place_of(rtype: u16) -> usize {
    PLACES.get(usize::from(rtype)).map_or(QUERY_TYPES.len(), |place| usize::from(*place))
}

/// Response codes, including the extended ones of EDNS.
pub(crate) mod rcode {
    pub(crate) const NOERROR: u16 = 0;
    pub(crate) const FORMERR: u16 = 1;
    pub(crate) const NXDOMAIN: u16 = 3;
    pub(crate) const NOTIMP: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    pub(crate) const NOTAUTH: u16 = 9;
    pub(crate) const BADVERS: u16 = 16;
    pub(crate) const BADCOOKIE: u16 = 23;
}

/// Name of a response code in metrics.
pub(crate) fn rcode_name(number: usize) -> &'static str {
    match u16::try_from(number).unwrap_or(u16::MAX) {
        rcode::NOERROR => "NOERROR",
        rcode::FORMERR => "FORMERR",
        rcode::NXDOMAIN => "NXDOMAIN",
        rcode::NOTIMP => "NOTIMP",
        rcode::REFUSED => "REFUSED",
        rcode::NOTAUTH => "NOTAUTH",
        rcode::BADVERS => "BADVERS",
        rcode::BADCOOKIE => "BADCOOKIE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_own_place_or_that_of_the_others() {
        for rtype in 0..=u16::MAX {
            let place = QUERY_TYPES.iter().position(|(known, _)| *known == rtype);
            assert_eq!(place_of(rtype), place.unwrap_or(QUERY_TYPES.len()), "{rtype}");
        }
    }
}
