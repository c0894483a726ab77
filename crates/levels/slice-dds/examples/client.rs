//! A simple client: publishes each line of its standard input as an item, and prints the replies.
//!
//!     cargo run --example client -- DOMAIN SLICES < FILE

use std::error::Error;
use std::time::Duration;

use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Assignment, Client, Options, PublishError};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [domain, slices] = args.as_slice() else {
        return Err("usage: client DOMAIN SLICES".into());
    };
    let stream = Stream { domain: domain.parse()?, ..Stream::default() };
    let mut client = Client::join(&stream, Options::new(1))?;
    let slices = Assignment::Hash(slices.parse()?);
    let mut answers = Vec::new();
    for (id, line) in std::io::stdin().lines().enumerate() {
        let (slice, line) = (slices.slice(id as u64), line?);
        // The client's window limits the items without a reply.
        loop {
            match client.publish(slice, id as i64, line.as_bytes()) {
                Err(PublishError::WindowFull(_)) => {}
                // Any other error ends the program, with items that have no reply.
                published => break published?,
            }
            client.replies(Duration::from_millis(10), &mut answers)?;
        }
        // Also while the window has space: workers may ask for lost items.
        client.replies(Duration::ZERO, &mut answers)?;
    }
    while client.pending() > 0 {
        client.replies(Duration::from_millis(100), &mut answers)?;
    }
    for answer in answers {
        println!("{} {:?} {}", answer.id, answer.delay, String::from_utf8_lossy(&answer.message));
    }
    Ok(())
}
