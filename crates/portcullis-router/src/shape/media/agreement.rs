//! Which declared types the first bytes of some content leave open.

/// Names for one kind of content, or kinds that first bytes cannot tell apart.
const FAMILIES: &[&[&str]] = &[
    &["image/jpeg", "image/jpg", "image/pjpeg"],
    &["image/vnd.microsoft.icon", "image/x-icon"],
    &["image/bmp", "image/x-ms-bmp"],
    &["image/heif", "image/heic"],
    &["audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"],
    &["audio/mpeg", "audio/mp3"],
    &["audio/flac", "audio/x-flac"],
    &["audio/aac", "audio/aacp", "audio/x-aac"],
    &["audio/aiff", "audio/x-aiff"],
    &["audio/midi", "audio/mid", "audio/x-midi"],
    &[
        "audio/ogg",
        "audio/opus",
        "audio/vorbis",
        "video/ogg",
        "application/ogg",
    ],
    &[
        "video/mp4",
        "audio/mp4",
        "audio/x-m4a",
        "video/x-m4v",
        "video/quicktime",
        "application/mp4",
    ],
    &["video/webm", "audio/webm", "video/x-matroska", "audio/x-matroska"],
    &["video/x-msvideo", "video/avi", "video/msvideo"],
    &["application/gzip", "application/x-gzip"],
    &[
        "application/vnd.rar",
        "application/x-rar-compressed",
        "application/x-rar",
    ],
    &["application/rtf", "text/rtf"],
    &["application/vnd.sqlite3", "application/x-sqlite3"],
    &["font/woff", "font/woff2", "application/font-woff"],
    &[
        "font/sfnt",
        "font/ttf",
        "font/otf",
        "font/collection",
        "application/font-sfnt",
    ],
    &["text/html", "application/xhtml+xml"],
];

/// What begins in a way of its own, though its name is like those of what is in a form for others.
const OWN_BEGINNINGS: &[&str] = &[
    "application/vnd.android.dex",
    "application/vnd.android.dey",
    "application/vnd.bzip3",
    "application/vnd.debian.binary-package",
    "application/vnd.microsoft.portable-executable",
    "application/vnd.ms-cab-compressed",
    "application/vnd.ms-fontobject",
    "application/vnd.rar",
    "application/vnd.sqlite3",
    "text/html",
    "text/rtf",
    "text/xml",
];

/// What else than `application/vnd.ms-…` is in the container that an office wrote once.
const IN_OLE: &[&str] = &[
    "application/msword",
    "application/vnd.visio",
    "application/x-cfb",
    "application/x-hwp",
    "application/x-ms-installer",
    "application/x-msi",
    "application/x-mspublisher",
    "image/vnd.fpx",
];

/// Languages whose programs may begin with the line that names their interpreter, as `application/` has them, with `x-`
/// or without.
const SCRIPTS: &[&str] = &[
    "awk",
    "bash",
    "csh",
    "ecmascript",
    "fish",
    "groovy",
    "httpd-php",
    "javascript",
    "ksh",
    "lua",
    "node",
    "perl",
    "php",
    "powershell",
    "python",
    "ruby",
    "sh",
    "shellscript",
    "tcl",
    "typescript",
    "zsh",
];

/// Whether content with the first bytes of `sniffed` may well be `declared`.
pub(super) fn agree(sniffed: &str, declared: &str) -> bool {
    let same_family = || {
        FAMILIES
            .iter()
            .any(|family| family.contains(&sniffed) && family.contains(&declared))
    };
    sniffed == declared
        || same_family()
        || (!OWN_BEGINNINGS.contains(&declared) && may_be_in(sniffed, declared))
}

/// Whether `sniffed` is a form for others, of which `declared` may be one: what is inside decides, and the server knows.
fn may_be_in(sniffed: &str, declared: &str) -> bool {
    match sniffed {
        "application/zip" => {
            declared.starts_with("application/vnd.")
                || declared.ends_with("+zip")
                || matches!(
                    declared,
                    "application/java-archive" | "application/x-zip-compressed"
                )
        }
        "application/x-ole-storage" => {
            declared.starts_with("application/vnd.ms-") || IN_OLE.contains(&declared)
        }
        "text/xml" => declared.ends_with("xml"),
        "text/x-shellscript" => declared.starts_with("text/") || is_script(declared),
        _ => false,
    }
}

/// Whether `declared` is source text, such as `application/x-python3`.
fn is_script(declared: &str) -> bool {
    let Some(name) = declared.strip_prefix("application/") else {
        return false;
    };
    let name = name.strip_prefix("x-").unwrap_or(name);
    let name = name.strip_suffix("-source").unwrap_or(name);
    let name = name.strip_suffix("-script").unwrap_or(name);
    SCRIPTS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}
