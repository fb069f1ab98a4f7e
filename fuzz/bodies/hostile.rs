//! Documents that cost a careless reader far more than their length: read by the fuzz bodies' tests and by the
//! benchmark, in any size.

/// Each with the name that says how it is written, and about as long as asked.
pub(crate) fn documents(bytes: usize) -> Vec<(&'static str, String)> {
    let mut all = texts_without_meaning(bytes);
    all.extend(servers(bytes));
    all.push(rules(bytes));
    all.extend(fields(bytes));
    all.extend(lists(bytes));
    all.extend(values(bytes));
    all.extend(toml(bytes));
    all
}

/// The unit as often as it fits.
fn repeated(unit: &str, bytes: usize) -> String {
    unit.repeat(bytes / unit.len())
}

/// What `unit` makes of 0, 1, 2 …, until it is long enough.
fn counted(bytes: usize, unit: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(bytes + 128);
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&unit(number));
    }
    text
}

fn texts_without_meaning(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |unit| repeated(unit, bytes);
    vec![
        ("brackets.json", repeated("[")),
        ("comments.json", repeated("//\n")),
        ("strings.json", format!("[{}1]", repeated("\"\\u00e4\","))),
        ("numbers.json", format!("[{}1]", repeated("1,"))),
        ("quotes.json", repeated("\"")),
        ("brackets.yaml", repeated("[")),
        ("braces.yaml", repeated("{a: ")),
        ("dashes.yaml", repeated("- ")),
        ("questions.yaml", repeated("? ")),
        ("colons.yaml", repeated(": ")),
        ("flow.yaml", format!("[{}", repeated("a, "))),
        ("flow_lines.yaml", format!("[{}", repeated("a,\n "))),
        ("flow_map.yaml", format!("{{{}", repeated("a, "))),
        ("plain.yaml", repeated("a")),
        ("plain_lines.yaml", repeated("a\n")),
        ("plain_blanks.yaml", format!("a: b{}c", repeated("\n \n"))),
        ("spaces.yaml", format!("a:{}b", repeated(" "))),
        ("quotes.yaml", format!("\"{}", repeated("\\n"))),
        ("quoted_lines.yaml", format!("\"{}\"", repeated("a\n\n "))),
        ("literal.yaml", format!("a: |\n{}", repeated("  b\n\n"))),
        ("folded.yaml", format!("a: >-\n{}", repeated("  b\n\n   c\n"))),
        ("anchors.yaml", format!("[{}", repeated("&a b, "))),
        ("aliases.yaml", format!("[&a b, {}", repeated("*a, "))),
        ("tags.yaml", format!("[{}", repeated("!!str a, "))),
        ("directives.yaml", repeated("%TAG !a! b\n")),
        ("documents.yaml", repeated("---\n")),
        ("comments.yaml", repeated("# a\n")),
        ("keys.yaml", counted(bytes, |n| format!("k{n}: 1\n"))),
        ("lists.yaml", counted(bytes, |n| format!("- {n}\n"))),
        ("maps_in_lists.yaml", repeated("- - a: - b\n")),
        (
            "steps.yaml",
            counted(bytes.min(8_000), |n| format!("{}a:\n", " ".repeat(n))),
        ),
    ]
}

/// As many rules for all servers as there may be, and one more for each.
fn rules(bytes: usize) -> (&'static str, String) {
    let hosts: String = (0..256).map(|n| format!("    - h{n}.example\n")).collect();
    let servers = counted(bytes, |n| {
        format!("    - {{name: s{n}, url: \"https://h1.example/{n}\", egress: [o{n}.example]}}\n")
    });
    let text = format!("mcp:\n  allowedHosts:\n{hosts}  servers:\n{servers}");
    ("most_hosts_and_own.yaml", text)
}

fn servers(bytes: usize) -> Vec<(&'static str, String)> {
    let desktop = |unit: &dyn Fn(usize) -> String| {
        let all = counted(bytes, unit);
        format!("{{\"mcpServers\":{{{}}}}}", all.trim_end_matches(','))
    };
    let own = |head: &str, bytes: usize, unit: &dyn Fn(usize) -> String| {
        format!("mcp:\n{head}  servers:\n{}", counted(bytes, unit))
    };
    let hosts = counted(bytes / 2, |n| format!("    - h{n}.example\n"));
    let names = counted(bytes / 2, |n| format!("\"s{n}\","));
    let some = counted(bytes / 2, |n| format!("\"s{n}\":{{}},"));
    vec![
        (
            "good.json",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"node\",\"args\":[\"{n}\"]}},")),
        ),
        (
            "good.yaml",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"node\",\"args\":[\"{n}\"]}},")),
        ),
        ("empty.json", desktop(&|n| format!("\"s{n}\":{{}},"))),
        ("no_objects.json", desktop(&|n| format!("\"{n}\":1,"))),
        ("wrong.json", desktop(&|n| format!("\"s{n}\":{{\"command\":1}},"))),
        (
            "unused.json",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"node\",\"headers\":{{\"A\":\"b\"}}}},")),
        ),
        (
            "same.json",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"node\"}},")),
        ),
        (
            "names.json",
            desktop(&|n| format!("\"S {n}\":{{\"url\":\"https://a.example\"}},")),
        ),
        ("twice.json", desktop(&|_| "\"a\":{},".to_owned())),
        (
            "bare.json",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"c{n}\"}},")),
        ),
        (
            "env_file.json",
            desktop(&|n| format!("\"s{n}\":{{\"command\":\"node\",\"envFile\":\"/f\"}},")),
        ),
        (
            "unnamed.yaml",
            own("", bytes, &|_| "    - {command: a}\n".to_owned()),
        ),
        (
            "namesakes.yaml",
            own("", bytes, &|n| {
                format!("    - {{name: a, command: node, args: [{n}]}}\n")
            }),
        ),
        (
            "hosts.yaml",
            own(&format!("  allowedHosts:\n{hosts}"), bytes / 2, &|n| {
                format!("    - {{name: s{n}, url: \"https://h{n}.example\"}}\n")
            }),
        ),
        (
            "few_hosts.yaml",
            own(
                "  allowedHosts:\n    - a.example\n    - \"*.b.example\"\n",
                bytes,
                &|n| format!("    - {{name: s{n}, url: \"https://a.example/{n}\", egress: [c.example]}}\n"),
            ),
        ),
        (
            "lists.json",
            format!(
                "{{\"mcp\":{{\"allowed\":[{names}\"x\"]}},\"mcpServers\":{{{some}\"x\":{{\"httpUrl\":\"https://a.example\"}}}}}}"
            ),
        ),
    ]
}

/// One server with much in it.
fn fields(bytes: usize) -> Vec<(&'static str, String)> {
    let server = |name: &str, inside: &str| {
        let inside = inside.trim_end_matches(',');
        format!("{{\"mcpServers\":{{\"{name}\":{{\"command\":\"node\",{inside}}}}}}}")
    };
    let half = repeated("n", bytes / 2);
    let unknown = counted(bytes / 2, |n| format!("\"u{n}\":1,"));
    let deep = (0..40).fold(unknown.trim_end_matches(',').to_owned(), |inside, depth| {
        format!("\"{}{depth}\":{{{inside}}}", "k".repeat(60))
    });
    vec![
        (
            "near.json",
            server("a", &counted(bytes, |n| format!("\"comman{n}\":1,"))),
        ),
        (
            "unknown.json",
            server("a", &counted(bytes, |n| format!("\"u{n}\":1,"))),
        ),
        ("duplicates.json", server("a", &repeated("\"b\":1,", bytes))),
        ("long_name.json", server(&half, &unknown)),
        (
            "long_key.json",
            server("a", &format!("\"{half}\":{{{}}}", unknown.trim_end_matches(','))),
        ),
        ("deep_keys.json", server("a", &deep)),
    ]
}

/// One server with many pairs, names or rules in one field.
fn lists(bytes: usize) -> Vec<(&'static str, String)> {
    let server = |inside: &str| format!("{{\"mcpServers\":{{\"a\":{{\"command\":\"node\",{inside}}}}}}}");
    vec![
        (
            "env.json",
            server(&format!(
                "\"env\":{{{}\"A\":\"b\"}}",
                counted(bytes, |n| format!("\"A{n}\":\"b\","))
            )),
        ),
        (
            "secrets.json",
            server(&format!(
                "\"env\":{{{}\"A\":\"b\"}}",
                counted(bytes, |n| format!("\"API_KEY_{n}\":\"b{n}\","))
            )),
        ),
        (
            "tokens.json",
            server(&format!(
                "\"args\":[{}\"\"]",
                counted(bytes, |n| format!("\"--token=x{n}\","))
            )),
        ),
        (
            "options.json",
            server(&format!(
                "\"args\":[{}\"\"]",
                counted(bytes, |n| format!("\"--api-key\",\"{n}\","))
            )),
        ),
        (
            "bad_names.json",
            server(&format!(
                "\"env\":{{{}\"A\":\"b\"}}",
                counted(bytes, |n| format!("\"={n}\":\"b\","))
            )),
        ),
        (
            "inherit.yaml",
            format!(
                "mcp: {{servers: [{{name: a, command: node, inheritEnv: [{}]}}]}}",
                counted(bytes, |n| format!("V{n}, "))
            ),
        ),
        (
            "headers.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"url\":\"https://a.example\",\"headers\":{{{}\"A\":\"b\"}}}}}}}}",
                counted(bytes, |n| format!("\"H{n}\":\"b\","))
            ),
        ),
        (
            "rules.yaml",
            format!(
                "mcp: {{servers: [{{name: a, url: \"https://a.example\", egress: [{}]}}]}}",
                repeated("\"*\", ", bytes)
            ),
        ),
        (
            "tools.json",
            server(&format!(
                "\"disabledTools\":[{}\"\"]",
                counted(bytes, |n| format!("\"t{n}\","))
            )),
        ),
        (
            "wide_errors.json",
            server(&format!(
                "\"{}\":1,{}",
                "ä".repeat(bytes / 4),
                counted(bytes / 2, |n| format!("\"u{n}\":1,"))
            )),
        ),
    ]
}

/// One value with much in it.
fn values(bytes: usize) -> Vec<(&'static str, String)> {
    let arg =
        |text: &str| format!("{{\"mcpServers\":{{\"a\":{{\"command\":\"node\",\"args\":[\"{text}\"]}}}}}}");
    let opencode = |text: &str| {
        format!("{{\"mcp\":{{\"a\":{{\"type\":\"local\",\"command\":[\"node\",\"{text}\"]}}}}}}")
    };
    let query = counted(bytes, |n| format!("&key{n}=1"));
    let repeated = |unit: &str, bytes: usize| repeated(unit, bytes);
    let default = repeated("d", bytes / 2);
    let uses = counted(bytes / 2, |_| "\"${input:x}\",".to_owned());
    vec![
        ("references.json", arg(&repeated("${A}", bytes))),
        ("set_references.json", arg(&repeated("${HOME}", bytes))),
        ("file_references.json", arg(&repeated("${file:/f}", bytes))),
        ("unknown_references.json", arg(&repeated("${}", bytes))),
        ("open_references.json", arg(&repeated("${", bytes))),
        ("open_braces.json", opencode(&repeated("{env:", bytes))),
        (
            "closed_braces.json",
            opencode(&format!("{}}}", repeated("{env:", bytes))),
        ),
        (
            "dollars.yaml",
            format!(
                "extensions: {{a: {{type: stdio, cmd: node, args: [\"{}\"]}}}}",
                repeated("$A", bytes)
            ),
        ),
        (
            "inputs.json",
            format!(
                "{{\"inputs\":[{{\"id\":\"x\",\"default\":\"{default}\"}}],\"servers\":{{\"a\":{{\"command\":\"node\",\"args\":[{uses}\"\"]}}}}}}"
            ),
        ),
        (
            "query.json",
            format!("{{\"mcpServers\":{{\"a\":{{\"url\":\"https://a.example/?a=1{query}\"}}}}}}"),
        ),
        (
            "long_url.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"url\":\"https://a.example{}\"}}}}}}",
                repeated("/../a", bytes)
            ),
        ),
        (
            "long_host.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"url\":\"https://{}\"}}}}}}",
                repeated("ä.", bytes)
            ),
        ),
        (
            "puny_host.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"url\":\"https://xn--{}\"}}}}}}",
                repeated("a9", bytes)
            ),
        ),
        ("schemes.json", arg(&repeated("a://", bytes))),
        ("signs.json", arg(&repeated("key=", bytes))),
        ("words.json", arg(&repeated("0123456789abcdefghijklmn ", bytes))),
        ("users.json", arg(&repeated("a://b:c@", bytes))),
        (
            "path.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"command\":\"nowhere\",\"env\":{{\"PATH\":\"{}\"}}}}}}}}",
                repeated("/a:", bytes)
            ),
        ),
        (
            "capitals.json",
            format!(
                "{{\"mcpServers\":{{\"a\":{{\"url\":\"https://a.example\",\"headers\":{{\"{}\":\"b\"}}}}}}}}",
                repeated("aB", bytes)
            ),
        ),
        ("control.json", arg(&repeated("\\u0001", bytes))),
    ]
}

fn toml(bytes: usize) -> Vec<(&'static str, String)> {
    let repeated = |unit: &str| repeated(unit, bytes);
    let dotted = format!("{}b", "a.".repeat(60));
    vec![
        (
            "good.toml",
            counted(bytes, |n| {
                format!("[mcp_servers.s{n}]\ncommand = \"node\"\nargs = [\"{n}\"]\n")
            }),
        ),
        ("equals.toml", repeated("=\n")),
        ("brackets.toml", format!("a = {}", repeated("["))),
        ("braces.toml", format!("a = {}", repeated("{a="))),
        ("array.toml", format!("a = [{}1]", repeated("1,"))),
        ("lines.toml", format!("a = [{}1]", repeated("1,\n"))),
        ("comments.toml", repeated("# a\n")),
        ("duplicates.toml", repeated("a = 1\n")),
        ("duplicate_tables.toml", repeated("[a]\n")),
        ("tables_in_array.toml", repeated("[[a]]\n")),
        ("dotted.toml", counted(bytes, |n| format!("{dotted}.c{n} = 1\n"))),
        (
            "dotted_tables.toml",
            counted(bytes, |n| format!("[{dotted}.c{n}]\n")),
        ),
        ("long_dots.toml", format!("{}a = 1", repeated("a."))),
        ("quotes.toml", format!("a = \"\"\"{}", repeated("\"\"\n"))),
        ("open_text.toml", format!("a = \"{}", repeated("\\n"))),
        ("keys.toml", counted(bytes, |n| format!("k{n} = 1\n"))),
        ("bad_values.toml", counted(bytes, |n| format!("k{n} = x\n"))),
        (
            "nested_duplicates.toml",
            counted(bytes, |n| format!("[t{}]\na = 1\n", n / 2)),
        ),
        (
            "env.toml",
            format!(
                "[mcp_servers.a]\ncommand = \"node\"\nenv = {{ {}Z = \"\" }}\n",
                counted(bytes, |n| format!("A{n} = \"b\", "))
            ),
        ),
    ]
}
