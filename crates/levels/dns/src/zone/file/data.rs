//! Record data: from text to wire format.

use std::borrow::Cow;

use bytes::Bytes;
use domain::base::iana::{Class, Rtype, SecurityAlgorithm};
use domain::base::name::{Name as DomainName, ParsedName};
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::utils::{base16, base64};
use domain::zonefile::inplace::{Entry, Zonefile};

use super::entries::{Word, joined};
use super::error::Wrong;
use super::{location, seconds};
use crate::config::Name;

/// Maximum size of record data, bytes.
const DATA_BYTES_MAX: usize = 65_535;

/// Reads the data of a record of type `rtype`. Relative names are below `origin`.
///
/// # Errors
/// [`Wrong::Data`], and [`Wrong::Ttl`] for the times of an SOA record.
pub(super) fn read(rtype: Rtype, words: &[Word<'_>], origin: &Name) -> Result<Vec<u8>, Wrong> {
    if rtype == Rtype::SOA && words.len() > 3 && !is_generic(words) {
        return start_of_authority(words, origin);
    }
    of_type(rtype, words, origin).map_err(|cause| Wrong::Data {
        rtype: rtype.to_string(),
        cause: cause.into_owned(),
        form: form(rtype),
    })
}

fn of_type(rtype: Rtype, words: &[Word<'_>], origin: &Name) -> Result<Vec<u8>, Cow<'static, str>> {
    let body = match rtype {
        _ if is_generic(words) => generic(rtype, &words[1..])?,
        Rtype::LOC => location::read(words)?,
        Rtype::URI => uri(words).ok_or("a word is wrong or missing")?,
        Rtype::CERT => certificate(words).ok_or("a word is wrong or missing")?,
        Rtype::EUI48 => identifier::<6>(words).ok_or("not one word of six bytes")?,
        Rtype::EUI64 => identifier::<8>(words).ok_or("not one word of eight bytes")?,
        _ => scanned(like(rtype), &joined(words, Word::written_in_ascii), origin)?,
    };
    match body.len() {
        0..=DATA_BYTES_MAX => Ok(body),
        _ => Err("more than 65535 bytes".into()),
    }
}

/// Maps a type to one with the same format that `domain` supports.
fn like(rtype: Rtype) -> Rtype {
    match rtype {
        // RFC 7208, section 3.1; RFC 9606; IANA's templates define the others.
        Rtype::SPF | Rtype::NINFO | Rtype::AVC | Rtype::RESINFO | Rtype::WALLET => Rtype::TXT,
        // RFC 8162, section 2.
        Rtype::SMIMEA => Rtype::TLSA,
        // A 16-bit number and a name: RFC 1183, RFC 2230, RFC 6742.
        Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => Rtype::MX,
        rtype => rtype,
    }
}

/// Lets `domain` read the data from a line of text.
fn scanned(rtype: Rtype, text: &str, origin: &Name) -> Result<Vec<u8>, Cow<'static, str>> {
    let mut zonefile = Zonefile::from(format!(". 0 IN {rtype}{text}\n").as_str());
    zonefile.set_default_class(Class::IN);
    if let Ok(origin) = DomainName::from_octets(Bytes::copy_from_slice(origin.as_slice())) {
        zonefile.set_origin(origin);
    }
    match zonefile.next_entry() {
        Ok(Some(Entry::Record(record))) => {
            let mut body = Vec::new();
            match record.data().compose_rdata(&mut body) {
                Ok(()) => Ok(body),
                Err(_) => Err("more than 65535 bytes".into()),
            }
        }
        Ok(_) => Err("no record".into()),
        Err(error) => {
            // The message is `LINE:COLUMN: CAUSE`; the position in the generated line is of no use.
            let text = error.to_string();
            let cause = text.splitn(3, ':').nth(2).map_or(&text[..], str::trim);
            Err(cause.to_owned().into())
        }
    }
}

/// Reads SOA data; its times may have units.
fn start_of_authority(words: &[Word<'_>], origin: &Name) -> Result<Vec<u8>, Wrong> {
    let (names, times) = words.split_at(3);
    let mut text = joined(names, Word::written_in_ascii);
    for time in times {
        text.push_str(&format!(" {}", seconds(time.text)?));
    }
    scanned(Rtype::SOA, &text, origin).map_err(|cause| Wrong::Data {
        rtype: Rtype::SOA.to_string(),
        cause: cause.into_owned(),
        form: form(Rtype::SOA),
    })
}

fn is_generic(words: &[Word<'_>]) -> bool {
    words.first().is_some_and(|word| word.text == "\\#" && !word.quoted)
}

/// Reads `\# LENGTH HEX`, valid for any type (RFC 3597, section 5).
fn generic(rtype: Rtype, words: &[Word<'_>]) -> Result<Vec<u8>, Cow<'static, str>> {
    let [length, digits @ ..] = words else { return Err("no length behind `\\#`".into()) };
    let digits: String = digits.iter().map(|word| word.text).collect();
    let body = base16::decode_vec(&digits).map_err(|_| "not an even number of hex digits")?;
    if length.text.parse() != Ok(body.len()) {
        let text = format!("length {}, and {} bytes behind it", length.text, body.len());
        return Err(text.into());
    }
    let fits = match rtype {
        Rtype::EUI48 => body.len() == 6,
        Rtype::EUI64 => body.len() == 8,
        Rtype::LOC => body.len() == location::BYTES,
        Rtype::URI | Rtype::CERT => body.len() >= 5,
        // `domain` accepts a TXT record without a text.
        _ => is_of(like(rtype), &body) && (like(rtype) != Rtype::TXT || !body.is_empty()),
    };
    if fits { Ok(body) } else { Err("bytes that are no data of this type".into()) }
}

/// Record data in wire format.
type Parsed<'b> = ZoneRecordData<&'b [u8], ParsedName<&'b [u8]>>;

/// Whether `body` is valid data of the type. All data of an unknown type is valid.
fn is_of(rtype: Rtype, body: &[u8]) -> bool {
    let mut parser = Parser::from_ref(body);
    let data = Parsed::parse_rdata(rtype, &mut parser);
    let mut again = Vec::new();
    let Ok(Some(data)) = data else { return false };
    // Rejects compressed names: they would be longer when written again.
    data.compose_rdata(&mut again).is_ok() && parser.remaining() == 0 && again == body
}

/// Reads priority, weight and target, which takes the rest (RFC 7553, section 4.5).
fn uri(words: &[Word<'_>]) -> Option<Vec<u8>> {
    let [priority, weight, target] = words else { return None };
    let mut body = Vec::new();
    body.extend(priority.text.parse::<u16>().ok()?.to_be_bytes());
    body.extend(weight.text.parse::<u16>().ok()?.to_be_bytes());
    body.extend(target.octets().filter(|target| !target.is_empty())?);
    Some(body)
}

/// Reads type, key tag, algorithm and certificate (RFC 4398, section 2.2).
fn certificate(words: &[Word<'_>]) -> Option<Vec<u8>> {
    let [of, tag, algorithm, text @ ..] = words else { return None };
    let of: u16 = match of.text.to_ascii_uppercase().as_str() {
        "PKIX" => 1,
        "SPKI" => 2,
        "PGP" => 3,
        "IPKIX" => 4,
        "ISPKI" => 5,
        "IPGP" => 6,
        "ACPKIX" => 7,
        "IACPKIX" => 8,
        "URI" => 253,
        "OID" => 254,
        number => number.parse().ok()?,
    };
    let algorithm = match algorithm.text.parse() {
        Ok(number) => number,
        Err(_) => SecurityAlgorithm::from_mnemonic(algorithm.text.as_bytes())?.to_int(),
    };
    let text: String = text.iter().map(|word| word.text).collect();
    let certificate: Vec<u8> = base64::decode(&text).ok()?;
    let mut body = Vec::with_capacity(5 + certificate.len());
    body.extend(of.to_be_bytes());
    body.extend(tag.text.parse::<u16>().ok()?.to_be_bytes());
    body.push(algorithm);
    body.extend(certificate);
    (body.len() > 5).then_some(body)
}

/// Reads bytes of two hex digits each, separated by hyphens (RFC 7043).
fn identifier<const BYTES: usize>(words: &[Word<'_>]) -> Option<Vec<u8>> {
    let [word] = words else { return None };
    let bytes: Option<Vec<u8>> = word
        .text
        .split('-')
        .map(|byte| match byte.len() {
            2 => base16::decode_vec(byte).ok()?.first().copied(),
            _ => None,
        })
        .collect();
    bytes.filter(|bytes| bytes.len() == BYTES)
}

impl Word<'_> {
    fn written_in_ascii(&self) -> String {
        if self.quoted { format!("\"{}\"", self.ascii()) } else { self.ascii() }
    }
}

/// The expected format of a type's data, for error messages.
fn form(rtype: Rtype) -> &'static str {
    match rtype {
        Rtype::A => "an IPv4 address, such as `192.0.2.1`",
        Rtype::AAAA => "an IPv6 address, such as `2001:db8::1`",
        Rtype::NS | Rtype::CNAME | Rtype::PTR => "a name, such as `www` or `www.example.com.`",
        Rtype::MX => "preference and name, such as `10 mail`",
        Rtype::TXT | Rtype::SPF => "texts of at most 255 bytes each, such as `\"v=spf1 -all\"`",
        Rtype::SRV => "priority, weight, port and name, such as `0 5 443 www`",
        Rtype::SOA => {
            "primary server, mailbox, serial, refresh, retry, expire and minimum, such as `ns1 hostmaster 7 1h 10m 2w 5m`"
        }
        Rtype::CAA => "flags, tag and value, such as `0 issue \"ca.example.net\"`",
        Rtype::HTTPS | Rtype::SVCB => {
            "priority, name and parameters, such as `1 . alpn=h2,http/1.1 port=8443`"
        }
        Rtype::NAPTR => {
            "order, preference, flags, services, expression and name, such as `10 5 \"s\" \"SIP+D2T\" \"\" _sip._tcp`"
        }
        Rtype::TLSA | Rtype::SMIMEA => "usage, selector, type and hex, such as `3 1 1 0A1B...`",
        Rtype::SSHFP => "algorithm, type and hex, such as `4 2 0A1B...`",
        Rtype::DS => "key tag, algorithm, digest type and hex, such as `60485 13 2 0A1B...`",
        Rtype::LOC => location::FORM,
        Rtype::URI => "priority, weight and target, such as `10 1 \"https://www.example.com/\"`",
        Rtype::CERT => "type, key tag, algorithm and base64, such as `PKIX 0 0 MIIC...`",
        Rtype::EUI48 => "six bytes in hex, such as `00-00-5e-00-53-2a`",
        Rtype::EUI64 => "eight bytes in hex, such as `00-00-5e-ef-10-00-00-2a`",
        _ => "the form of its RFC, or `\\# LENGTH HEX` (RFC 3597)",
    }
}
