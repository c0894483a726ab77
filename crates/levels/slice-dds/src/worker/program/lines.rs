//! Jobs as lines of text, for programs in shell and for others without binary input.
//!
//! To the program, words with a space between them: `KIND JOB SLICE ID SENDER TIMESTAMP MESSAGE`;
//! from it: `JOB REPLY`. With tokens, `EPOCH WRITER POSITION` come before the message. Messages and
//! replies are in base64, and one that is empty is left out. Kinds: `item`, `import`, `lost`,
//! `export`.

use std::io::{self, BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::worker::{Job, Work};

/// Length limit of a line from a program, in bytes.
const LINE_MAX: u64 = 350 << 20;

/// Adds a job to `batch`.
pub(super) fn entry(number: u64, job: &Job, tokens: bool, batch: &mut Vec<u8>) {
    let Some(work) = job.work() else { return };
    let slice = job.slice().0;
    let (head, message) = match work {
        Work::Item(item) => {
            let (id, sender, time) = (item.id, item.sender_id, item.timestamp);
            (format!("item {number} {slice} {id} {sender} {time}"), item.message)
        }
        Work::Import(Some(state)) => (format!("import {number} {slice} 0 0 0"), state),
        Work::Import(None) => (format!("lost {number} {slice} 0 0 0"), &[][..]),
        Work::Export => (format!("export {number} {slice} 0 0 0"), &[][..]),
        Work::Snapshot => (format!("snapshot {number} {slice} 0 0 0"), &[][..]),
    };
    batch.extend_from_slice(head.as_bytes());
    if tokens {
        let [epoch, writer, position] =
            job.token().map(|it| [it.epoch.0, it.writer, it.position]).unwrap_or_default();
        batch.extend_from_slice(format!(" {epoch} {writer} {position}").as_bytes());
    }
    if !message.is_empty() {
        batch.push(b' ');
        batch.extend_from_slice(BASE64.encode(message).as_bytes());
    }
    batch.push(b'\n');
}

/// Reads the next acknowledgement: the job and the reply. `None`: the output has ended.
pub(super) fn read(output: &mut impl BufRead) -> io::Result<Option<(u64, Vec<u8>)>> {
    loop {
        let mut line = Vec::new();
        if Read::take(&mut *output, LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let shown = || String::from_utf8_lossy(&line[..line.len().min(80)]).trim().to_string();
        let wrong = || {
            let what =
                format!("`{}` is not a line of a job's number and its reply in base64", shown());
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        return acknowledgement(&line).map(Some).ok_or_else(wrong);
    }
}

fn acknowledgement(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let reply = words.next().map_or(Ok(Vec::new()), |reply| BASE64.decode(reply)).ok()?;
    words.next().is_none().then_some((number, reply))
}

#[cfg(test)]
mod tests {
    #[test]
    fn acknowledgement_lines_are_parsed_and_errors_quote_invalid_lines() {
        let mut output = &b"7 aGVsbG8=\n\n 8 \n18446744073709551615 AA==\r\n9"[..];
        let mut read = || super::read(&mut output);
        assert_eq!(read().unwrap(), Some((7, b"hello".to_vec())));
        assert_eq!(read().unwrap(), Some((8, Vec::new())));
        assert_eq!(read().unwrap(), Some((u64::MAX, vec![0])));
        assert_eq!(read().unwrap(), Some((9, Vec::new())));
        assert_eq!(read().unwrap(), None);
        for bad in ["x aGVsbG8=", "7 ###", "7 aGVsbG8= more", "-1", "7 aGVsbG8"] {
            let error = super::read(&mut format!("{bad}\n").as_bytes()).unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
        assert!(super::read(&mut &[0xff, b'\n'][..]).is_err());
    }
}
