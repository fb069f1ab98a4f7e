/// Whether `text`, which is JSON, is nested deeper than `limit` levels. Iterative: no depth can exhaust a stack.
pub(super) fn exceeds(text: &str, limit: usize) -> bool {
    let text = text.as_bytes();
    // Most messages have fewer brackets than the limit allows levels: a quick count settles them.
    if memchr::memchr2_iter(b'{', b'[', text)
        .take(limit.saturating_add(1))
        .count()
        <= limit
    {
        return false;
    }
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(after),
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// What follows the closing quote of a string whose opening quote was just read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let escape = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(escape)..).unwrap_or_default();
        if !escape {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_strings_count() {
        for (text, depth) in [
            ("1", 0),
            ("[]", 1),
            ("[[],[],[[]]]", 3),
            (r#"{"a":"[[[[[[\"[[[[","b":[{}]}"#, 3),
            (r#"["\\",["\\\""],"]]]]"]"#, 2),
        ] {
            assert!(!exceeds(text, depth), "{text}");
            assert_eq!(exceeds(text, depth.saturating_sub(1)), depth > 0, "{text}");
        }
    }
}
