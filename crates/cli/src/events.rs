//! Server-sent events, as the server frames them: one `event:` line, one `data:` line, a blank line; comments between.

use bytes::BytesMut;
use futures_util::StreamExt;
use reqwest::Response;

use crate::{client::Client, failure::Failure};

/// The longest frame that is taken: the longest the server sends is far below.
const MAX_FRAME: usize = 32 << 20;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// Its name; empty when it has none.
    pub(crate) name: String,
    /// Its data.
    pub(crate) data: String,
}

/// Reads events off a response's body.
pub(crate) struct Events<'a> {
    client: &'a Client,
    body: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    frames: Frames,
}

impl<'a> Events<'a> {
    pub(crate) fn of(client: &'a Client, response: Response) -> Self {
        Self {
            client,
            body: Box::pin(response.bytes_stream()),
            frames: Frames::default(),
        }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<ServerEvent>, Failure> {
        loop {
            if let Some(event) = self.frames.next() {
                return Ok(Some(event));
            }
            match self.body.next().await {
                Some(Ok(chunk)) => self.frames.push(&chunk)?,
                Some(Err(error)) => return Err(self.client.broken(&error)),
                None => return Ok(None),
            }
        }
    }
}

/// Cuts bytes into frames.
#[derive(Debug, Default)]
struct Frames {
    bytes: BytesMut,
}

impl Frames {
    fn push(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        if self.bytes.len() + chunk.len() > MAX_FRAME {
            return Err(Failure::local("the server sent an event without end"));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn next(&mut self) -> Option<ServerEvent> {
        loop {
            let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
            let frame = self.bytes.split_to(end + 2);
            if let Some(event) = parse(&String::from_utf8_lossy(&frame)) {
                return Some(event);
            }
        }
    }
}

/// `None` for a frame of comments only.
fn parse(frame: &str) -> Option<ServerEvent> {
    let mut name = String::new();
    let mut data = Vec::new();
    for (field, value) in frame.lines().filter_map(|line| line.split_once(':')) {
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty() || !name.is_empty()).then(|| ServerEvent {
        name,
        data: data.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_bytes_are_cut() {
        let stream = b": ping\n\nevent: stdout\ndata: {\"chunk\":\"a\"}\n\nevent: exit\ndata: {\"exit_code\":0}\n\n";
        for cut in 0..stream.len() {
            let mut frames = Frames::default();
            let mut names = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                frames.push(part).unwrap();
                while let Some(event) = frames.next() {
                    names.push(event.name);
                }
            }
            assert_eq!(names, ["stdout", "exit"], "cut at {cut}");
        }
    }

    #[test]
    fn data_of_several_lines_is_joined() {
        let event = parse("data: a\ndata:b\n").unwrap();
        assert_eq!((event.name.as_str(), event.data.as_str()), ("", "a\nb"));
    }
}
