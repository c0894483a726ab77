//! The processing of items in the paper's evaluation, for the demo and the lab: generated colour
//! images (PPM, P6), and their greyscale.
//!
//! # Source
//! Vasconcelos, DPSLB (PUC-Rio), the evaluation's application.

/// An image of `width` by `height` pixels. Each `seed` gives another image.
pub fn colour(width: usize, height: usize, seed: u64) -> Vec<u8> {
    let mut image = format!("P6\n{width} {height}\n255\n").into_bytes();
    for y in 0..height {
        for x in 0..width {
            let shade = (x * 255 / width.max(1)) as u8;
            let depth = (y * 255 / height.max(1)) as u8;
            image.extend_from_slice(&[shade, depth, (seed as u8).wrapping_add(shade ^ depth)]);
        }
    }
    image
}

/// 0.3 R + 0.59 G + 0.11 B of each pixel, as in the paper. `None`: the bytes are not such an image.
pub fn grey(image: &[u8]) -> Option<Vec<u8>> {
    let text = image.strip_prefix(b"P6\n")?;
    let head = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1)?.0;
    let (size, pixels) = (std::str::from_utf8(&text[..head]).ok()?, &text[head + 1..]);
    let (size, most) = size.split_once('\n')?;
    let (width, height) = size.split_once(' ')?;
    let count = width.parse::<usize>().ok()?.checked_mul(height.parse().ok()?)?;
    if most != "255" || pixels.len() != count.checked_mul(3)? {
        return None;
    }
    let grey = |pixel: &[u8]| {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        ((300 * red + 590 * green + 110 * blue) / 1000) as u8
    };
    Some(pixels.chunks_exact(3).map(grey).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_the_weighted_mean() {
        let image = b"P6\n2 1\n255\n\xff\xff\xff\x64\x00\x0a";
        assert_eq!(grey(image), Some(vec![255, 31]));
        assert_eq!(grey(&colour(64, 48, 3)).map(|grey| grey.len()), Some(64 * 48));
    }

    #[test]
    fn a_truncated_image_has_no_greyscale() {
        let image = colour(8, 8, 0);
        for length in 0..image.len() {
            assert_eq!(grey(&image[..length]), None, "{length}");
        }
    }
}
