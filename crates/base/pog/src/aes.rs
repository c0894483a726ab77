//! The arithmetic of AES (FIPS 197), for programs without its instructions.

/// Twice a byte, in the field of AES (section 4.2.1).
pub const fn double(byte: u8) -> u8 {
    byte << 1 ^ (if byte & 0x80 != 0 { 0x1b } else { 0 })
}

/// The substitution box (section 5.1.1): the inverse in the field, and an affine map.
pub static S_BOX: [u8; 256] = {
    let mut found = [0x63; 256];
    // 3 generates all elements: p runs up through them, q down.
    let (mut p, mut q) = (1_u8, 1_u8);
    loop {
        p ^= double(p);
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        if q & 0x80 != 0 {
            q ^= 0x09;
        }
        let x = q;
        found[p as usize] =
            x ^ x.rotate_left(1) ^ x.rotate_left(2) ^ x.rotate_left(3) ^ x.rotate_left(4) ^ 0x63;
        if p == 1 {
            break found;
        }
    }
};
