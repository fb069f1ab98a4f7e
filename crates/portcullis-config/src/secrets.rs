//! Which names carry a capability: whoever knows the value may act in somebody's name.

use crate::{Options, Template};

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

/// A text as names of variables are written: `X_API_KEY`.
pub(crate) fn capitals(text: &str) -> String {
    let capital = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    text.chars().map(capital).collect()
}

/// Whether a text of a document holds a secret itself: it looks like one, or it stands under a name that carries a
/// capability (`named`) and is more than references.
pub(crate) fn holds(text: &str, named: bool) -> bool {
    let template = Template::parse(text);
    let literal = !text.is_empty() && !template.has_references();
    named && (literal || template.has_defaults()) || looks_secret(text) || template.any_literal(looks_secret)
}

/// Whether a value looks like a secret, whatever it is called: it starts as well-known tokens do, is a url with
/// a password in it, or is a long run of letters and digits that nobody would think up.
pub(crate) fn looks_secret(value: &str) -> bool {
    const STARTS: [&str; 22] = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk_",
        "pk_live_",
        "rk_live_",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xapp-",
        "AKIA",
        "ASIA",
        "AIza",
        "ya29.",
        "eyJ",
        "lin_api_",
        "ntn_",
    ];
    const SHORTEST: usize = 16;
    let started = |word: &str| word.len() >= SHORTEST && STARTS.iter().any(|start| word.starts_with(start));
    has_password(value)
        || value.contains("PRIVATE KEY-----")
        || value
            .split([' ', '\t', '\n', '"', '\'', ',', ';', '{', '}', '(', ')'])
            .any(|word| {
                let parts = |word: &str| {
                    word.split(['/', '?', '&', '='])
                        .any(|part| started(part) || is_random(part))
                };
                started(word) || is_random(word) || word.contains("://") && parts(word)
            })
}

/// Where a secret starts in an argument that says itself what it holds: after `NAME=` or a header's name, which may be
/// an option's value (`--header=NAME: …`), or at its start where the whole looks like one.
pub(crate) fn in_argument(argument: &str, options: &Options) -> Option<usize> {
    in_text(argument, None, options)
}

/// The same of a whole argument, or of the value of `option` in it.
fn in_text(text: &str, option: Option<&str>, options: &Options) -> Option<usize> {
    for separator in ['=', ':'] {
        let Some((before, after)) = text.split_once(separator) else {
            continue;
        };
        let is_name = !before.is_empty()
            && before
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let value = after.trim();
        // In an option's value a colon has many uses: `--sort=key:asc`, `--volume=key:/data`.
        let gives = separator == '=' || after.starts_with(' ') || option.is_none_or(takes_header);
        if is_name && (gives && !value.is_empty() && name(before, options) || looks_secret(value)) {
            return Some(text.len() - after.trim_start().len());
        }
        // One level: what starts as an option is no option's value.
        if is_name
            && before.starts_with('-')
            && !after.starts_with('-')
            && let Some(from) = in_text(after, Some(before), options)
        {
            return Some(text.len() - after.len() + from);
        }
    }
    (holds(text, false) || in_query(text, options)).then_some(0)
}

/// Whether what an option takes is a header or a variable, each with a name in front: `--extra-header`, `-H`.
fn takes_header(option: &str) -> bool {
    let last = option.rsplit(['-', '_']).next().unwrap_or(option);
    last == "H" || ["header", "headers", "env"].contains(&last.to_ascii_lowercase().as_str())
}

/// Whether it is a url with a parameter that carries a capability.
fn in_query(text: &str, options: &Options) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        url.query_pairs()
            .any(|(key, value)| !value.is_empty() && !value.starts_with("${") && name(&key, options))
    })
}

/// `Bearer` and its like say how a secret is used, and are none.
pub(crate) fn after_scheme(value: &str) -> &str {
    ["Bearer ", "bearer ", "Basic ", "Token ", "token ", "ApiKey "]
        .iter()
        .find_map(|scheme| value.strip_prefix(scheme))
        .unwrap_or(value)
}

/// `scheme://user:password@host`.
pub(crate) fn has_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
        authority
            .rsplit_once('@')
            .is_some_and(|(user, _)| user.contains(':') && !user.contains("${"))
    })
}

fn is_random(value: &str) -> bool {
    const SHORTEST: usize = 24;
    const FEWEST_DIGITS: usize = 4;
    let plain = value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-+=".contains(&b));
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    // Names of packages and models are words between hyphens; tokens have long stretches without one.
    let longest_run = value.split(['-', '_']).map(str::len).max().unwrap_or(0);
    value.len() >= SHORTEST && plain && letters && digits >= FEWEST_DIGITS && longest_run >= 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_look_like_secrets_do_and_others_do_not() {
        for (value, secret) in [
            ("ghp_abcdefghijklmnop", true),
            ("sk-ant-0123456789abcdef", true),
            ("postgres://app:pass@db.example.com/x", true),
            ("postgres://app:${env:PASSWORD}@db/x", false),
            ("https://example.com/@scope:1/x", false),
            ("9f8e7d6c5b4a39281706f5e4d3c2b1a0", true),
            ("CANARY-0123456789-abcdefghij", true),
            ("@modelcontextprotocol/server-github@2025.4.8", false),
            ("mcp-server-time-2025-11-25-preview", false),
            ("claude-sonnet-4-5-20250929", false),
            ("/home/ada/projects/0123456789abcdef", false),
            ("https://example.com/s/9f8e7d6c5b4a39281706f5e4d3c2b1a0/mcp", true),
            ("/nix/store/9f8e7d6c5b4a39281706f5e4d3c2b1a0-tool/bin/tool", false),
            ("{\"key\": \"9f8e7d6c5b4a39281706f5e4d3c2b1a0\"}", true),
            ("warn", false),
            ("", false),
        ] {
            assert_eq!(looks_secret(value), secret, "{value}");
        }
    }

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
