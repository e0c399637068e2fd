//! A command in a sandbox, over the server's command socket: bytes as they are, both ways.
//!
//! The first message says what to run. Then binary messages carry standard input to the server, and output back with one
//! byte ahead that says which stream it is. Text messages are JSON: `stdin_end`, `resize` there, `exit` or `error` back.

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream::SplitSink};
use reqwest::{Method, StatusCode, Upgraded, header};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::Role,
    },
};

use crate::{
    client::{Client, escape},
    failure::Failure,
    terminal::{self, Size},
    transport::Transport,
};

/// Marks standard output in a binary message.
const STDOUT: u8 = 1;
/// Marks standard error.
const STDERR: u8 = 2;
/// Bytes of standard input in one message.
const INPUT_CHUNK: usize = 32 * 1024;

/// What to run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RemoteCommand {
    pub(crate) argv: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminal: Option<Size>,
}

/// Where a command's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// It has none.
    None,
    /// This process's standard input, to its end.
    Stdin,
}

/// A piece of what a command does.
#[derive(Debug)]
pub(crate) enum Output {
    /// It runs under this id.
    Start(String),
    Stdout(Bytes),
    Stderr(Bytes),
    /// Its end. Nothing follows.
    Exit(Exit),
}

/// How a command ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) exit_code: i32,
    pub(crate) duration_ms: u64,
}

impl Exit {
    /// The exit code for our own process: what a shell would show.
    pub(crate) fn code(&self) -> u8 {
        u8::try_from(self.exit_code & 0xff).unwrap_or(u8::MAX)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerText {
    Start { exec_id: String },
    Exit(Exit),
    Error { error: String, code: String },
}

type Socket = WebSocketStream<Transport<Upgraded>>;

/// A command that runs. Dropping it ends the command.
pub(crate) struct Running<'a> {
    client: &'a Client,
    sink: SplitSink<Socket, Message>,
    stream: futures_util::stream::SplitStream<Socket>,
    input: Input,
    terminal: bool,
}

impl RemoteCommand {
    /// Starts the command.
    pub(crate) async fn start<'a>(
        &self,
        client: &'a Client,
        sandbox: &str,
        input: Input,
    ) -> Result<Running<'a>, Failure> {
        let path = format!("/v1/sandboxes/{}/exec/socket", escape(sandbox));
        let (mut sink, stream) = open(client, &path).await?.split();
        let first = serde_json::to_string(self).map_err(|error| Failure::local(error.to_string()))?;
        sink.send(Message::text(first))
            .await
            .map_err(|error| lost(client, &error))?;
        Ok(Running {
            client,
            sink,
            stream,
            input,
            terminal: self.terminal.is_some(),
        })
    }
}

/// Opens a WebSocket with the same client, and so the same key, proxy and TLS, as every other request.
async fn open(client: &Client, path: &str) -> Result<Socket, Failure> {
    let key = generate_key();
    let request = client
        .request(Method::GET, path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, &key);
    let response = client.send(request).await?;
    let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
    let genuine = accepted.is_some_and(|value| value.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || !genuine {
        return Err(Failure::local(format!("{} does not speak WebSocket", client.url()))
            .hint("a proxy in between must pass on the Upgrade header"));
    }
    let upgraded = response.upgrade().await.map_err(|error| client.broken(&error))?;
    Ok(WebSocketStream::from_raw_socket(Transport(upgraded), Role::Client, None).await)
}

impl Running<'_> {
    /// Runs to the command's end, handing each piece of output to `show`.
    pub(crate) async fn follow(
        mut self,
        mut show: impl AsyncFnMut(Output) -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        let client = self.client;
        let feeding = feed(self.sink, self.input, self.terminal);
        tokio::pin!(feeding);
        let mut fed = false;
        loop {
            tokio::select! {
                message = self.stream.next() => match message {
                    Some(Ok(message)) => match parse(message)? {
                        Some(Output::Exit(exit)) => {
                            show(Output::Exit(exit.clone())).await?;
                            return Ok(exit);
                        }
                        Some(output) => show(output).await?,
                        None => {}
                    },
                    Some(Err(error)) => return Err(lost(client, &error)),
                    None => return Err(Failure::local("the connection ended before the command did; its end is not known")),
                },
                // The socket stays with the feeding future, which only resolves when it broke or input ended.
                result = &mut feeding, if !fed => {
                    result?;
                    fed = true;
                }
            }
        }
    }
}

/// `None` for what needs no showing.
fn parse(message: Message) -> Result<Option<Output>, Failure> {
    match message {
        Message::Binary(mut bytes) => match bytes.first() {
            Some(&STDOUT) => Ok(Some(Output::Stdout(bytes.split_off(1)))),
            Some(&STDERR) => Ok(Some(Output::Stderr(bytes.split_off(1)))),
            _ => Err(Failure::local("the server sent output of an unknown stream")),
        },
        Message::Text(text) => match serde_json::from_str(&text) {
            Ok(ServerText::Start { exec_id }) => Ok(Some(Output::Start(exec_id))),
            Ok(ServerText::Exit(exit)) => Ok(Some(Output::Exit(exit))),
            Ok(ServerText::Error { error, code }) => Err(Failure::refused(0, code, error, None)),
            Err(error) => Err(Failure::local(format!(
                "the server sent a message that is not known here: {error}"
            ))),
        },
        Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
    }
}

/// Sends standard input, and the terminal's size whenever it changes. Pings are answered by the library on the next write
/// or read.
async fn feed(mut sink: SplitSink<Socket, Message>, input: Input, terminal: bool) -> Result<(), Failure> {
    let mut resized = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())?;
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; INPUT_CHUNK];
    let mut open = input == Input::Stdin;
    if !open && !terminal {
        drop(sink.send(text("stdin_end", &true)).await);
    }
    loop {
        let message = tokio::select! {
            read = stdin.read(&mut buffer), if open => match read? {
                0 => {
                    open = false;
                    text("stdin_end", &true)
                }
                count => Message::binary(buffer[..count].to_vec()),
            },
            _ = resized.recv(), if terminal => text("resize", &terminal::size()),
            else => std::future::pending().await,
        };
        if sink.send(message).await.is_err() {
            // The command's end, or the reason why it is not known, comes on the other half.
            return std::future::pending().await;
        }
    }
}

fn text(name: &str, value: &impl Serialize) -> Message {
    Message::text(serde_json::json!({ name: value }).to_string())
}

fn lost(client: &Client, error: &tokio_tungstenite::tungstenite::Error) -> Failure {
    Failure::local(format!(
        "the connection to {} broke: {error}; the command's end is not known",
        client.url()
    ))
}

/// Writes output where it belongs, at once.
pub(crate) async fn print(output: Output) -> Result<(), Failure> {
    match output {
        Output::Stdout(bytes) => write_all(tokio::io::stdout(), &bytes).await,
        Output::Stderr(bytes) => write_all(tokio::io::stderr(), &bytes).await,
        Output::Start(_) | Output::Exit(_) => Ok(()),
    }
}

async fn write_all(mut to: impl tokio::io::AsyncWrite + Unpin, bytes: &[u8]) -> Result<(), Failure> {
    let written: io::Result<()> = async {
        to.write_all(bytes).await?;
        to.flush().await
    }
    .await;
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_what_a_shell_shows() {
        let code = |exit_code| {
            Exit {
                exit_code,
                duration_ms: 0,
            }
            .code()
        };
        assert_eq!([code(0), code(3), code(137), code(-1)], [0, 3, 137, 255]);
    }

    #[test]
    fn a_servers_message_is_output_or_an_end() {
        let binary = |bytes: &[u8]| parse(Message::binary(bytes.to_vec()));
        assert!(matches!(binary(&[STDOUT, 0xff]), Ok(Some(Output::Stdout(bytes))) if *bytes == [0xff]));
        assert!(matches!(binary(&[STDERR]), Ok(Some(Output::Stderr(bytes))) if bytes.is_empty()));
        assert!(binary(&[9]).is_err());
        let exit = parse(Message::text(
            r#"{"exit":{"exit_code":3,"duration_ms":1,"outcome":"ok"}}"#,
        ));
        assert!(matches!(exit, Ok(Some(Output::Exit(exit))) if exit.exit_code == 3));
        assert!(
            parse(Message::text(
                r#"{"error":{"error":"command timeout","code":"timeout"}}"#
            ))
            .is_err()
        );
    }
}
