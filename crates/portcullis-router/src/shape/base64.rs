//! Base64 (RFC 4648) in its canonical form, and in the forms that servers send.

use base64_simd::STANDARD;

/// The bytes of `text` if it is canonical base64: the standard alphabet, padded, no byte out of place. Encoding
/// them again gives `text` to the letter.
pub(super) fn canonical(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode_to_vec(text).ok()
}

/// The bytes of `text` where the protocol says that it is base64, and whether it was canonical. Accepts white
/// space anywhere, missing padding, and the URL-safe alphabet.
pub(super) fn lenient(text: &str) -> Option<(Vec<u8>, bool)> {
    if let Some(bytes) = canonical(text) {
        return Some((bytes, true));
    }
    let is_url_safe = text.contains(['-', '_']);
    if is_url_safe && text.contains(['+', '/']) {
        return None;
    }
    let plain: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    base64_simd::forgiving_decode_to_vec(&plain)
        .ok()
        .map(|bytes| (bytes, false))
}

/// The size of so many bytes in canonical base64, in bytes.
pub(super) fn canonical_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(3).saturating_mul(4)
}

/// Whether `byte` is of the standard alphabet.
pub(super) fn is_alphabet(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_base64() {
        let check = |text: &str, expected: Option<(&[u8], bool)>| {
            let found = lenient(text);
            let found = found
                .as_ref()
                .map(|(bytes, canonical)| (bytes.as_slice(), *canonical));
            assert_eq!(found, expected, "{text:?}");
            let is_canonical = expected.is_some_and(|(_, canonical)| canonical);
            assert_eq!(canonical(text).is_some(), is_canonical, "{text:?}");
        };
        check("", Some((b"", true)));
        check("QQ==", Some((b"A", true)));
        check("+/+/", Some((b"\xfb\xff\xbf", true)));
        check("QQ", Some((b"A", false)));
        check("QR==", Some((b"A", false)));
        check("aGVs\r\nbG8=\n", Some((b"hello", false)));
        check("-_-_", Some((b"\xfb\xff\xbf", false)));
        check("+_-/", None);
        check("Q", None);
        check("QQ=", None);
        check("QQ===", None);
        check("not base64!", None);
        check("QUJD\0", None);
    }
}
