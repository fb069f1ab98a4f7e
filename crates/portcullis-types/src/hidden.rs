/// Whether a reader does not see `character`, or sees what is around it out of order: empty and joining characters,
/// marks of direction, tags, separators of lines. Control characters, variation selectors (parts of emoji) and blanks are
/// not among them.
///
/// Text of others that holds one can read as something else than it is, so it is escaped where it is shown.
///
/// ```
/// use portcullis_types::is_hidden;
///
/// assert!(is_hidden('\u{202e}'));
/// assert!(!is_hidden(' '));
/// ```
#[must_use]
pub fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_begins_and_ends_where_it_does() {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for number in ('\0'..=char::MAX)
            .filter(|character| is_hidden(*character))
            .map(u32::from)
        {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let expected = [
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0x3164, 0x3164),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff9, 0xfffb),
            (0x1_d173, 0x1_d17a),
            (0xe_0000, 0xe_0fff),
        ];
        assert_eq!(runs, expected);
    }
}
