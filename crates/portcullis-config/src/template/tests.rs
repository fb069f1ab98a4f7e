use super::*;

struct Known;

impl Sources for Known {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "X").then(|| "canary".to_owned())
    }

    fn file(&self, path: &str) -> Option<String> {
        match path {
            "/f" => Some("text\r\n".to_owned()),
            "/long" => Some("x".repeat(Template::MAX_BYTES / 10)),
            "/vars" => Some("A=1\nexport B=\"two\"\n".to_owned()),
            _ => None,
        }
    }

    fn has_keyring(&self) -> bool {
        true
    }

    fn keyring(&self, service: &str, account: &str) -> Option<SecretString> {
        (service == "git.example" && account == "ada/work").then(|| SecretString::from("ring"))
    }
}

#[test]
fn references_are_replaced_and_all_else_stays_as_it_is() {
    for (source, value) in [
        ("", Some("")),
        ("plain $X $ {X} }", Some("plain $X $ {X} }")),
        ("a${X}b${env:X}c", Some("acanarybcanaryc")),
        ("${Y:-or}${X:-not}", Some("orcanary")),
        ("${Y:-}", Some("")),
        ("<${file:/f}>", Some("<text>")),
        ("${unclosed", Some("${unclosed")),
        ("${Y}", None),
        ("${file:/g}", None),
        ("${keyring:git.example/ada/work}", Some("ring")),
        ("${keyring:git.example/other}", None),
        ("${keyring:nothing}", None),
        ("${keyring:/a}", None),
        ("${input:x}", None),
        ("${}", None),
        ("${1X}", None),
    ] {
        let template = Template::parse(source);
        let resolved = template.resolve(&Known).ok();
        assert_eq!(
            resolved.as_ref().map(|text| text.expose_secret()),
            value,
            "{source}"
        );
        assert_eq!(
            template.unresolved(&Known).is_empty(),
            value.is_some(),
            "{source}"
        );
        assert_eq!(template.source(), source);
    }
    let values = Template::parse("--x=${X}, ${file:/f} ${NO}").referred_values(&Known);
    let values: Vec<_> = values.iter().map(|value| value.expose_secret()).collect();
    assert_eq!(values, ["canary", "text"]);
    let many = Template::parse(&"${file:/long}".repeat(20));
    assert_eq!(many.resolve(&Known).unwrap_err(), ResolveError::TooLong);
    assert_eq!(many.unresolved(&Known), [ResolveError::TooLong]);
    assert!(!Template::literal("${X}").has_references());
    let of_file = |path, name| Template::env_file(path, name).resolve(&Known);
    assert_eq!(of_file("/vars", "B").unwrap().expose_secret(), "two");
    assert_eq!(
        of_file("/gone", "B").unwrap_err(),
        ResolveError::File("/gone".to_owned())
    );
    let unset = ResolveError::EnvFile {
        path: "/vars".to_owned(),
        name: "C".to_owned(),
    };
    assert_eq!(of_file("/vars", "C").unwrap_err(), unset);
}

#[test]
fn every_reference_without_a_value_is_named_and_no_value_is_shown() {
    let template = Template::parse("${X} ${A} ${file:/g} ${keyring:a/b} ${B:-x}");
    let missing: Vec<_> = template
        .unresolved(&Known)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(missing[0].contains("`A`") && missing[1].contains("`/g`") && missing[2].contains("`a/b`"));
    assert_eq!(template.variables().collect::<Vec<_>>(), ["X", "A", "B"]);
    assert_eq!(template.files().collect::<Vec<_>>(), ["/g"]);
    assert!(!format!("{:?} {:?}", template, Template::literal("canary")).contains("canary"));
}
