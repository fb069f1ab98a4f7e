//! How deep a text will be once it is parsed, counted without parsing it.

use crate::PolicyProblem;

/// The most brackets that stand in each other in a text. Without optimisation one of them takes the parser up to 60 KiB
/// of its stack.
pub(super) const MAX_BRACKETS: usize = 2_048;

/// The most operators of one policy. Each may be one more level of its tree, without any bracket; such a level takes up to
/// 5 KiB.
pub(super) const MAX_OPERATORS: usize = 20_000;

/// What a text may hold so that there is room enough to parse it, and where it holds more: the line, and what is wrong.
/// It is no parser: whatever it misreads, such as a field with the name `if`, it counts rather than leaves out.
pub(crate) fn check(text: &str) -> Result<(), (usize, PolicyProblem)> {
    let mut open = Vec::new();
    let (mut line, mut operators) = (1, 0);
    let mut bytes = text.bytes().peekable();
    let mut before = b' ';
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => line += 1,
            b'"' => line += skip_string(&mut bytes),
            b'/' if bytes.peek() == Some(&b'/') => {
                // The parser ends a comment at a carriage return as well.
                while bytes.next_if(|next| !matches!(next, b'\n' | b'\r')).is_some() {}
            }
            b'(' | b'[' | b'{' => {
                open.push(byte);
                operators += 1;
            }
            // One that closes nothing is wrong, and what it stands in is as deep as before.
            b')' => _ = open.pop_if(|last| *last == b'('),
            b']' => _ = open.pop_if(|last| *last == b'['),
            b'}' => _ = open.pop_if(|last| *last == b'{'),
            b';' if open.is_empty() => operators = 0,
            // Two comparisons never stand in a row, so they add no more than a level to what is counted.
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'!' => operators += 1,
            b'|' | b'&' => operators += usize::from(bytes.next_if_eq(&byte).is_some()),
            b'i' if !is_of_word(before) => operators += usize::from(bytes.next_if_eq(&b'f').is_some()),
            _ => {}
        }
        before = byte;
        if open.len() > MAX_BRACKETS {
            return Err((line, PolicyProblem::TooDeep(MAX_BRACKETS)));
        }
        if operators > MAX_OPERATORS {
            return Err((line, PolicyProblem::TooLong(MAX_OPERATORS)));
        }
    }
    Ok(())
}

/// Goes behind a string whose first quote was read; gives the lines that end in it.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) -> usize {
    let mut lines = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => lines += usize::from(bytes.next() == Some(b'\n')),
            b'\n' => lines += 1,
            _ => {}
        }
    }
    lines
}

fn is_of_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphabetic()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_what_is_code_is_counted_and_in_its_own_policy() {
        let check = |text: &str, told: Option<(usize, &str)>| {
            let found = super::check(text).map_err(|(line, problem)| (line, problem.to_string()));
            match (found, told) {
                (Ok(()), None) => {}
                (Err((line, problem)), Some((at, told))) => {
                    assert!(line == at && problem.contains(told), "{line}: {problem}");
                }
                (found, _) => panic!("{found:?} of {}", text.chars().take(40).collect::<String>()),
            }
        };
        let many = "(".repeat(3_000);
        check(&format!("// {many}\n\"{many}\\\"{many}\n\""), None);
        check(&format!("// \r{many}"), Some((1, "deep")));
        check(&format!("\"a\n\\\n\"\n\"\"{many}"), Some((4, "deep")));
        // What closes nothing does not make room.
        check(&"(]".repeat(3_000), Some((1, "deep")));
        check(&"()".repeat(3_000), None);
        let half = "a || ".repeat(12_000);
        check(&format!("{half};\n{half}"), None);
        check(&format!("{half}\n{half}"), Some((2, "operators")));
        check(&format!("{half}(;\n){half}"), Some((2, "operators")));
        check(&"notif elseif ".repeat(30_000), None);
    }
}
