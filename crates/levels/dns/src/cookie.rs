//! DNS cookies. A valid server cookie proves that the client receives at its source address.
//!
//! # Source
//! RFC 7873. Server cookies have the interoperable format of RFC 9018, section 4: all servers of a
//! fleet with one secret accept each other's cookies, also when they are of different vendors.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;
use std::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::message::edns::{COOKIE_BYTES, Cookie};

/// Maximum age of a server cookie, seconds (RFC 9018, 4.3).
const AGE_MAX: u32 = 3600;
/// Maximum time that a cookie may lie in the future, seconds: clocks of a fleet differ.
const AHEAD_MAX: u32 = 300;
/// A client with an older cookie gets a new one, seconds.
const RENEW_AGE: u32 = 1800;

/// Secret key of server cookies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CookieSecret([u8; 16]);

/// The text is not a [`CookieSecret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits")]
pub struct NotASecret;

impl CookieSecret {
    /// Makes a secret of these bytes.
    pub const fn new(bytes: [u8; 16]) -> CookieSecret {
        CookieSecret(bytes)
    }
}

impl FromStr for CookieSecret {
    type Err = NotASecret;

    /// Parses 32 hexadecimal digits, the format of other servers' `cookie-secret` option.
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

/// Secrets of a server. It makes cookies with the first and accepts those of all.
///
/// To rotate a secret (RFC 9018, 5): add the new one as the second, make it the first, and remove
/// the old one an hour later. Finish each step on the whole fleet before the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieSecrets(Vec<CookieSecret>);

impl CookieSecrets {
    /// Maximum number of secrets: old, current, next.
    pub const MAX: usize = 3;

    /// Returns `None` if `secrets` is empty or has more than [`CookieSecrets::MAX`] entries.
    pub fn new(secrets: Vec<CookieSecret>) -> Option<CookieSecrets> {
        (1..=Self::MAX).contains(&secrets.len()).then_some(CookieSecrets(secrets))
    }

    /// Returns the cookie option of the response, and whether the client's cookie is valid and so
    /// proves its address.
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
            // A cookie of an older secret is renewed, too.
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

    /// Returns the age of a valid server cookie in seconds and the index of its secret. The age of
    /// a cookie from the future is 0.
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
        // Serial number arithmetic: the 32-bit clock wraps.
        let age = now.wrapping_sub(made);
        let age = match age {
            0..=AGE_MAX => age,
            _ if made.wrapping_sub(now) <= AHEAD_MAX => 0,
            _ => return None,
        };
        // Comparison in constant time costs no more than any other.
        let ours = |secret: &CookieSecret| {
            let wanted = secret.make(&cookie.client, client, made);
            wanted.iter().zip(server).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
        };
        self.0.iter().position(ours).map(|secret| (age, secret))
    }
}

impl CookieSecret {
    /// Makes a server cookie (RFC 9018, 4): version 1, reserved bytes, time, and the SipHash-2-4 of
    /// the client cookie, these fields and the client's address.
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
        // Appendix A.1: a client learns a server cookie.
        let secret = secrets(&["e5e973e5a6b2a43f48e7dc849e37bfcf"]);
        let client = "198.51.100.100".parse().unwrap();
        let (answer, valid) = secret.answer(&cookie("2464c4abcf10c957", None), client, 1559731985);
        assert!(!valid);
        assert_eq!(answer.to_vec(), hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
        // A.2: the cookie comes back half an hour later and is renewed.
        let back = cookie("2464c4abcf10c957", Some("010000005cf79f111f8130c3eee29480"));
        let (answer, valid) = secret.answer(&back, client, 1559734385);
        assert!(valid);
        assert_eq!(answer.to_vec(), hex("2464c4abcf10c957010000005cf7a871d4a564a1442aca77"));
        // A.3: the reserved bits of another client's cookie are not zero, so version 1 rejects it.
        // A.4: IPv6, and a rotated secret.
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
