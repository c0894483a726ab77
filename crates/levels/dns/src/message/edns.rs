//! EDNS(0): reads the OPT record of a query, and writes that of a response.
//!
//! # Source
//! RFC 6891; NSID RFC 5001; client subnet RFC 7871; cookies RFC 7873; TCP keepalive RFC 7828.
//! Unknown options are ignored (RFC 6891, 6.1.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::code::OPT;

const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const COOKIE: u16 = 10;
const TCP_KEEPALIVE: u16 = 11;

/// Size of an OPT record without options: root, type, class (size), TTL (rcode, version, flags),
/// length.
pub(crate) const OPT_BYTES: usize = 11;
const OPTION_HEADER: usize = 4;
/// Size of a client cookie and a server cookie.
pub(crate) const COOKIE_BYTES: usize = 24;

/// Contents of a query's OPT record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edns {
    pub(crate) version: u8,
    pub(crate) dnssec_ok: bool,
    /// Largest datagram that the client accepts, bytes.
    pub(crate) payload: u16,
    pub(crate) nsid: bool,
    pub(crate) keepalive: bool,
    pub(crate) cookie: Option<Cookie>,
    pub(crate) subnet: Option<Subnet>,
}

/// A cookie option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) client: [u8; 8],
    /// The server cookie that the client returned. Other lengths than that of our cookies are read
    /// as `None`.
    pub(crate) server: Option<[u8; 16]>,
}

/// A client subnet option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// Address with zero bits after the prefix. `None`: the option has family 0 and no address.
    pub(crate) address: Option<IpAddr>,
    /// Prefix length, bits.
    pub(crate) length: u8,
}

impl Subnet {
    fn family(self) -> (u16, [u8; 16]) {
        match self.address {
            None => (0, [0; 16]),
            Some(IpAddr::V4(v4)) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                (1, bytes)
            }
            Some(IpAddr::V6(v6)) => (2, v6.octets()),
        }
    }

    fn address_bytes(self) -> usize {
        usize::from(self.length).div_ceil(8)
    }

    /// Reads the option (RFC 7871, 6): as many address bytes as the prefix covers, zero bits after
    /// it, and scope 0. Length 0 asks the server not to use a subnet (7.1.2). Some clients then
    /// send family 0: dig of BIND 9.10 and getdns. BIND accepts that.
    fn read(option: &[u8]) -> Option<Subnet> {
        let [family_high, family, length, scope, ref address @ ..] = *option else { return None };
        let (bits, family) = match u16::from_be_bytes([family_high, family]) {
            0 => (0, 0),
            1 => (32, 4),
            2 => (128, 16),
            _ => return None,
        };
        let whole = usize::from(length).div_ceil(8);
        if length > bits || scope != 0 || address.len() != whole {
            return None;
        }
        let mut bytes = [0; 16];
        bytes[..whole].copy_from_slice(address);
        let part = length % 8;
        if part > 0 && bytes[whole - 1] & (0xff >> part) != 0 {
            return None;
        }
        let address = match family {
            0 => None,
            4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            _ => Some(Ipv6Addr::from(bytes).into()),
        };
        Some(Subnet { address, length })
    }
}

impl Edns {
    /// Reads an OPT record's class, TTL and options. `None`: it is malformed.
    #[inline]
    pub(crate) fn read(class: u16, ttl: u32, options: &[u8]) -> Option<Edns> {
        let mut edns = Edns {
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & 0x8000 != 0,
            payload: class,
            ..Edns::default()
        };
        let mut rest = options;
        while !rest.is_empty() {
            let [code_high, code, length_high, length, ref after @ ..] = *rest else { return None };
            let length = usize::from(u16::from_be_bytes([length_high, length]));
            let (option, after) = after.split_at_checked(length)?;
            edns.option(u16::from_be_bytes([code_high, code]), option)?;
            rest = after;
        }
        Some(edns)
    }

    fn option(&mut self, code: u16, option: &[u8]) -> Option<()> {
        match code {
            NSID => self.nsid = true,
            TCP_KEEPALIVE => self.keepalive = true,
            // The first cookie counts (RFC 7873, 5.2), and the first client subnet.
            COOKIE if self.cookie.is_none() => {
                let client = *option.first_chunk()?;
                let server = &option[8..];
                // RFC 7873, 4: a server cookie has 8 to 32 bytes.
                if !server.is_empty() && !(8..=32).contains(&server.len()) {
                    return None;
                }
                self.cookie = Some(Cookie { client, server: server.try_into().ok() });
            }
            CLIENT_SUBNET if self.subnet.is_none() => self.subnet = Some(Subnet::read(option)?),
            _ => {}
        }
        Some(())
    }
}

/// The OPT record of a response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opt<'o> {
    /// The full response code; OPT carries its upper bits.
    pub(crate) rcode: u16,
    pub(crate) payload: u16,
    pub(crate) dnssec_ok: bool,
    pub(crate) nsid: Option<&'o [u8]>,
    pub(crate) cookie: Option<[u8; COOKIE_BYTES]>,
    /// The client subnet, and the scope of the answer.
    pub(crate) subnet: Option<(Subnet, u8)>,
    /// Timeout, in tenths of a second.
    pub(crate) keepalive: Option<u16>,
}

impl Opt<'_> {
    /// Size of the record, bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let option = |bytes: usize| OPTION_HEADER + bytes;
        OPT_BYTES
            + self.nsid.map_or(0, |id| option(id.len()))
            + self.cookie.map_or(0, |cookie| option(cookie.len()))
            + self.subnet.map_or(0, |(subnet, _)| option(4 + subnet.address_bytes()))
            + self.keepalive.map_or(0, |_| option(2))
    }

    /// Writes the record to the start of `out`, which has at least [`Opt::len`] bytes. Returns its
    /// size.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        let mut at = OPT_BYTES;
        let mut option = |code: u16, parts: [&[u8]; 2]| {
            let length = parts[0].len() + parts[1].len();
            out[at..at + 2].copy_from_slice(&code.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&(length as u16).to_be_bytes());
            at += OPTION_HEADER;
            for part in parts {
                out[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        };
        if let Some(cookie) = &self.cookie {
            option(COOKIE, [cookie, &[]]);
        }
        if let Some(id) = self.nsid {
            option(NSID, [id, &[]]);
        }
        if let Some((subnet, scope)) = self.subnet {
            let (family, bytes) = subnet.family();
            let head = [0, family as u8, subnet.length, scope];
            option(CLIENT_SUBNET, [&head, &bytes[..subnet.address_bytes()]]);
        }
        if let Some(tenths) = self.keepalive {
            option(TCP_KEEPALIVE, [&tenths.to_be_bytes(), &[]]);
        }
        let [size_high, size] = self.payload.to_be_bytes();
        let flags = if self.dnssec_ok { 0x80 } else { 0 };
        let [length_high, length] = ((at - OPT_BYTES) as u16).to_be_bytes();
        let head = [
            0,
            0,
            OPT as u8,
            size_high,
            size,
            (self.rcode >> 4) as u8,
            0,
            flags,
            0,
            length_high,
            length,
        ];
        out[..OPT_BYTES].copy_from_slice(&head);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_read_as_rfc_7871_writes_it() {
        let good = [0, 1, 22, 0, 192, 0, 0];
        let subnet = Subnet::read(&good).unwrap();
        assert_eq!((subnet.address, subnet.length), ("192.0.0.0".parse().ok(), 22));
        assert!(Subnet::read(&[0, 1, 0, 0]).is_some(), "no address at all");
        assert!(Subnet::read(&[0, 2, 16, 0, 0x20, 1]).is_some());
        assert_eq!(Subnet::read(&[0; 4]), Some(Subnet { address: None, length: 0 }), "no family");
        let bad: [&[u8]; 10] = [
            &[0, 0, 8, 0, 192], // an address of no family
            &[0, 0, 8, 0],
            &[0, 0, 0, 8],
            &[0, 1, 22, 0, 192, 0, 2],     // a bit behind the length
            &[0, 1, 24, 24, 192, 0, 2],    // scope in a query
            &[0, 1, 24, 0, 192, 0],        // too few bytes
            &[0, 1, 16, 0, 192, 0, 0],     // too many
            &[0, 1, 33, 0, 1, 2, 3, 4, 0], // longer than an address
            &[0, 3, 8, 0, 1],              // no such family
            &[0, 1, 8],
        ];
        for bytes in bad {
            assert_eq!(Subnet::read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn cookies_have_the_lengths_of_rfc_7873() {
        for (length, good) in [
            (0, false),
            (7, false),
            (8, true),
            (9, false),
            (15, false),
            (16, true),
            (40, true),
            (41, false),
        ] {
            let mut options = vec![0, 10, 0, length];
            options.extend(std::iter::repeat_n(7, usize::from(length)));
            let edns = Edns::read(1232, 0, &options);
            assert_eq!(edns.is_some(), good, "{length}");
        }
        let mut ours = vec![0, 10, 0, 24];
        ours.extend(1..=24);
        let cookie = Edns::read(1232, 0, &ours).unwrap().cookie.unwrap();
        assert_eq!(cookie.client, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cookie.server.unwrap()[0], 9);
    }

    #[test]
    fn an_option_that_runs_over_the_end_is_malformed() {
        assert_eq!(Edns::read(512, 0, &[0, 3, 0, 1]), None);
        assert_eq!(Edns::read(512, 0, &[0, 3, 0]), None);
        assert!(Edns::read(512, 0, &[0, 3, 0, 0]).unwrap().nsid);
        assert!(Edns::read(512, 0, &[0xff, 0xff, 0, 1, 9]).is_some(), "unknown ones are ignored");
    }
}
