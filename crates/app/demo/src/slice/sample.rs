//! The program of a worker in the demo: converts colour images to greyscale.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;

use equipoise_slice_dds::greyscale::grey;

/// Arguments of `equipoise sample-worker`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Milliseconds for each image
    #[arg(long)]
    image_ms: u64,
    /// A file to which the ids of processed images are appended, 8 bytes each
    #[arg(long)]
    log: PathBuf,
}

/// Size of an entry's head, before the message, in bytes.
const HEAD: usize = 36;

/// Runs `equipoise sample-worker`.
///
/// # Errors
/// A socket, a process or standard output fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&args.log);
    let mut log = log.with_context(|| format!("cannot write {}", args.log.display()))?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut batch = Vec::new();
    loop {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error.into()),
        }
        batch.resize(u32::from_le_bytes(length) as usize, 0);
        input.read_exact(&mut batch)?;
        let mut rest = &batch[..];
        while let Some((job, id, message)) = entry(&mut rest) {
            let begun = Instant::now();
            let reply = match grey(message) {
                Some(grey) => format!("processed {} pixels", grey.len()),
                None => "no image".to_string(),
            };
            let work = Duration::from_millis(args.image_ms);
            std::thread::sleep(work.saturating_sub(begun.elapsed()));
            log.write_all(&id.to_le_bytes())?;
            output.write_all(&(12 + reply.len() as u32).to_le_bytes())?;
            output.write_all(&job.to_le_bytes())?;
            output.write_all(&(reply.len() as u32).to_le_bytes())?;
            output.write_all(reply.as_bytes())?;
            output.flush()?;
        }
    }
}

/// The next entry of a batch: job, id, message.
fn entry<'b>(rest: &mut &'b [u8]) -> Option<(u64, i64, &'b [u8])> {
    let (head, after) = rest.split_at_checked(HEAD)?;
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let length = u32::from_le_bytes(head.get(32..36)?.try_into().ok()?) as usize;
    let (message, after) = after.split_at_checked(length)?;
    *rest = after;
    Some((number(0)?, number(12)?.cast_signed(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_entry_by_entry() {
        let one = |job: u64, id: i64, message: &[u8]| {
            let (slice, sender, timestamp) = (3_u32, 4_i32, 5_i64);
            [
                &job.to_le_bytes()[..],
                &slice.to_le_bytes(),
                &id.to_le_bytes(),
                &sender.to_le_bytes(),
                &timestamp.to_le_bytes(),
                &(message.len() as u32).to_le_bytes(),
                message,
            ]
            .concat()
        };
        let batch = [one(1, -7, b"abc"), one(2, 8, b"")].concat();
        let mut rest = &batch[..];
        assert_eq!(entry(&mut rest), Some((1, -7, &b"abc"[..])));
        assert_eq!(entry(&mut rest), Some((2, 8, &b""[..])));
        assert_eq!(entry(&mut rest), None);
        let mut cut = &batch[..30];
        assert_eq!(entry(&mut cut), None);
    }
}
