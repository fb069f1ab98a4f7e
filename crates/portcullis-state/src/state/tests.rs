#![expect(clippy::disallowed_methods, reason = "tests lay out and break files")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use portcullis_types::Hash;
use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data/portcullis");
    (above, folder)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// What a server with these tools (name and definition) comes to: the launch's state, then each tool's.
fn see(state: &State, launch: &str, tools: &[(&str, &str)], first: FirstSight) -> Vec<(PinState, bool)> {
    let server = "s".parse().unwrap();
    let tools: Vec<_> = tools
        .iter()
        .map(|(tool, definition)| SeenTool {
            tool,
            hash: Hash::of(definition.as_bytes()),
            definition,
        })
        .collect();
    let seen = Sighting {
        server: &server,
        launch: Hash::of(launch.as_bytes()),
        launch_text: launch,
        tools: &tools,
    };
    let sighted = state.see(&seen, first, 7).unwrap();
    std::iter::once(sighted.launch)
        .chain(sighted.tools)
        .map(|tool| (tool.state, tool.is_news))
        .collect()
}

#[test]
fn what_is_opened_belongs_to_its_owner_alone() {
    let (_above, folder) = folder();
    let state = State::open(&folder).unwrap();
    let path = state.path().unwrap().to_owned();
    assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
    see(&state, "l", &[("a", "1")], FirstSight::Trust);
    drop(state);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    State::open(&folder).unwrap();
    assert_eq!(mode(&path), 0o600, "what was too open is narrowed");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
    let error = State::open(&folder).unwrap_err();
    assert!(error.to_string().contains("chmod 700"), "{error}");
}

#[test]
fn no_link_is_followed() {
    let (_above, real) = folder();
    State::open(&real).unwrap();
    let other = real.with_file_name("other");
    symlink(&real, &other).unwrap();
    let error = State::open(&other).unwrap_err();
    assert!(matches!(error, StateError::Insecure { .. }), "{error}");

    let planted = real.with_file_name("planted");
    fs::create_dir(&planted).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o700)).unwrap();
    let name = planted.join(State::FILE_NAME);
    symlink(real.join(State::FILE_NAME), &name).unwrap();
    let error = State::open(&planted).unwrap_err();
    assert!(error.to_string().contains("the file is a link"), "{error}");
    fs::remove_file(&name).unwrap();
    fs::hard_link(real.join(State::FILE_NAME), &name).unwrap();
    let error = State::open(&planted).unwrap_err();
    assert!(error.to_string().contains("second name"), "{error}");
    fs::remove_file(&name).unwrap();
    // What is no file is told as such, and a pipe that nobody writes to holds nobody up.
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &name, pipe, rustix::fs::Mode::RWXU, 0).unwrap();
    let error = State::open(&planted).unwrap_err();
    assert!(error.to_string().contains("it is no file"), "{error}");
    fs::remove_file(&name).unwrap();
    // A folder above may well be a link: that is how homes are moved.
    let moved = real.parent().unwrap().with_file_name("moved");
    symlink(real.parent().unwrap(), &moved).unwrap();
    State::open(&moved.join("portcullis")).unwrap();
}

#[test]
fn a_full_disk_is_told_as_one() {
    let state = State::in_memory().unwrap();
    // As many pages as there are.
    let full = state.read(|connection| connection.execute_batch("PRAGMA max_page_count = 1"));
    full.unwrap();
    let fill = |transaction: &Transaction<'_>| transaction.execute_batch("CREATE TABLE filling (a)");
    let error = state.write(fill).unwrap_err();
    assert!(matches!(error, StateError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some space"), "{error}");
}

#[test]
fn what_is_first_seen_is_trusted_and_what_changes_waits() {
    use PinState::{Changed, Trusted};
    let (_above, folder) = folder();
    let state = State::open(&folder).unwrap();
    let look = |state: &State, text| see(state, "l", &[("a", text), ("b", "same")], FirstSight::Trust);
    assert_eq!(look(&state, "1"), [(Trusted, true); 3]);
    assert_eq!(look(&state, "1"), [(Trusted, false); 3]);
    assert_eq!(
        look(&state, "2"),
        [(Trusted, false), (Changed, true), (Trusted, false)]
    );
    // Another run, and another process.
    drop(state);
    let (state, other) = (State::open(&folder).unwrap(), State::open(&folder).unwrap());
    assert_eq!(
        look(&state, "2"),
        [(Trusted, false), (Changed, false), (Trusted, false)]
    );
    let pin = other.pin("mcp.s.a").unwrap().unwrap();
    let (trusted, by) = pin.trusted.unwrap();
    assert_eq!(
        (trusted.text.as_deref(), by.as_str(), pin.first_seen_ms),
        (Some("1"), "first sight", 7)
    );
    let waiting = pin.waiting.unwrap();
    assert_eq!(waiting.text.as_deref(), Some("2"));
    let before = Some(trusted.hash);
    assert_eq!(
        other.trust("mcp.s.a", waiting.hash, "ann", 8).unwrap(),
        Trusting::Done { before }
    );
    assert_eq!(
        other.trust("mcp.s.a", waiting.hash, "ann", 9).unwrap(),
        Trusting::Already
    );
    assert_eq!(look(&state, "2"), [(Trusted, false); 3]);
    assert_eq!(
        look(&state, "1")[1],
        (Changed, true),
        "what was trusted before is not any more"
    );
    assert_eq!(look(&state, "2"), [(Trusted, false); 3]);
    assert_eq!(
        state.pin("mcp.s.a").unwrap().unwrap().waiting,
        None,
        "it went back"
    );
}

#[test]
fn only_the_definition_that_was_approved_is_trusted() {
    let state = State::in_memory().unwrap();
    see(&state, "l", &[("a", "1")], FirstSight::Trust);
    see(&state, "l", &[("a", "2")], FirstSight::Trust);
    let shown = state.pin("mcp.s.a").unwrap().unwrap().waiting.unwrap().hash;
    see(&state, "l", &[("a", "3")], FirstSight::Trust);
    let waiting = Some(Hash::of(b"3"));
    assert_eq!(
        state.trust("mcp.s.a", shown, "ann", 1).unwrap(),
        Trusting::Other { waiting }
    );
    assert_eq!(
        state.trust("mcp.s.no", shown, "ann", 1).unwrap(),
        Trusting::Unknown
    );
    assert_eq!(
        see(&state, "l", &[("a", "3")], FirstSight::Trust)[1].0,
        PinState::Changed
    );
}

#[test]
fn where_first_sight_asks_nothing_is_trusted_unseen() {
    let state = State::in_memory().unwrap();
    let look = |first| see(&state, "l", &[("a", "1")], first)[1];
    assert_eq!(look(FirstSight::Ask), (PinState::New, true));
    assert_eq!(look(FirstSight::Ask), (PinState::New, false));
    assert_eq!(
        look(FirstSight::Trust),
        (PinState::New, false),
        "it was seen, and nobody trusted it"
    );
    state.trust("mcp.s.a", Hash::of(b"1"), "ann", 1).unwrap();
    assert_eq!(look(FirstSight::Ask), (PinState::Trusted, false));
    // What is started was written down by a person.
    assert_eq!(
        see(&state, "l", &[], FirstSight::Ask),
        [(PinState::Trusted, false)]
    );
}

#[test]
fn a_changed_command_waits_like_a_changed_tool() {
    let state = State::in_memory().unwrap();
    see(&state, "npx good", &[], FirstSight::Trust);
    assert_eq!(
        see(&state, "npx evil", &[], FirstSight::Trust),
        [(PinState::Changed, true)]
    );
    assert_eq!(
        state.pin("mcp.s").unwrap().unwrap().waiting.unwrap().hash,
        Hash::of(b"npx evil")
    );
    state.trust("mcp.s", Hash::of(b"npx evil"), "ann", 1).unwrap();
    assert_eq!(
        see(&state, "npx evil", &[], FirstSight::Trust),
        [(PinState::Trusted, false)]
    );
}

#[test]
fn what_a_server_says_cannot_fill_the_disk() {
    let state = State::in_memory().unwrap();
    let long = "x".repeat(200 * 1024);
    see(&state, "l", &[("long", &long)], FirstSight::Trust);
    assert_eq!(
        see(&state, "l", &[("long", "short")], FirstSight::Trust)[1].0,
        PinState::Changed
    );
    let pin = state.pin("mcp.s.long").unwrap().unwrap();
    assert_eq!(pin.trusted.unwrap().0.text, None, "the hash is enough to tell");
    // Nor with many texts that are each short enough: in one listing, and with what is added and changed later.
    let text = "x".repeat(100 * 1024);
    let names: Vec<_> = (0..400).map(|n| format!("big{n}")).collect();
    let tools: Vec<_> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
    let changed = format!("{text}y");
    let changed: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), changed.as_str()))
        .collect();
    for tools in [&tools[..200], &tools, &changed] {
        see(&state, "l", tools, FirstSight::Trust);
        let kept = state.pins().unwrap().into_iter().flat_map(|pin| {
            let texts = [pin.trusted.map(|(text, _)| text), pin.waiting];
            texts.into_iter().flatten().filter_map(|text| text.text)
        });
        let bytes: usize = kept.map(|text| text.len()).sum();
        assert!(bytes > 19 << 20 && bytes <= 32 << 20, "{bytes}");
    }
    state.forget("mcp.s").unwrap();
    see(&state, "l", &[("long", "short")], FirstSight::Trust);
    let server = "s".parse().unwrap();
    let names: Vec<_> = (0..9_000).map(|n| format!("t{n}")).collect();
    let tools: Vec<_> = names
        .iter()
        .map(|tool| SeenTool {
            tool,
            hash: Hash::of(b""),
            definition: "",
        })
        .collect();
    let launch = Hash::of(b"l");
    let seen = |tools| {
        let seen = Sighting {
            server: &server,
            launch,
            launch_text: "l",
            tools,
        };
        state.see(&seen, FirstSight::Trust, 1)
    };
    seen(&tools[..4_096]).unwrap();
    let error = seen(&tools).unwrap_err();
    assert!(matches!(error, StateError::TooManyTools { .. }), "{error}");
    assert_eq!(state.pins().unwrap().len(), 4_096 + 2, "nothing of it was kept");
    seen(&tools[..4_096]).unwrap();

    // Nor with names, which are kept whole.
    let long: Vec<_> = (0..8).map(|n| format!("{n}{}", "x".repeat(1 << 20))).collect();
    let long: Vec<_> = long.iter().map(|tool| SeenTool { tool, ..tools[0] }).collect();
    seen(&long[..3]).unwrap();
    for next in &long[3..] {
        let error = seen(std::slice::from_ref(next)).unwrap_err();
        assert!(error.to_string().contains("4194304 bytes"), "{error}");
    }
    assert_eq!(state.pins().unwrap().len(), 4_096 + 2 + 3);
    seen(&long[..3]).unwrap();
}

#[test]
fn what_is_forgotten_is_seen_first_again() {
    let state = State::in_memory().unwrap();
    let look = |text| see(&state, "l", &[("a", text), ("b", "1")], FirstSight::Trust);
    look("1");
    assert_eq!(look("2")[1].0, PinState::Changed);
    assert_eq!(state.forget("mcp.s.a").unwrap(), 1);
    assert_eq!(look("2")[1], (PinState::Trusted, true));
    assert_eq!(state.forget("mcp.s.no").unwrap(), 0);
    assert_eq!(state.forget("mcp.s").unwrap(), 3);
    assert_eq!(look("3"), [(PinState::Trusted, true); 3]);
}

#[test]
fn names_are_kept_byte_for_byte() {
    let state = State::in_memory().unwrap();
    let names = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "a\0b",
        "a\0c",
        "x.y",
        "'; DROP TABLE pins; --",
    ];
    let tools: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    see(&state, "l", &tools, FirstSight::Trust);
    assert!(
        see(&state, "l", &tools, FirstSight::Trust)
            .iter()
            .all(|seen| !seen.1)
    );
    assert_eq!(state.pins().unwrap().len(), names.len() + 1);
}

#[test]
fn what_is_damaged_or_foreign_is_told_and_left_as_it_is() {
    let (_above, folder) = folder();
    let path = State::open(&folder).unwrap().path().unwrap().to_owned();
    {
        let state = State::open(&folder).unwrap();
        let names: Vec<_> = (0..200).map(|n| format!("tool-{n}")).collect();
        let tools: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        see(&state, "l", &tools, FirstSight::Trust);
    }
    let good = fs::read(&path).unwrap();
    let mut torn = good.clone();
    torn[4096..8192].fill(0x5a);
    let text = b"this is no database at all, but some text that somebody saved here by mistake";
    let cases: [&[u8]; 4] = [text, &torn, &good[..good.len() / 2], &[0xff; 8192]];
    for (number, bytes) in cases.into_iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        let error = State::open(&folder).unwrap_err();
        assert!(matches!(error, StateError::Damaged { .. }), "{number}: {error}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{number}");
    }
    fs::write(&path, good).unwrap();
    assert_eq!(State::open(&folder).unwrap().pins().unwrap().len(), 201);
}

/// A row that cannot be read for what it is stands in the way of all: none may be trusted by it.
#[test]
fn a_hash_that_is_none_is_damage() {
    let state = State::in_memory().unwrap();
    see(&state, "l", &[("a", "1")], FirstSight::Trust);
    let spoil = "UPDATE pins SET trusted_hash = x'00' WHERE subject = 'mcp.s.a'";
    state.read(|connection| connection.execute(spoil, [])).unwrap();
    for error in [
        state.pin("mcp.s.a").map(drop).unwrap_err(),
        state.pins().map(drop).unwrap_err(),
        state
            .trust("mcp.s.a", Hash::of(b"1"), "ann", 1)
            .map(drop)
            .unwrap_err(),
    ] {
        assert!(matches!(error, StateError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_wait_for_another_process_ends() {
    let (_above, folder) = folder();
    let (one, other) = (State::open(&folder).unwrap(), State::open(&folder).unwrap());
    one.lock().execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = other.pins().unwrap_err();
    assert!(matches!(error, StateError::Busy { .. }), "{error}");
    assert!(matches!(
        other.trust("mcp.s.a", Hash::of(b""), "ann", 1),
        Err(StateError::Busy { .. })
    ));
    assert!(matches!(State::open(&folder), Err(StateError::Busy { .. })));
    one.lock().execute_batch("ROLLBACK").unwrap();
    other.pins().unwrap();
}

#[test]
fn several_that_see_a_tool_at_once_agree_on_what_was_first() {
    // The first to open it makes it, and the others may look at it in any moment of that.
    for _ in 0..20 {
        let (_above, folder) = folder();
        let folder = &folder;
        let trusted: usize = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|number| {
                    scope.spawn(move || {
                        let state = State::open(folder).unwrap();
                        let text = number.to_string();
                        see(&state, "l", &[("a", &text)], FirstSight::Trust)[1].0
                    })
                })
                .collect();
            let states = runs.into_iter().map(|run| run.join().unwrap());
            states.filter(|state| *state == PinState::Trusted).count()
        });
        assert_eq!(trusted, 1);
    }
}
