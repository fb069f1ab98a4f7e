use std::collections::VecDeque;

/// One event of a stream, its data as bytes: whether they are text is for the wire layer to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) id: Option<String>,
    /// In milliseconds.
    pub(crate) retry: Option<u64>,
}

/// The parser of `text/event-stream` (HTML standard, section 9.2.6), fed chunks that end anywhere.
///
/// Tolerant as the standard is: unknown fields, comments and lines without a colon are no errors.
#[derive(Debug)]
pub(crate) struct EventParser {
    line: Vec<u8>,
    current: Event,
    /// Bytes of the event so far, comments aside.
    held_bytes: usize,
    most_bytes: usize,
    after_cr: bool,
    first_line: bool,
    done: VecDeque<Event>,
}

/// An event or a line is larger than allowed. The parser is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLarge;

impl EventParser {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            current: Event::default(),
            held_bytes: 0,
            most_bytes,
            after_cr: false,
            first_line: true,
            done: VecDeque::new(),
        }
    }

    pub(crate) fn feed(&mut self, mut chunk: &[u8]) -> Result<(), EventTooLarge> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = chunk.strip_prefix(b"\n")
            {
                chunk = rest;
                continue;
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
            if self.held_bytes + self.line.len() + part.len() > self.most_bytes {
                return Err(EventTooLarge);
            }
            self.line.extend_from_slice(part);
            chunk = rest;
            if let Some((delimiter, rest)) = rest.split_first() {
                self.after_cr = *delimiter == b'\r';
                chunk = rest;
                let line = std::mem::take(&mut self.line);
                self.end_line(&line);
            }
        }
        Ok(())
    }

    /// The stream is over. The standard drops an event without its blank line; a server that forgot it and has
    /// sent all of its data is heard all the same: whether they are whole shows when they are read.
    pub(crate) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line);
        }
        self.end_line(b"");
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.done.pop_front()
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = if std::mem::take(&mut self.first_line) {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.held_bytes = 0;
            let event = std::mem::take(&mut self.current);
            if event != Event::default() {
                self.done.push_back(event);
            }
            return;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => {
                self.held_bytes += value.len() + 1;
                match &mut self.current.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    None => self.current.data = Some(value.to_vec()),
                }
            }
            b"event" => self.current.event = Some(text()),
            b"id" if !value.contains(&0) => self.current.id = Some(text()),
            b"retry" => {
                if let Ok(retry) = text().trim().parse() {
                    self.current.retry = Some(retry);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &str) -> Event {
        Event {
            data: Some(data.as_bytes().to_vec()),
            ..Event::default()
        }
    }

    fn check(stream: &[u8], expected: &[Event]) {
        // However the stream is cut, the same events come of it.
        for size in [1, 2, 3, 7, stream.len().max(1)] {
            let mut parser = EventParser::new(1 << 16);
            for chunk in stream.chunks(size) {
                parser.feed(chunk).unwrap();
            }
            parser.finish();
            let events: Vec<_> = std::iter::from_fn(|| parser.next_event()).collect();
            assert_eq!(
                events,
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
        check(b"\xef\xbb\xbfdata: a\n\n", &[event("a")]);
        check(
            b": a comment\nunknown: x\nno colon\ndata: a\n\n\n\n",
            &[event("a")],
        );
        check(
            b"event: message\nid: 7\nretry: 250\ndata: a\n\nid: 8\ndata:\n\n",
            &[
                Event {
                    event: Some("message".into()),
                    id: Some("7".into()),
                    retry: Some(250),
                    ..event("a")
                },
                Event {
                    id: Some("8".into()),
                    ..event("")
                },
            ],
        );
        check(b"retry: soon\nid: a\0b\n\ndata: a\n\n", &[event("a")]);
        check(b"data: {\"a\":1}", &[event("{\"a\":1}")]);
        check(
            b"data: \xff\n\n",
            &[Event {
                data: Some(vec![0xff]),
                ..Event::default()
            }],
        );
        check(b"", &[]);
    }

    #[test]
    fn an_event_is_bounded_and_comments_do_not_count() {
        let mut parser = EventParser::new(100);
        for _ in 0..1_000 {
            parser.feed(b": keep alive\n").unwrap();
        }
        parser.feed(&[b'x'; 100]).unwrap();
        assert_eq!(parser.feed(b"x"), Err(EventTooLarge));
        let mut parser = EventParser::new(100);
        let lines: Result<Vec<()>, _> = (0..50).map(|_| parser.feed(b"data: 12345\n")).collect();
        assert_eq!(lines, Err(EventTooLarge));
    }
}
