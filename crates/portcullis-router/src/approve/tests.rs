use super::*;

/// What is there takes over, now or when the folder is looked at, so it is told whatever failed.
#[test]
fn a_policy_is_told_where_it_is_there() {
    let path = Path::new("policies/always-a.cedar");
    let (owned, source) = (|| path.to_owned(), || std::io::ErrorKind::Other.into());
    let unsynced = StateError::Unsynced {
        path: owned(),
        source: source(),
    };
    let unwritten = StateError::Write {
        path: owned(),
        source: source(),
    };
    let tried = |written| Some(Written::Tried(written));
    let void = Some(Written::Void("it is sealed".to_owned()));
    for (written, is_there, says) in [
        (tried(Ok(())), true, None),
        (tried(Err(unsynced)), true, Some("a power cut may undo that")),
        (tried(Err(unwritten)), false, Some("cannot write")),
        (void, false, Some("nothing was written: it is sealed")),
        (None, false, Some("may still be")),
    ] {
        let mut told = Told::default();
        assert_eq!(told.of_policy(path, written), is_there, "{says:?}");
        assert_eq!(told.policy.is_some(), is_there, "{says:?}");
        let error = told.error.unwrap_or_default();
        assert_eq!(error.is_empty(), says.is_none(), "{error}");
        assert!(error.contains(says.unwrap_or_default()), "{error}");
    }
}
