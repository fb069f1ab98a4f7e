//! Secrets of the system's keyring: the Secret Service, the Keychain, or the Credential Manager.

use std::{sync::mpsc, thread, time::Duration};

use keyring::{Entry, Error};
use portcullis::config::SecretString;

/// How long one entry may take. A keyring that is locked asks a person for its password, in a window of its own.
const DEADLINE: Duration = Duration::from_secs(60);

/// An entry's secret; `None`, and a line in the log, where it cannot be had.
pub(super) fn secret(service: &str, account: &str) -> Option<SecretString> {
    let (service, account) = (service.to_owned(), account.to_owned());
    let open = move || Entry::new(&service, &account);
    match read(open, DEADLINE) {
        Ok(secret) => Some(secret),
        Err(why) => {
            tracing::warn!("the keyring gives no secret: {why}");
            None
        }
    }
}

/// Reads an entry on a thread of its own: the keyring's client may run an executor, and may wait for ever.
fn read(
    open: impl FnOnce() -> Result<Entry, Error> + Send + 'static,
    deadline: Duration,
) -> Result<SecretString, String> {
    let (done, read) = mpsc::channel();
    thread::Builder::new()
        .name("keyring".to_owned())
        .spawn(move || {
            let secret = open().and_then(|entry| entry.get_password());
            // Whoever asked may have gone on without an answer.
            let _ = done.send(secret.map(SecretString::from).map_err(|error| why(&error)));
        })
        .map_err(|error| format!("no thread can be started: {error}"))?;
    match read.recv_timeout(deadline) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("no answer in {} s", deadline.as_secs_f64())),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("its client failed".to_owned()),
    }
}

/// Some errors carry what stands in the entry: they are told in words of our own.
fn why(error: &Error) -> String {
    match error {
        Error::NoEntry => "there is no such entry".to_owned(),
        Error::NoDefaultStore => match Entry::store_status() {
            Err(cause) => format!("there is no keyring here: {cause}"),
            Ok(()) => "there is no keyring here".to_owned(),
        },
        Error::BadEncoding(_) => "the entry is not UTF-8".to_owned(),
        Error::Ambiguous(_) => "several entries have this name".to_owned(),
        Error::NoStorageAccess(cause) => format!("it cannot be read, and may be locked: {cause}"),
        Error::PlatformFailure(cause) => format!("the system's keyring failed: {cause}"),
        _ => "the entry cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use keyring_core::{
        api::CredentialStoreApi,
        mock::{Cred, Store},
    };
    use secrecy::ExposeSecret;

    use super::*;

    fn entry(password: Option<&str>, error: Option<Error>) -> Entry {
        let store = Store::new().unwrap();
        let inner = store.build("service", "ada", None).unwrap();
        let entry = Entry { inner };
        if let Some(password) = password {
            entry.set_password(password).unwrap();
        }
        if let Some(error) = error {
            let mock: &Cred = entry.inner.as_any().downcast_ref().unwrap();
            mock.set_error(error);
        }
        entry
    }

    #[test]
    fn an_entry_is_read_as_a_secret() {
        let entry = entry(Some("canary"), None);
        let secret = read(move || Ok(entry), DEADLINE).unwrap();
        assert_eq!(secret.expose_secret(), "canary");
        assert!(!format!("{secret:?}").contains("canary"));
    }

    #[test]
    fn whatever_goes_wrong_is_told_without_what_stands_in_the_entry() {
        let canary = || b"canary".to_vec();
        for (error, told) in [
            (None, "no such entry"),
            (Some(Error::BadEncoding(canary())), "not UTF-8"),
            (
                Some(Error::BadDataFormat(canary(), "canary".into())),
                "cannot be read",
            ),
            (Some(Error::NoStorageAccess("locked".into())), "locked"),
            (Some(Error::PlatformFailure("bus".into())), "bus"),
            (Some(Error::Ambiguous(Vec::new())), "several entries"),
            (
                Some(Error::Invalid("user".into(), "canary".into())),
                "cannot be read",
            ),
        ] {
            let entry = entry(None, error);
            let why = read(move || Ok(entry), DEADLINE).unwrap_err();
            assert!(why.contains(told) && !why.contains("canary"), "{told}: {why}");
        }
        let why = read(|| Err(Error::NoEntry), DEADLINE).unwrap_err();
        assert!(why.contains("no such entry"), "{why}");
    }

    #[test]
    fn a_keyring_that_never_answers_or_falls_over_holds_nobody_up() {
        let (_open, closed) = mpsc::channel::<()>();
        let waits = move || {
            let _ = closed.recv();
            Err(Error::NoEntry)
        };
        let why = read(waits, Duration::from_millis(1)).unwrap_err();
        assert!(why.contains("no answer"), "{why}");
        let why = read(|| panic!("as a test wants it"), DEADLINE).unwrap_err();
        assert!(why.contains("failed"), "{why}");
    }
}
