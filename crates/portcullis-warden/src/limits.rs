/// What a server's process may use at most; none is set by default. Each process that the server starts has the same
/// limits (`setrlimit(2)`), counted for itself, except `processes`. A limit above the one that the hub itself has is
/// lowered to that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Address space, in bytes (`RLIMIT_AS`).
    pub memory_bytes: Option<u64>,
    /// Open descriptors (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Processes and threads of the *user*, those of other programs counted (`RLIMIT_NPROC`); root is exempt.
    pub processes: Option<u64>,
    /// Processor time, in seconds (`RLIMIT_CPU`).
    pub cpu_seconds: Option<u64>,
    /// The size of any file that it writes, in bytes (`RLIMIT_FSIZE`).
    pub file_bytes: Option<u64>,
    /// The size of a core dump, in bytes (`RLIMIT_CORE`); 0 keeps secrets in memory off the disk.
    pub core_bytes: Option<u64>,
}

impl Limits {
    /// All fields, in the order of the wire.
    pub(crate) fn fields(&self) -> [Option<u64>; 6] {
        [
            self.memory_bytes,
            self.open_files,
            self.processes,
            self.cpu_seconds,
            self.file_bytes,
            self.core_bytes,
        ]
    }

    pub(crate) fn from_fields(fields: [Option<u64>; 6]) -> Self {
        let [
            memory_bytes,
            open_files,
            processes,
            cpu_seconds,
            file_bytes,
            core_bytes,
        ] = fields;
        Self {
            memory_bytes,
            open_files,
            processes,
            cpu_seconds,
            file_bytes,
            core_bytes,
        }
    }
}
