//! Zone files compared with BIND: both turn a file into the same records, byte by byte.
#![allow(clippy::unwrap_used, reason = "the functions that tests share are tests, too")]

use std::fs;
use std::path::Path;
use std::process::Command;

use equipoise_dns::Name;
use equipoise_dns::zone::file;

/// Everything that both support.
const ZONE: &str = "$TTL 1h30m
@ IN SOA ns1 host\\.master 2024010101 ( 1h ; refresh
    10M 2w 5m30s )
    NS ns1
ns1 2d A 192.0.2.1
    AAAA 2001:db8::1
$INCLUDE included.zone sub
after A 192.0.2.2
\"quoted\" CLASS1 1W TYPE1 192.0.2.3
caf\u{e9} TXT \"caf\u{e9}\" plain \"semi;colon \\\"quoted\\\" \\200\" \"\"
$ORIGIN gen
$GENERATE 1-12/5 h$ A 192.0.2.$
$GENERATE 8-9 ${0,3,d}-${1,0,x}-${-8,4,X}-${0,3,o}-\\$-$$ 60 CNAME h$
$GENERATE 26-27 ${0,0,n}.${0,3,N}.${0,6,n}r PTR host-${100}.example.net.
$GENERATE 1-3 mail$ MX \"$ m$\"
$GENERATE 1-2 text$ TXT \"a b$\"
$GENERATE 1-2 said$ TXT \"\\\"a b$\\\"\"
$ORIGIN example.org.
loc LOC 42 21 54 N 71 06 18 W -24m 30m
    LOC 42 21 54.123 S 71 06 18.9 E 12.5 12.34m 90000000m 0.01m
    LOC 1 N 2 E 0
uri URI 10 1 \"ftp://ftp1.example.com/public;x\"
spf SPF \"v=spf1 -all\"
cert CERT PKIX 7 RSASHA256 AQIDBAUG
     CERT 65535 7 8 AQID BAUG
_25._tcp SMIMEA 3 1 1 00aabb CCDD
         TLSA 3 1 1 00aabbccdd
eui EUI48 00-00-5e-00-53-2a
    EUI64 00-00-5E-ef-10-00-00-2a
new TYPE65280 \\# 3 01 0203
    TYPE65281 \\# 0
    A \\# 4 c0000201
    MX \\# 11 000a 046d61696c 026578 00
svc HTTPS 1 . alpn=\"h2,http/1.1\" port=8443 ipv4hint=192.0.2.1
    SVCB 0 alias
_s._tcp SRV 0 5 443 ns1
caa CAA 0 issue \"ca.example.net; account=1\"
naptr NAPTR 100 50 \"s\" \"SIP+D2U\" \"\" _sip._udp
ssh SSHFP 4 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
rp RP mail.rp txt
afs AFSDB 1 db
kx KX 10 kx
hinfo HINFO \"a b\" c
sub2 NS ns.sub2
     DS 60485 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
*.wild 0 IN A 192.0.2.4
\\*.star\\.dot\\065 A 192.0.2.5
last 2147483647 A 192.0.2.6";

const INCLUDED: &str = " TXT \"of the owner before\"
x A 192.0.2.7
$ORIGIN deeper
@ A 192.0.2.8
$TTL 5m
y A 192.0.2.9\r\n";

/// Owner, type, TTL and data.
type Record = (Vec<u8>, u16, u32, Vec<u8>);

#[test]
fn bind_makes_the_same_records_of_a_zone_file() {
    if Command::new("named-compilezone").arg("-v").output().is_err() {
        println!(
            "skipped: named-compilezone is not installed (Debian's bind9-utils; `make test` installs it)"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("main.zone");
    fs::write(&path, ZONE).unwrap();
    fs::write(folder.path().join("included.zone"), INCLUDED).unwrap();

    let read = |file: &Path| fs::read_to_string(file);
    let origin = Name::vec_from_str("example.org.").unwrap();
    let records = file::read(&path, &origin, &read).unwrap_or_else(|error| panic!("{error}"));
    let mut ours: Vec<Record> = records
        .into_iter()
        .map(|r| (r.owner.as_slice().to_vec(), r.rtype.to_int(), r.ttl, r.body))
        .collect();
    ours.sort();

    let mut theirs = of_bind(folder.path());
    theirs.sort();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(&ours.0));
    }
    assert_eq!(ours.len(), theirs.len());
}

/// The records that BIND makes of `main.zone`.
fn of_bind(folder: &Path) -> Vec<Record> {
    let raw = folder.join("raw");
    let mut command = Command::new("named-compilezone");
    command.args(["-q", "-F", "raw", "-i", "none", "-k", "ignore", "-n", "ignore", "-r", "ignore"]);
    command.args(["-m", "ignore", "-M", "ignore", "-S", "ignore", "-T", "ignore", "-w"]);
    let output =
        command.arg(folder).arg("-o").arg(&raw).args(["example.org", "main.zone"]).output();
    let output = output.unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    records_of(&fs::read(raw).unwrap())
}

/// Parses BIND's raw format: a header, then for each set a length, class, type, covered type, TTL,
/// count, owner and data.
fn records_of(raw: &[u8]) -> Vec<Record> {
    const HEADER: usize = 24;
    let number = |at: usize, bytes: usize| {
        raw[at..at + bytes].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    assert_eq!((number(0, 4), number(4, 4)), (2, 1), "raw format, version 1");
    let mut records = Vec::new();
    let mut at = HEADER;
    while at < raw.len() {
        let (end, rtype, ttl) = (at + number(at, 4), number(at + 6, 2), number(at + 10, 4));
        let (count, length) = (number(at + 14, 4), number(at + 18, 2));
        at += 20;
        let owner = raw[at..at + length].to_ascii_lowercase();
        at += length;
        for _ in 0..count {
            let length = number(at, 2);
            let data = raw[at + 2..at + 2 + length].to_vec();
            records.push((owner.clone(), rtype as u16, ttl as u32, data));
            at += 2 + length;
        }
        assert_eq!(at, end);
    }
    records
}
