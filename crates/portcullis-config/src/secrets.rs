//! Which names carry a capability: whoever knows the value may act in somebody's name.

use crate::Options;

/// Whether a variable's name says so: by whole words, split at `_`, or because the host lists it.
pub(crate) fn variable(name: &str, options: &Options) -> bool {
    options.allowed_inherited_env_keys.contains(name)
        || name
            .split('_')
            .any(|word| options.capability_words.contains(&word.to_ascii_uppercase()))
}

/// The same for a header, an argument or a query parameter, whose words are split at any punctuation and at
/// capitals: `X-Api-Key`, `--api-key`, `tavilyApiKey`.
pub(crate) fn name(name: &str, options: &Options) -> bool {
    let mut word = String::new();
    let mut last_lower = false;
    for c in name.chars().chain(std::iter::once('-')) {
        let ends = !c.is_alphanumeric() || (c.is_uppercase() && last_lower);
        if ends
            && options
                .capability_words
                .contains(&std::mem::take(&mut word).to_ascii_uppercase())
        {
            return true;
        }
        if c.is_alphanumeric() {
            word.push(c);
        }
        last_lower = c.is_lowercase();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_count_and_parts_of_words_do_not() {
        let mut options = Options::default();
        options.allowed_inherited_env_keys.insert("SSH_AGENT".to_owned());
        for (text, carries) in [
            ("GITHUB_TOKEN", true),
            ("API_KEY", true),
            ("api_key", true),
            ("SSH_AGENT", true),
            ("KEYBOARD_LAYOUT", false),
            ("MONKEY", false),
            ("PATH", false),
            ("TOKENIZERS_PARALLELISM", false),
        ] {
            assert_eq!(variable(text, &options), carries, "{text}");
        }
        for (text, carries) in [
            ("X-Api-Key", true),
            ("--api-key", true),
            ("tavilyApiKey", true),
            ("Authorization", true),
            ("keyboard", false),
            ("Accept", false),
        ] {
            assert_eq!(name(text, &options), carries, "{text}");
        }
    }
}
