//! The program of a worker: greyscale at a given cost, an acknowledgement for each item.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::image;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// CPU time of an item, microseconds
    #[arg(long, default_value_t = 0)]
    cost_us: u64,
}

/// Runs until its standard input ends. The format is that of
/// `equipoise_slice_dds::worker::Program`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let cost = Duration::from_micros(args.cost_us);
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout());
    let (mut length, mut batch, mut answer) = ([0; 4], Vec::new(), Vec::new());
    while input.read_exact(&mut length).is_ok() {
        batch.resize(u32::from_le_bytes(length) as usize, 0);
        input.read_exact(&mut batch)?;
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let (job, head) = rest.split_first_chunk::<8>().context("a job that is too short")?;
            // Slice, id, sender, timestamp.
            let (_, head) = head.split_at_checked(24).context("a job that is too short")?;
            let (size, body) = head.split_first_chunk::<4>().context("a job that is too short")?;
            let size = u32::from_le_bytes(*size) as usize;
            let (message, next) = body.split_at_checked(size).context("a job that is too short")?;
            let reply = image::grey_at_cost(message, cost);
            answer.clear();
            answer.extend_from_slice(&(12 + reply.len() as u32).to_le_bytes());
            answer.extend_from_slice(job);
            answer.extend_from_slice(&(reply.len() as u32).to_le_bytes());
            answer.extend_from_slice(&reply);
            output.write_all(&answer)?;
            output.flush()?;
            rest = next;
        }
    }
    Ok(())
}
