//! What a keeper says of its server.

/// What a keeper tells the hub, in this order: `Started` or `Failed`, and after `Started` one `Ended`. A socket that
/// closes before that means that the keeper was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The program is being executed.
    Started {
        /// The server's process id.
        pid: u32,
    },
    /// It cannot be executed, and nothing runs.
    Failed {
        /// What failed.
        step: Step,
        /// The number of the operating system's error.
        errno: i32,
    },
    /// The server has exited, and its descendants with it.
    Ended {
        /// The status as `waitpid(2)` gives it, for `ExitStatus::from_raw`.
        status: i32,
        /// Some of them cannot be killed; the keeper goes on trying.
        left: bool,
    },
}

/// What a keeper does before its server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Understanding the order.
    Order,
    /// Entering the working directory.
    WorkingDirectory,
    /// Executing the program.
    Program,
}

impl Report {
    /// How many bytes each report has.
    pub const BYTES: usize = 6;

    /// Reads one report; none where the bytes are not one.
    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [kind, detail, value @ ..] = bytes;
        let value = i32::from_le_bytes(value);
        Some(match (kind, detail) {
            (b'S', 0) => Self::Started {
                pid: u32::try_from(value).ok()?,
            },
            (b'F', 0) => Self::Failed {
                step: Step::Order,
                errno: value,
            },
            (b'F', 1) => Self::Failed {
                step: Step::WorkingDirectory,
                errno: value,
            },
            (b'F', 2) => Self::Failed {
                step: Step::Program,
                errno: value,
            },
            (b'E', left @ 0..=1) => Self::Ended {
                status: value,
                left: left == 1,
            },
            _ => return None,
        })
    }

    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let (kind, detail, value) = match self {
            Self::Started { pid } => (b'S', 0, i32::try_from(pid).unwrap_or_default()),
            Self::Failed {
                step: Step::Order,
                errno,
            } => (b'F', 0, errno),
            Self::Failed {
                step: Step::WorkingDirectory,
                errno,
            } => (b'F', 1, errno),
            Self::Failed {
                step: Step::Program,
                errno,
            } => (b'F', 2, errno),
            Self::Ended { status, left } => (b'E', u8::from(left), status),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [kind, detail, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_way() {
        for report in [
            Report::Started { pid: 4_194_304 },
            Report::Failed {
                step: Step::Order,
                errno: 22,
            },
            Report::Failed {
                step: Step::WorkingDirectory,
                errno: 2,
            },
            Report::Failed {
                step: Step::Program,
                errno: 13,
            },
            Report::Ended {
                status: 0x8b,
                left: false,
            },
            Report::Ended {
                status: 9,
                left: true,
            },
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        for bytes in [
            *b"X\0\0\0\0\0",
            *b"S\x01\0\0\0\0",
            *b"S\0\xff\xff\xff\xff",
            *b"E\x02\0\0\0\0",
        ] {
            assert_eq!(Report::decode(bytes), None);
        }
    }
}
