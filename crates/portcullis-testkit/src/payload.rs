//! Payloads that look random and are the same on every run.

/// `len_bytes` bytes that look random and depend on nothing but the seed. For the media type `image/png` they start
/// with a PNG signature and header, so that a reader of magic numbers sees a PNG; the picture cannot be shown.
#[must_use]
pub fn pseudo_random(media_type: &str, len_bytes: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len_bytes.saturating_add(8));
    if media_type == "image/png" {
        bytes.extend_from_slice(&PNG_HEADER);
    }
    let mut state = seed;
    while bytes.len() < len_bytes {
        bytes.extend_from_slice(&split_mix(&mut state).to_le_bytes());
    }
    bytes.truncate(len_bytes);
    bytes
}

/// Standard base64 with padding (RFC 4648 section 4), as MCP's binary content carries it.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

/// The signature and the header chunk of a picture of 1 by 1 pixel, 8 bits of grey (PNG, sections 5.2 and 11.2.1).
const PNG_HEADER: [u8; 33] = [
    0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55,
];

/// One step of the SplitMix64 generator (Steele, Lea and Flood 2014): tiny, and good enough to defeat compression.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(media_type: &str, len_bytes: usize, starts: &[u8]) {
        let bytes = pseudo_random(media_type, len_bytes, 7);
        assert_eq!(bytes.len(), len_bytes);
        assert!(bytes.starts_with(starts), "{bytes:?}");
        assert_eq!(
            bytes,
            pseudo_random(media_type, len_bytes, 7),
            "the same on every run"
        );
        if len_bytes > PNG_HEADER.len() {
            assert_ne!(bytes, pseudo_random(media_type, len_bytes, 8), "the seed matters");
        }
    }

    #[test]
    fn payloads_have_their_length_header_and_seed() {
        check("image/png", 100, b"\x89PNG\r\n\x1a\n");
        check("image/png", 4, b"\x89PNG");
        check("audio/wav", 0, b"");
        // The first number of the generator for the seed 0, as published.
        assert_eq!(
            pseudo_random("x/y", 8, 0),
            0xe220_a839_7b1d_cdaf_u64.to_le_bytes()
        );
    }

    #[test]
    fn base64_is_the_padded_standard_alphabet() {
        assert_eq!(base64(b"\xfb\xff\xfe\x00"), "+//+AA==");
    }
}
