/// A body of any length that need not be kept to be checked: the byte at each offset is known.
///
/// A block of random bytes repeated. Its length is prime, so a lost, doubled or swapped buffer of
/// any usual size shows.
#[derive(Clone, Debug)]
pub struct Pattern {
    block: Vec<u8>,
    offset: u64,
}

const BLOCK_BYTES: usize = 65_521;

impl Pattern {
    /// The pattern of `seed`, at its start.
    pub fn new(seed: u64) -> Pattern {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        let block = (0..BLOCK_BYTES).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        Pattern { block: block.collect(), offset: 0 }
    }

    /// How many bytes were given out or checked.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes, at most `max`, at least one.
    pub fn next(&mut self, max: usize) -> &[u8] {
        let start = (self.offset % BLOCK_BYTES as u64) as usize;
        let end = BLOCK_BYTES.min(start + max);
        self.offset += (end - start) as u64;
        &self.block[start..end]
    }

    /// Checks that `bytes` are the next ones.
    ///
    /// # Errors
    /// The offset of the first byte that is not.
    pub fn check(&mut self, mut bytes: &[u8]) -> Result<(), u64> {
        while !bytes.is_empty() {
            let before = self.offset;
            let want = self.next(bytes.len());
            let (now, later) = bytes.split_at(want.len());
            if now != want {
                let same = now.iter().zip(want).take_while(|(a, b)| a == b).count();
                return Err(before + same as u64);
            }
            bytes = later;
        }
        Ok(())
    }

    /// The first `len` bytes of the pattern of `seed`.
    pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut pattern = Pattern::new(seed);
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let more = pattern.next(len - bytes.len());
            bytes.extend_from_slice(more);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_bytes_pass_the_check_and_a_lost_buffer_fails_it() {
        let bytes = Pattern::bytes(7, 300_000);
        assert_eq!(Pattern::new(7).check(&bytes), Ok(()));
        let lost = [&bytes[..65_536], &bytes[131_072..]].concat();
        let at = Pattern::new(7).check(&lost).expect_err("a buffer is missing");
        assert!((65_536..65_700).contains(&at), "{at}");
    }
}
