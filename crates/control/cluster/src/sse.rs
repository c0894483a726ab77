//! Server-sent events, read from a stream of bytes in bounded memory.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its type; empty is "message".
    pub(crate) name: String,
    /// Its data, lines joined by line feeds.
    pub(crate) data: String,
    /// The last `id:` of the stream so far.
    pub(crate) id: String,
}

/// The input is not a valid stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    #[error("an event has more than {0} bytes")]
    TooLarge(usize),
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// A parser as specified in the WHATWG HTML standard (section 9.2.6, "Interpreting an event
/// stream").
///
/// Deviates: `retry` is ignored, because the client has its own backoff; a lone carriage return
/// does not end a line.
#[derive(Debug)]
pub(crate) struct Parser {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    bytes_max: usize,
    has_begun: bool,
}

impl Parser {
    /// A parser for events and lines of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Parser {
        Parser {
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            bytes_max,
            has_begun: false,
        }
    }

    /// Takes received bytes, and calls `each` with the events that they complete.
    ///
    /// # Errors
    /// [`SseError`]; the rest of the stream cannot be parsed.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Event),
    ) -> Result<(), SseError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(&bytes[..end])?;
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            let mut line = std::str::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
            if !std::mem::replace(&mut self.has_begun, true) {
                line = line.strip_prefix('\u{feff}').unwrap_or(line);
            }
            if let Some(event) = self.line(line) {
                each(event);
            }
        }
        self.take(bytes)
    }

    fn take(&mut self, part: &[u8]) -> Result<(), SseError> {
        let size = self.line.len() + part.len() + self.event.data.len();
        if size > self.bytes_max {
            return Err(SseError::TooLarge(self.bytes_max));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let id = self.event.id.clone();
            let event = std::mem::replace(&mut self.event, Event { id, ..Event::default() });
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_string(),
            "id" if !value.contains('\0') => self.event.id = value.to_string(),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // Comments have an empty name.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(chunks: &[&[u8]]) -> Result<Vec<Event>, SseError> {
        let mut parser = Parser::new(100);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.feed(chunk, |event| events.push(event))?;
        }
        Ok(events)
    }

    fn event(name: &str, data: &str, id: &str) -> Event {
        Event { name: name.into(), data: data.into(), id: id.into() }
    }

    #[test]
    fn events_are_read_and_comments_are_not() {
        let text =
            b"\xef\xbb\xbfevent: plan\nid: 3.1\ndata: {\r\ndata:}\n\n: keep\n\nevent: lone\n\n\
            data\n\nretry: 5\ndata: last\n\ndata: cut";
        let expected =
            [event("plan", "{\n}", "3.1"), event("", "", "3.1"), event("", "last", "3.1")];
        assert_eq!(parse(&[text]).unwrap(), expected);
    }

    #[test]
    fn an_event_over_the_size_limit_or_not_utf8_is_refused() {
        assert_eq!(parse(&[&[b'x'; 101]]), Err(SseError::TooLarge(100)));
        let lines: Vec<&[u8]> = vec![b"data: 0123456789\n"; 20];
        assert_eq!(parse(&lines), Err(SseError::TooLarge(100)));
        assert_eq!(parse(&[b"data: \xff\n\n"]), Err(SseError::NotUtf8));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_change_the_parsed_events(
            text in proptest::collection::vec(
                proptest::sample::select(vec![b'\n', b'\r', b':', b' ', b'd', b'a', b't', b'i']), 0..90),
            cut in 0usize..90,
        ) {
            let cut = cut.min(text.len());
            prop_assert_eq!(parse(&[&text]), parse(&[&text[..cut], &text[cut..]]));
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(parse(&[&text]), parse(&bytes));
        }
    }
}
