//! Greyscale at a given cost.

use std::time::Duration;

use equipoise_slice_dds::greyscale::{colour, grey};

use crate::usage;

/// Greyscale of `image`, again and again until that has cost `cost` of CPU time: what it costs on a
/// slower core.
pub(crate) fn grey_at_cost(image: &[u8], cost: Duration) -> Vec<u8> {
    let begun = usage::cpu_of_thread();
    loop {
        let reply = match grey(std::hint::black_box(image)) {
            Some(grey) => format!("processed {} pixels", grey.len()).into_bytes(),
            None => b"processed".to_vec(),
        };
        if usage::cpu_of_thread() - begun >= cost {
            return reply;
        }
    }
}

/// An image of about so many bytes.
pub(crate) fn of_bytes(bytes: usize) -> Vec<u8> {
    const WIDTH: usize = 16;
    colour(WIDTH, (bytes / (3 * WIDTH)).max(1), 1)
}
