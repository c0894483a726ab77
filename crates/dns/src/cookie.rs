//! DNS cookies: what tells a client at its own address from one that borrows another's.
//!
//! # Source
//! RFC 7873; the interoperable server cookie of RFC 9018, section 4, so that a fleet with one secret takes each
//! other's, and those of other vendors' servers with that secret.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;
use std::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::message::edns::{COOKIE_BYTES, Cookie};

/// A cookie is taken for this long, in seconds (RFC 9018, 4.3).
const AGE_MAX: u32 = 3600;
/// And up to this far from the future: clocks of a fleet differ.
const AHEAD_MAX: u32 = 300;
/// From this age on the client is given a fresh one.
const RENEW_AGE: u32 = 1800;

/// A secret that server cookies are made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CookieSecret([u8; 16]);

/// A text that is no [`CookieSecret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits")]
pub struct NotASecret;

impl CookieSecret {
    /// A secret of these bytes.
    pub const fn new(bytes: [u8; 16]) -> CookieSecret {
        CookieSecret(bytes)
    }
}

impl FromStr for CookieSecret {
    type Err = NotASecret;

    /// 32 hexadecimal digits, as other servers' `cookie-secret` has them.
    fn from_str(text: &str) -> Result<CookieSecret, NotASecret> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotASecret);
        }
        u128::from_str_radix(text, 16)
            .map(|number| CookieSecret(number.to_be_bytes()))
            .map_err(|_| NotASecret)
    }
}

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecret(..)")
    }
}

/// The secrets of a server: the first makes cookies, all are taken.
///
/// A rotation has three steps, each on the whole fleet before the next (RFC 9018, 5): the new one is added
/// as second, becomes the first, and an hour later the old one is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieSecrets(Vec<CookieSecret>);

impl CookieSecrets {
    /// The most that make sense at a time: old, present, next.
    pub const MAX: usize = 3;

    /// `None` without any, or with more than [`CookieSecrets::MAX`].
    pub fn new(secrets: Vec<CookieSecret>) -> Option<CookieSecrets> {
        (1..=Self::MAX).contains(&secrets.len()).then_some(CookieSecrets(secrets))
    }

    /// What to answer a cookie with, and whether it proves that the client is where it says.
    pub(crate) fn answer(
        &self,
        cookie: &Cookie,
        client: IpAddr,
        now: u32,
    ) -> ([u8; COOKIE_BYTES], bool) {
        let mut whole = [0; COOKIE_BYTES];
        whole[..8].copy_from_slice(&cookie.client);
        if let Some(server) = &cookie.server
            && let Some((age, secret)) = self.age(cookie, server, client, now)
        {
            // One of a secret that is on its way out is renewed too.
            if age < RENEW_AGE && secret == 0 {
                whole[8..].copy_from_slice(server);
            } else {
                whole[8..].copy_from_slice(&self.0[0].make(&cookie.client, client, now));
            }
            return (whole, true);
        }
        whole[8..].copy_from_slice(&self.0[0].make(&cookie.client, client, now));
        (whole, false)
    }

    /// The age in seconds of a cookie that is ours and in force, 0 for one from the future; and the place of its secret.
    fn age(
        &self,
        cookie: &Cookie,
        server: &[u8; 16],
        client: IpAddr,
        now: u32,
    ) -> Option<(u32, usize)> {
        if server[..4] != [1, 0, 0, 0] {
            return None;
        }
        let made = u32::from_be_bytes(*server[4..].first_chunk()?);
        // Serial arithmetic: the clock may go round.
        let age = now.wrapping_sub(made);
        let age = match age {
            0..=AGE_MAX => age,
            _ if made.wrapping_sub(now) <= AHEAD_MAX => 0,
            _ => return None,
        };
        // Sixteen bytes of a keyed hash: comparing them in variable time tells an attacker nothing that a guess
        // over the network could use, but the constant-time way costs no more.
        let ours = |secret: &CookieSecret| {
            let wanted = secret.make(&cookie.client, client, made);
            wanted.iter().zip(server).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
        };
        self.0.iter().position(ours).map(|secret| (age, secret))
    }
}

impl CookieSecret {
    /// RFC 9018, 4: version 1, reserved, time, and SipHash-2-4 of client cookie, those, and the address.
    fn make(self, client_cookie: &[u8; 8], client: IpAddr, when: u32) -> [u8; 16] {
        let [low, high] = [&self.0[..8], &self.0[8..]]
            .map(|half| u64::from_le_bytes(half.try_into().expect("half of sixteen")));
        let mut hasher = SipHasher24::new_with_keys(low, high);
        let mut cookie = [0; 16];
        cookie[0] = 1;
        cookie[4..8].copy_from_slice(&when.to_be_bytes());
        hasher.write(client_cookie);
        hasher.write(&cookie[..8]);
        match client {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        cookie[8..].copy_from_slice(&hasher.finish().to_le_bytes());
        cookie
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    fn secrets(texts: &[&str]) -> CookieSecrets {
        CookieSecrets::new(texts.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
    }

    fn cookie(client: &str, server: Option<&str>) -> Cookie {
        Cookie {
            client: hex(client).try_into().unwrap(),
            server: server.map(|server| hex(server).try_into().unwrap()),
        }
    }

    #[test]
    fn the_examples_of_rfc_9018_come_out() {
        // Appendix A.1, learning a new server cookie.
        let secret = secrets(&["e5e973e5a6b2a43f48e7dc849e37bfcf"]);
        let client = "198.51.100.100".parse().unwrap();
        let (answer, valid) = secret.answer(&cookie("2464c4abcf10c957", None), client, 1559731985);
        assert!(!valid);
        assert_eq!(answer.to_vec(), hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
        // A.2: the same comes back half an hour later, and is renewed.
        let back = cookie("2464c4abcf10c957", Some("010000005cf79f111f8130c3eee29480"));
        let (answer, valid) = secret.answer(&back, client, 1559734385);
        assert!(valid);
        assert_eq!(answer.to_vec(), hex("2464c4abcf10c957010000005cf7a871d4a564a1442aca77"));
        // A.3: another client's, whose reserved bits are not zero, is not ours by the layout of version 1.
        // A.4: IPv6, and a rolled secret.
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let rolled =
            secrets(&["445536bcd2513298075a5d379663c962", "dd3bdf9344b678b185a6f5cb60fca715"]);
        let back = cookie("22681ab97d52c298", Some("010000005cf7c57926556bd0934c72f8"));
        let (answer, valid) = rolled.answer(&back, client, 1559741961);
        assert!(valid);
        assert_eq!(answer.to_vec(), hex("22681ab97d52c298010000005cf7c609a6bb79d16625507a"));
    }

    #[test]
    fn a_cookie_is_of_one_client_and_of_its_time() {
        let secret = secrets(&["e5e973e5a6b2a43f48e7dc849e37bfcf"]);
        let back = cookie("2464c4abcf10c957", Some("010000005cf79f111f8130c3eee29480"));
        let client = "198.51.100.100".parse().unwrap();
        for (now, valid) in [
            (1559731985, true),
            (1559731985 + 3600, true),
            (1559731985 + 3601, false),
            (1559731985 - 300, true),
            (1559731985 - 301, false),
        ] {
            assert_eq!(secret.answer(&back, client, now).1, valid, "{now}");
        }
        assert!(!secret.answer(&back, "198.51.100.101".parse().unwrap(), 1559731985).1);
        let other = secrets(&["00000000000000000000000000000000"]);
        assert!(!other.answer(&back, client, 1559731985).1);
    }

    #[test]
    fn a_fresh_cookie_comes_back_as_it_was() {
        let secret = secrets(&["e5e973e5a6b2a43f48e7dc849e37bfcf"]);
        let back = cookie("2464c4abcf10c957", Some("010000005cf79f111f8130c3eee29480"));
        let (answer, _) = secret.answer(&back, "198.51.100.100".parse().unwrap(), 1559731985 + 60);
        assert_eq!(answer[8..], back.server.unwrap());
    }

    #[test]
    fn a_secret_has_32_digits() {
        assert!("e5e973e5a6b2a43f48e7dc849e37bfcf".parse::<CookieSecret>().is_ok());
        for text in
            ["", "e5", "+5e973e5a6b2a43f48e7dc849e37bfcf", "x5e973e5a6b2a43f48e7dc849e37bfcf"]
        {
            assert_eq!(text.parse::<CookieSecret>(), Err(NotASecret), "{text}");
        }
    }
}
