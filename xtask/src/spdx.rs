//! Licence expressions of crates (SPDX, with the old `/` for OR): is there a choice that our list allows?

use std::iter::Peekable;
use std::vec::IntoIter;

/// Whether an expression can be met with licences that `allowed` accepts. A `WITH` exception is part of the name:
/// `Apache-2.0 WITH LLVM-exception`.
///
/// # Errors
///
/// Says what is wrong with an expression that cannot be read.
pub(crate) fn is_met(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    let mut parser = Parser {
        words: words.into_iter().peekable(),
        allowed,
    };
    let met = parser
        .either()
        .ok_or_else(|| format!("cannot read the licence expression `{expression}`"))?;
    match parser.words.next() {
        None => Ok(met),
        Some(word) => Err(format!(
            "did not expect `{word}` in the licence expression `{expression}`"
        )),
    }
}

struct Parser<'a> {
    words: Peekable<IntoIter<String>>,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn either(&mut self) -> Option<bool> {
        let mut met = self.both()?;
        while self.words.next_if(|word| word == "OR").is_some() {
            met |= self.both()?;
        }
        Some(met)
    }

    fn both(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.words.next_if(|word| word == "AND").is_some() {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        let word = self.words.next()?;
        if word == "(" {
            let met = self.either()?;
            return (self.words.next()? == ")").then_some(met);
        }
        if matches!(word.as_str(), ")" | "OR" | "AND" | "WITH") {
            return None;
        }
        if self.words.next_if(|next| next == "WITH").is_none() {
            return Some((self.allowed)(&word));
        }
        let exception = self.words.next()?;
        Some((self.allowed)(&format!("{word} WITH {exception}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: Option<bool>) {
        let allowed = |name: &str| ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].contains(&name);
        assert_eq!(is_met(expression, &allowed).ok(), expected, "{expression}");
    }

    #[test]
    fn a_choice_must_be_allowed() {
        check("MIT", Some(true));
        check("GPL-3.0", Some(false));
        check("GPL-3.0 OR MIT", Some(true));
        check("GPL-3.0/MIT", Some(true));
        check("GPL-3.0 AND MIT", Some(false));
        check("MIT AND (GPL-3.0 OR Apache-2.0)", Some(true));
        check("(MIT OR Apache-2.0) AND Unicode-3.0", Some(false));
        check("GPL-3.0 OR MIT AND Apache-2.0", Some(true));
        check("MIT AND GPL-3.0 OR Apache-2.0", Some(true));
        check("Apache-2.0 WITH LLVM-exception", Some(true));
        check("Apache-2.0 WITH Other-exception", Some(false));
    }

    #[test]
    fn nonsense_is_an_error() {
        for expression in [
            "",
            "OR",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "MIT WITH",
            "AND MIT",
            "()",
        ] {
            check(expression, None);
        }
    }
}
