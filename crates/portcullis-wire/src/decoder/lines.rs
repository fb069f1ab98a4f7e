/// More spare room than this is given back once it is no longer needed.
const KEEP_BYTES: usize = 256 << 10;

/// Cuts a stream into lines, looking at each byte once.
#[derive(Debug)]
pub(super) struct LineBuffer {
    max_line_bytes: usize,
    bytes: Vec<u8>,
    /// Where the unread part starts.
    start: usize,
    /// Up to where there is no newline after `start`.
    // INVARIANT: start <= searched <= bytes.len(), and no newline stands in bytes[start..searched].
    searched: usize,
    /// Whether too much left the line that is not finished. It never ends then.
    took_too_much: bool,
    /// How many of the last bytes may leave the line that is not finished, and so do not count yet.
    open_bytes: usize,
    #[cfg(test)]
    work: Work,
}

/// How many bytes were looked at for a newline, and how many were moved: what makes the time linear.
#[cfg(test)]
#[derive(Debug, Default)]
struct Work {
    searched: usize,
    moved: usize,
}

/// What the buffer has to give.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// A line without its newline, within the limit.
    Line(&'a [u8]),
    /// The line at hand is over the limit, whether it ended or not.
    Overlong,
    /// Too much has left the line at hand.
    TookTooMuch,
    /// No whole line.
    Nothing,
}

impl LineBuffer {
    pub(super) fn new(max_line_bytes: usize) -> Self {
        Self {
            max_line_bytes,
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            took_too_much: false,
            open_bytes: 0,
            #[cfg(test)]
            work: Work::default(),
        }
    }

    /// Too much has left the line that is not finished, and nothing more of it comes.
    pub(super) fn take_too_much(&mut self) {
        self.took_too_much = true;
    }

    /// So many of the last bytes may leave the line that is not finished.
    pub(super) fn leave_open(&mut self, count: usize) {
        self.open_bytes = count;
    }

    /// Takes the last `count` bytes away, which are of the line that is not finished.
    pub(super) fn cut(&mut self, count: usize) -> Vec<u8> {
        let at = self.bytes.len().saturating_sub(count).max(self.start);
        self.searched = self.searched.min(at);
        self.bytes.split_off(at)
    }

    /// Appends a chunk, after making room for it.
    pub(super) fn extend(&mut self, chunk: &[u8]) {
        self.compact();
        let needed = self.bytes.len().saturating_add(chunk.len());
        if needed > self.bytes.capacity() {
            // Doubling keeps the copying linear. The cap keeps one unfinished line from taking twice the limit; a
            // caller that leaves lines lying is past it.
            let unfinished = self.max_line_bytes.saturating_add(self.open_bytes);
            let most = unfinished.saturating_add(chunk.len());
            let cap = if needed <= most { most } else { usize::MAX };
            let wanted = self.bytes.capacity().saturating_mul(2).min(cap).max(needed);
            #[cfg(test)]
            {
                self.work.moved += self.bytes.len();
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
    }

    /// The next line. `ended`: the stream is over, and what is left is a line.
    pub(super) fn next(&mut self, ended: bool) -> Next<'_> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let newline = memchr::memchr(b'\n', unsearched);
        #[cfg(test)]
        {
            self.work.searched += newline.map_or(unsearched.len(), |at| at + 1);
        }
        let (end, after) = match newline {
            Some(at) => (self.searched + at, self.searched + at + 1),
            None => (self.bytes.len(), self.bytes.len()),
        };
        let start = self.start;
        let open_bytes = if newline.is_none() { self.open_bytes } else { 0 };
        if (end - start).saturating_sub(open_bytes) > self.max_line_bytes {
            return Next::Overlong;
        }
        self.searched = after;
        if newline.is_none() && self.took_too_much {
            return Next::TookTooMuch;
        }
        if newline.is_none() && !(ended && start < end) {
            return Next::Nothing;
        }
        self.start = after;
        Next::Line(self.bytes.get(start..end).unwrap_or_default())
    }

    /// Forgets all bytes and gives their memory back.
    pub(super) fn release(&mut self) {
        self.bytes = Vec::new();
        self.start = 0;
        self.searched = 0;
        self.took_too_much = false;
        self.open_bytes = 0;
    }

    /// Drops what was read, where that is at least half, so that each byte is moved once on average.
    fn compact(&mut self) {
        let left = self.bytes.len() - self.start;
        if self.start == 0 || self.start < left {
            return;
        }
        #[cfg(test)]
        {
            self.work.moved += left;
        }
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.bytes.capacity() > KEEP_BYTES.max(left.saturating_mul(4)) {
            self.bytes.shrink_to(KEEP_BYTES.max(left));
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(buffer: &mut LineBuffer, stream: &[u8], chunk: usize) -> usize {
        let mut lines = 0;
        for chunk in stream.chunks(chunk) {
            buffer.extend(chunk);
            while let Next::Line(_) = buffer.next(false) {
                lines += 1;
            }
        }
        lines
    }

    #[test]
    fn a_long_line_in_small_chunks_costs_linear_work() {
        let mut stream = vec![b'x'; 16 << 20];
        stream.push(b'\n');
        let mut buffer = LineBuffer::new(64 << 20);
        assert_eq!(feed(&mut buffer, &stream, 4096), 1);
        assert_eq!(buffer.work.searched, stream.len());
        assert!(buffer.work.moved <= 2 * stream.len(), "{:?}", buffer.work);
    }

    #[test]
    fn many_short_lines_in_chunks_of_any_size_cost_linear_work() {
        let stream = b"0123456789\n".repeat(20_000);
        for chunk in [1, 7, 4096, stream.len()] {
            let mut buffer = LineBuffer::new(1024);
            assert_eq!(feed(&mut buffer, &stream, chunk), 20_000);
            assert_eq!(buffer.work.searched, stream.len());
            assert!(
                buffer.work.moved <= 2 * stream.len(),
                "chunks of {chunk}: {:?}",
                buffer.work
            );
        }
    }

    #[test]
    fn lines_that_are_taken_late_cost_linear_work() {
        let mut buffer = LineBuffer::new(1024);
        let mut fed = 0;
        for _ in 0..5_000 {
            let chunk = b"0123456789\n".repeat(4);
            fed += chunk.len();
            buffer.extend(&chunk);
            assert!(matches!(buffer.next(false), Next::Line(b"0123456789")));
        }
        assert!(buffer.work.moved <= 2 * fed, "{:?}", buffer.work);
    }

    #[test]
    fn the_room_of_a_long_line_is_given_back() {
        let mut buffer = LineBuffer::new(64 << 20);
        let mut stream = vec![b'x'; 8 << 20];
        stream.push(b'\n');
        feed(&mut buffer, &stream, 65_536);
        assert!(buffer.capacity() > 8 << 20);
        buffer.extend(b"short\n");
        assert!(buffer.capacity() <= KEEP_BYTES, "{}", buffer.capacity());
    }
}
