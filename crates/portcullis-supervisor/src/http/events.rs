/// One event of a stream, but for its data, which went by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: Option<String>,
    /// Whether it has data, be they empty.
    pub(crate) has_data: bool,
    pub(crate) id: Option<String>,
    /// In milliseconds.
    pub(crate) retry: Option<u64>,
}

/// What becomes of a stream's events.
pub(crate) trait EventSink {
    /// More of the data of the event at hand, as bytes: whether they are text is for the wire layer to say.
    ///
    /// # Errors
    /// [`EventTooLarge`], and the parser is dead.
    fn data(&mut self, data: &[u8]) -> Result<(), EventTooLarge>;

    /// The event is whole.
    fn event(&mut self, event: Event);
}

/// The parser of `text/event-stream` (HTML standard, section 9.2.6), fed chunks that end anywhere. Data are passed on
/// as they come.
///
/// Tolerant as the standard is: unknown fields, comments and lines without a colon are no errors.
#[derive(Debug)]
pub(crate) struct EventParser {
    /// What came of the line at hand.
    // INVARIANT: at most `most_bytes` long, and empty while the line is one of data.
    line: Vec<u8>,
    at: At,
    current: Event,
    most_bytes: usize,
    after_cr: bool,
    first_line: bool,
}

/// Where in its line the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a line that is none of data, as far as is known.
    Line,
    /// Behind the colon of a line of data, where a space is none of them.
    Colon,
    /// In data.
    Data,
}

/// An event or a line is larger than allowed. The parser is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLarge;

impl EventParser {
    /// A parser for lines that have at most `most_bytes`, those of data aside.
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            at: At::Line,
            current: Event::default(),
            most_bytes,
            after_cr: false,
            first_line: true,
        }
    }

    pub(crate) fn feed(&mut self, mut chunk: &[u8], sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = chunk.strip_prefix(b"\n")
            {
                chunk = rest;
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let (part, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
            self.part(part, sink)?;
            chunk = rest;
            if let Some((delimiter, rest)) = rest.split_first() {
                self.after_cr = *delimiter == b'\r';
                chunk = rest;
                self.end_line(sink)?;
            }
        }
        Ok(())
    }

    /// The stream is over. The standard drops an event without its blank line; a server that forgot it and has
    /// sent all of its data is heard all the same: whether they are whole shows when they are read.
    pub(crate) fn finish(&mut self, sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        if self.at != At::Line || !self.line.is_empty() {
            self.end_line(sink)?;
        }
        self.end_line(sink)
    }

    /// A part of a line.
    fn part(&mut self, part: &[u8], sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        if self.at != At::Line {
            return self.value(part, sink);
        }
        if self.line.len() + part.len() > self.most_bytes && !self.is_data(part) {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(part);
        let Some(value) = self.unmarked().strip_prefix(b"data:") else {
            return Ok(());
        };
        let value = value.to_vec();
        self.line.clear();
        self.begin_data(sink)?;
        self.at = At::Colon;
        self.value(&value, sink)
    }

    /// A part of the value of a line of data.
    fn value(&mut self, part: &[u8], sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        if part.is_empty() {
            return Ok(());
        }
        let value = match std::mem::replace(&mut self.at, At::Data) {
            At::Colon => part.strip_prefix(b" ").unwrap_or(part),
            At::Line | At::Data => part,
        };
        if value.is_empty() {
            Ok(())
        } else {
            sink.data(value)
        }
    }

    /// Whether the line at hand is one of data when `part` comes to it.
    fn is_data(&self, part: &[u8]) -> bool {
        let start: Vec<u8> = self.line.iter().chain(part).take(8).copied().collect();
        start.starts_with(b"data:") || (self.first_line && start.starts_with(b"\xef\xbb\xbfdata:"))
    }

    /// The line at hand without the mark that a stream may begin with.
    fn unmarked(&self) -> &[u8] {
        let mark: &[u8] = if self.first_line { b"\xef\xbb\xbf" } else { b"" };
        self.line.strip_prefix(mark).unwrap_or(&self.line)
    }

    /// Lines of data are parted by newlines.
    fn begin_data(&mut self, sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        match std::mem::replace(&mut self.current.has_data, true) {
            true => sink.data(b"\n"),
            false => Ok(()),
        }
    }

    fn end_line(&mut self, sink: &mut impl EventSink) -> Result<(), EventTooLarge> {
        let was = std::mem::replace(&mut self.at, At::Line);
        let line = self.unmarked().to_vec();
        self.first_line = false;
        self.line.clear();
        if was != At::Line {
            return Ok(());
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.current);
            if event != Event::default() {
                sink.event(event);
            }
            return Ok(());
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => self.begin_data(sink)?,
            b"event" => self.current.event = Some(text()),
            // It goes back as a header: one that cannot is none.
            b"id" if !value.iter().any(u8::is_ascii_control) => self.current.id = Some(text()),
            b"retry" => {
                if let Ok(retry) = text().trim().parse() {
                    self.current.retry = Some(retry);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps all events with their data, `most` bytes of which there may be in one.
    struct Kept {
        data: Vec<u8>,
        events: Vec<(Event, Vec<u8>)>,
        most: usize,
    }

    impl Kept {
        fn new(most: usize) -> Self {
            Self {
                data: Vec::new(),
                events: Vec::new(),
                most,
            }
        }
    }

    impl EventSink for Kept {
        fn data(&mut self, data: &[u8]) -> Result<(), EventTooLarge> {
            self.data.extend_from_slice(data);
            if self.data.len() > self.most {
                return Err(EventTooLarge);
            }
            Ok(())
        }

        fn event(&mut self, event: Event) {
            self.events.push((event, std::mem::take(&mut self.data)));
        }
    }

    fn event(data: &str) -> (Event, Vec<u8>) {
        let event = Event {
            has_data: true,
            ..Event::default()
        };
        (event, data.as_bytes().to_vec())
    }

    fn check(stream: &[u8], expected: &[(Event, Vec<u8>)]) {
        // However the stream is cut, the same events come of it.
        for size in [1, 2, 3, 7, stream.len().max(1)] {
            let (mut parser, mut kept) = (EventParser::new(1 << 16), Kept::new(1 << 16));
            for chunk in stream.chunks(size) {
                parser.feed(chunk, &mut kept).unwrap();
            }
            parser.finish(&mut kept).unwrap();
            assert_eq!(
                kept.events,
                expected,
                "{:?} by {size}",
                String::from_utf8_lossy(stream)
            );
        }
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        check(
            b"data: a\n\ndata:b\r\n\r\ndata:  c\r\rdata: d\n\n",
            &[event("a"), event("b"), event(" c"), event("d")],
        );
        check(b"data: one\ndata: two\ndata\n\n", &[event("one\ntwo\n")]);
        check(b"data:\ndata: \ndata:a\n\n", &[event("\n\na")]);
        check(b"\xef\xbb\xbfdata: a\n\n", &[event("a")]);
        check(
            b": a comment\nunknown: x\nno colon\ndata: a\n\n\n\n",
            &[event("a")],
        );
        check(
            b"event: message\nid: 7\nretry: 250\ndata: a\n\nid: 8\ndata:\n\n",
            &[
                (
                    Event {
                        event: Some("message".into()),
                        id: Some("7".into()),
                        retry: Some(250),
                        ..event("").0
                    },
                    b"a".to_vec(),
                ),
                (
                    Event {
                        id: Some("8".into()),
                        ..event("").0
                    },
                    Vec::new(),
                ),
            ],
        );
        for no_id in ["a\0b", "a\u{1}b", "a\u{7f}"] {
            let stream = format!("retry: soon\nid: {no_id}\n\ndata: a\n\n");
            check(stream.as_bytes(), &[event("a")]);
        }
        check(b"data: {\"a\":1}", &[event("{\"a\":1}")]);
        check(b"data: \xff\n\n", &[(event("").0, vec![0xff])]);
        check(b"database: x\ndata : y\n \xef\xbb\xbfdata: z\n\n", &[]);
        check(b"", &[]);
    }

    #[test]
    fn an_event_is_bounded_and_comments_do_not_count() {
        let (mut parser, mut kept) = (EventParser::new(100), Kept::new(200));
        for _ in 0..1_000 {
            parser.feed(b": keep alive\n", &mut kept).unwrap();
        }
        parser.feed(&[b'x'; 100], &mut kept).unwrap();
        assert_eq!(parser.feed(b"x", &mut kept), Err(EventTooLarge));
        // Data are for who takes them to bound, also where they make a line longer than others may be.
        let mut parser = EventParser::new(100);
        let long = [b"data: ".as_slice(), &[b'x'; 150]].concat();
        parser.feed(&long, &mut kept).unwrap();
        let lines: Result<Vec<()>, _> = (0..50)
            .map(|_| parser.feed(b"\ndata: 12345", &mut kept))
            .collect();
        assert_eq!(lines, Err(EventTooLarge));
    }
}
