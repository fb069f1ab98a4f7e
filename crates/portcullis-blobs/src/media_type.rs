//! What kind of content some bytes are, told from their first bytes.

/// A kind of content that was recognised by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaType {
    /// The media type as registered, such as `image/png`.
    pub name: &'static str,
    /// The usual ending of a file's name, without the dot.
    pub extension: &'static str,
    /// Whether it is text by nature (HTML, XML, a script), which may stand in a context as it is.
    pub is_text: bool,
}

/// The media type of `content` by its first bytes, or `None` where they are not those of a known kind.
///
/// ```
/// let png = portcullis_blobs::sniff(b"\x89PNG\r\n\x1a\n").unwrap();
/// assert_eq!((png.name, png.extension), ("image/png", "png"));
/// assert_eq!(portcullis_blobs::sniff(b"plain words"), None);
/// ```
#[must_use]
pub fn sniff(content: &[u8]) -> Option<MediaType> {
    let kind = infer::get(content)?;
    let (name, extension) = registered(kind.mime_type(), kind.extension());
    Some(MediaType {
        name,
        extension,
        is_text: kind.matcher_type() == infer::MatcherType::Text,
    })
}

/// Old or private names that stand for a registered one, and one that says more than first bytes can tell.
fn registered(name: &'static str, extension: &'static str) -> (&'static str, &'static str) {
    let name = match name {
        "audio/x-wav" => "audio/wav",
        "audio/x-flac" => "audio/flac",
        "audio/m4a" => "audio/mp4",
        "audio/x-aiff" => "audio/aiff",
        "application/font-woff" => "font/woff",
        "application/font-sfnt" => "font/sfnt",
        // Word, Excel, PowerPoint, Outlook and installers share the container, and what is in it stands further in.
        "application/msword" => return ("application/x-ole-storage", "ole"),
        other => other,
    };
    (name, extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_kind() {
        let check = |content: &[u8], name: Option<&str>| {
            assert_eq!(sniff(content).map(|kind| kind.name), name, "{content:?}");
        };
        check(b"\x89PNG\r\n\x1a\n0000", Some("image/png"));
        check(b"RIFF\x24\0\0\0WAVEfmt ", Some("audio/wav"));
        check(b"%PDF-1.7", Some("application/pdf"));
        let ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0\0\0";
        check(ole, Some("application/x-ole-storage"));
        assert_eq!(sniff(ole).unwrap().extension, "ole");
        check(b"", None);
        check(b"{\"a\": 1}", None);
        assert!(sniff(b"<!DOCTYPE html><html></html>").unwrap().is_text);
        assert!(!sniff(b"PK\x03\x04 and so on").unwrap().is_text);
    }
}
