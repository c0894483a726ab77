//! The count of allocated bytes, in a program of its own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::thread;

use equipoise_heap::{CountingAllocator, allocated_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BLOCK: usize = 8 << 20;

/// Bytes that threads of the test harness and of this test may take.
const OTHERS: usize = BLOCK / 8;

#[test]
fn bytes_are_counted_even_if_another_thread_frees_them() {
    let before = allocated_bytes();
    let mut blocks: Vec<Vec<u8>> =
        (0..200).map(|_| thread::spawn(|| vec![1; BLOCK / 100]).join().unwrap()).collect();
    let with_blocks = allocated_bytes();
    assert!(with_blocks.abs_diff(before + 2 * BLOCK) < OTHERS, "{before} {with_blocks}");

    for block in &mut blocks {
        block.reserve_exact(block.len());
    }
    let grown = allocated_bytes();
    assert!(grown.abs_diff(before + 4 * BLOCK) < OTHERS, "{before} {grown}");

    thread::spawn(move || drop(blocks)).join().unwrap();
    let after = allocated_bytes();
    assert!(after.abs_diff(before) < OTHERS, "{before} {after}");
}
