//! Round keys of AES-128 (FIPS 197) for the program, which has no library.

use equipoise_pog::aes::{S_BOX, double};

const ROUNDS: usize = 10;

/// Round keys in the order of their use, two words each in the order of memory.
pub(super) type RoundKeys = [u64; 2 * (ROUNDS + 1)];

/// Returns the round keys that encrypt.
pub(super) fn encrypting(key: &[u8; 16]) -> RoundKeys {
    words(&expand(key))
}

/// Returns those of the equivalent inverse cipher (section 5.3.5).
pub(super) fn decrypting(key: &[u8; 16]) -> RoundKeys {
    let mut keys = expand(key);
    keys.reverse();
    for key in &mut keys[1..ROUNDS] {
        for column in key.as_chunks_mut::<4>().0 {
            *column = unmixed(*column);
        }
    }
    words(&keys)
}

/// Section 5.2.
fn expand(key: &[u8; 16]) -> [[u8; 16]; ROUNDS + 1] {
    let mut keys = [*key; ROUNDS + 1];
    let mut constant = 1;
    for round in 1..=ROUNDS {
        let before = keys[round - 1];
        let last =
            [before[13], before[14], before[15], before[12]].map(|byte| S_BOX[usize::from(byte)]);
        for at in 0..16 {
            let mixed = if at < 4 { last[at] } else { keys[round][at - 4] };
            keys[round][at] = before[at] ^ mixed ^ if at == 0 { constant } else { 0 };
        }
        constant = double(constant);
    }
    keys
}

/// InvMixColumns of a column (section 5.3.3).
fn unmixed(column: [u8; 4]) -> [u8; 4] {
    [0, 1, 2, 3].map(|row| {
        let factors = [14, 11, 13, 9].into_iter().zip(0..);
        factors.fold(0, |sum, (factor, at)| sum ^ product(column[(row + at) % 4], factor))
    })
}

/// The product in AES's field (section 4.2).
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

fn words(keys: &[[u8; 16]; ROUNDS + 1]) -> RoundKeys {
    let mut words = [0; 2 * (ROUNDS + 1)];
    for (word, bytes) in words.iter_mut().zip(keys.as_flattened().as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, appendix A.1.
    #[test]
    fn round_keys_equal_the_example_of_fips_197() {
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let last = 0xd014_f9a8_c9ee_2589_e13f_0cc8_b663_0ca6_u128.to_be_bytes();
        let encrypting = encrypting(&key);
        assert_eq!(encrypting[..2], words(&[key; 11])[..2]);
        assert_eq!(encrypting[20..], words(&[last; 11])[20..]);
        let decrypting = decrypting(&key);
        assert_eq!(decrypting[..2], encrypting[20..]);
        assert_eq!(decrypting[20..], encrypting[..2]);
    }
}
