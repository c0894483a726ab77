//! Jobs and acknowledgements as batches of bytes: the table is at the head of `program.rs`.

use std::io::{self, Read};

use equipoise_dds::items::DataItem;

use crate::worker::{Job, Work};

/// The kind of a job is in the bits above its number.
const KIND_SHIFT: u32 = 62;
/// The id of an export after which the slice stays.
const STAYS: i64 = 1;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

/// Size limit of a batch from a program, in bytes.
const BATCH_MAX: u32 = 256 << 20;
/// Size of the length of a batch.
pub(super) const LENGTH_BYTES: usize = 4;

/// Sets the length of a complete batch.
pub(super) fn close(batch: &mut [u8]) {
    let length = (batch.len() - LENGTH_BYTES) as u32;
    batch[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Adds a job to `batch`.
pub(super) fn entry(number: u64, job: &Job, tokens: bool, batch: &mut Vec<u8>) {
    let state = |message| DataItem {
        slice_id: job.slice().0 as i32,
        id: 0,
        sender_id: 0,
        timestamp: 0,
        message,
    };
    let (kind, item) = match job.work() {
        None => return,
        Some(Work::Item(item)) => (0, item),
        Some(Work::Import(Some(bytes))) => (1, state(bytes)),
        Some(Work::Import(None)) => (2, state(&[])),
        Some(Work::Export) => (3, state(&[])),
        Some(Work::Snapshot) => (3, DataItem { id: STAYS, ..state(&[]) }),
    };
    batch.extend_from_slice(&(number | kind << KIND_SHIFT).to_le_bytes());
    batch.extend_from_slice(&item.slice_id.to_le_bytes());
    batch.extend_from_slice(&item.id.to_le_bytes());
    batch.extend_from_slice(&item.sender_id.to_le_bytes());
    batch.extend_from_slice(&item.timestamp.to_le_bytes());
    if tokens {
        let token = job.token().map(|it| [it.epoch.0, it.writer, it.position]).unwrap_or_default();
        token.iter().for_each(|word| batch.extend_from_slice(&word.to_le_bytes()));
    }
    batch.extend_from_slice(&(item.message.len() as u32).to_le_bytes());
    batch.extend_from_slice(item.message);
}

/// Reads the next batch of acknowledgements into `batch`.
pub(super) fn read<'b>(
    output: &mut impl Read,
    batch: &'b mut Vec<u8>,
) -> io::Result<impl Iterator<Item = io::Result<(u64, &'b [u8])>>> {
    let mut length = [0; LENGTH_BYTES];
    output.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > BATCH_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a batch that is too long"));
    }
    batch.resize(length as usize, 0);
    output.read_exact(batch)?;
    let of = |(number, reply): (u64, &'b [u8])| (number & NUMBER, reply);
    Ok(acknowledgements(batch).map(move |entry| entry.map(of)))
}

/// The entries of a batch from a program, by job.
fn acknowledgements(batch: &[u8]) -> impl Iterator<Item = io::Result<(u64, &[u8])>> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = acknowledgement(rest);
        rest = entry.map_or(&[][..], |(_, _, rest)| rest);
        let short = || io::Error::new(io::ErrorKind::InvalidData, "a batch that ends too early");
        Some(entry.map(|(number, reply, _)| (number, reply)).ok_or_else(short))
    })
}

fn acknowledgement(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (reply, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u64::from_le_bytes(*number), reply, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, reply: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &(reply.len() as u32).to_le_bytes(), reply].concat()
    }

    #[test]
    fn acknowledgements_are_read_one_after_the_other() {
        let batch = [entry(7, b"a"), entry(9, b""), entry(u64::MAX, b"xyz")].concat();
        let read: Vec<_> = acknowledgements(&batch).map(Result::unwrap).collect();
        assert_eq!(read, [(7, &b"a"[..]), (9, b""), (u64::MAX, b"xyz")]);
    }

    #[test]
    fn a_batch_that_ends_too_early_is_an_error_and_no_more() {
        let batch = [entry(7, b"a"), entry(9, b"bc")].concat();
        for length in 14..batch.len() {
            let read: Vec<_> = acknowledgements(&batch[..length]).collect();
            assert_eq!(read.len(), 2, "{length}");
            assert!(read[0].is_ok() && read[1].is_err(), "{length}");
        }
    }
}
