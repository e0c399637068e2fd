//! Which call goes where. The table is in `atoll_protocol::route`.

use std::rc::Rc;

use atoll_model::{ContextId, ExecId};
use atoll_protocol::{
    route,
    types::{GuestCode, GuestRefusal},
};
use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{Method, Request};
use percent_encoding::percent_decode_str;

use super::{
    Body, Gone, Reply,
    reply::{self, break_off},
};
use crate::{agent::Agent, contexts, exec, files, refusal::refuse, stats, thaw};

/// What a call asks for.
struct Call {
    agent: Rc<Agent>,
    query: Query,
    /// Permission bits of a file to write, as they came.
    mode: Option<String>,
    body: Body,
    reply: Reply,
}

/// Answers one call. That its caller went away is no error: there is nobody to tell.
pub(super) async fn handle(agent: Rc<Agent>, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let (head, body) = request.into_parts();
    let mode = head.headers.get(route::MODE_HEADER);
    let call = Call {
        agent,
        mode: mode.map(|mode| String::from_utf8_lossy(mode.as_bytes()).into_owned()),
        query: Query(head.uri.query().unwrap_or_default().to_owned()),
        body: Body::new(body),
        reply: Reply(respond),
    };
    let _: Result<(), Gone> = dispatch(&head.method, head.uri.path(), call).await;
}

async fn dispatch(method: &Method, path: &str, call: Call) -> Result<(), Gone> {
    let Call {
        agent,
        query,
        mode,
        mut body,
        reply,
    } = call;
    match (method.as_str(), path) {
        ("GET", route::PING) => reply.nothing(),
        ("GET", route::STATS) => reply.json(&stats::take(&agent)).await,
        ("POST", route::THAW) => match body.json().await? {
            Ok(request) => finish(reply, thaw::thaw(&agent, request).await).await,
            Err(refusal) => reply.refuse(&refusal).await,
        },
        ("POST", route::WARM) => match body.json().await? {
            Ok(request) => finish_empty(reply, contexts::warm(&agent, request).await).await,
            Err(refusal) => reply.refuse(&refusal).await,
        },
        ("POST", route::EXEC) => run_exec(&agent, body, reply).await,
        ("GET", route::EXEC) => reply.json(&agent.execs.list()).await,
        ("POST", route::EXEC_ATTACH) => attach_exec(&agent, &query, body, reply).await,
        ("POST", route::EXEC_SIGNAL) => {
            let request = body.json().await?;
            finish_empty(reply, request.and_then(|request| agent.execs.signal(&request))).await
        }
        ("POST", route::EXEC_RESIZE) => {
            let request = body.json().await?;
            finish_empty(reply, request.and_then(|request| agent.execs.resize(&request))).await
        }
        ("PUT", route::FILE_CONTENT) => write_file(&query, mode, body, reply).await,
        (_, path) if path.starts_with(route::FILES) => file_call(method, path, &query, body, reply).await,
        (_, path) if path.starts_with(route::CONTEXTS) => context_call(&agent, method, path, &query, body, reply).await,
        _ => reply.refuse(&unknown(method, path)).await,
    }
}

fn unknown(method: &Method, path: &str) -> GuestRefusal {
    refuse(GuestCode::Invalid, format!("this agent has no {method} {path}"))
}

async fn finish<T: serde::Serialize>(reply: Reply, result: Result<T, GuestRefusal>) -> Result<(), Gone> {
    match result {
        Ok(value) => reply.json(&value).await,
        Err(refusal) => reply.refuse(&refusal).await,
    }
}

async fn finish_empty(reply: Reply, result: Result<(), GuestRefusal>) -> Result<(), Gone> {
    match result {
        Ok(()) => reply.nothing(),
        Err(refusal) => reply.refuse(&refusal).await,
    }
}

async fn run_exec(agent: &Rc<Agent>, mut body: Body, reply: Reply) -> Result<(), Gone> {
    let start = body.first_json().await?;
    match start.and_then(|start| exec::start(agent, &start)) {
        Ok(exec) => exec::follow(exec, body, reply, exec::Role::Caller).await,
        Err(refusal) => reply.refuse(&refusal).await,
    }
}

async fn attach_exec(agent: &Rc<Agent>, query: &Query, body: Body, reply: Reply) -> Result<(), Gone> {
    let id = query.id::<ExecId>();
    match id.and_then(|id| agent.execs.attachable(id)) {
        Ok(exec) => exec::follow(exec, body, reply, exec::Role::Visitor).await,
        Err(refusal) => reply.refuse(&refusal).await,
    }
}

async fn file_call(method: &Method, path: &str, query: &Query, mut body: Body, reply: Reply) -> Result<(), Gone> {
    if (method.as_str(), path) == ("POST", route::FILE_MOVE) {
        let request = body.json().await?;
        return match request {
            Ok(request) => finish_empty(reply, files::rename(request).await).await,
            Err(refusal) => reply.refuse(&refusal).await,
        };
    }
    let target = match query.need("path").and_then(|path| files::checked(&path)) {
        Ok(target) => target,
        Err(refusal) => return reply.refuse(&refusal).await,
    };
    match (method.as_str(), path) {
        ("GET", route::FILE_CONTENT) => read_file(target, query, reply).await,
        ("GET", route::FILE_STAT) => finish(reply, files::stat(target).await).await,
        ("GET", route::FILE_LIST) => {
            let page = match query.number("limit") {
                Ok(limit) => files::list(target, query.get("after"), limit).await,
                Err(refusal) => Err(refusal),
            };
            finish(reply, page).await
        }
        ("DELETE", route::FILES) => finish_empty(reply, files::remove(target).await).await,
        ("POST", route::FILE_MKDIR) => finish_empty(reply, files::make_directory(target).await).await,
        _ => reply.refuse(&unknown(method, path)).await,
    }
}

async fn write_file(query: &Query, mode: Option<String>, mut body: Body, reply: Reply) -> Result<(), Gone> {
    let target = query.need("path").and_then(|path| files::checked(&path));
    let mode = mode.map(|text| u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777));
    match (target, mode) {
        (Ok(target), None | Some(Some(_))) => {
            let written = files::write(target, mode.flatten(), &mut body).await?;
            finish(reply, written).await
        }
        (Ok(_), Some(None)) => {
            let refusal = refuse(GuestCode::Invalid, "mode must be permission bits in octal digits");
            reply.refuse(&refusal).await
        }
        (Err(refusal), _) => reply.refuse(&refusal).await,
    }
}

async fn read_file(target: std::path::PathBuf, query: &Query, reply: Reply) -> Result<(), Gone> {
    let range = query
        .number("offset")
        .and_then(|offset| Ok((offset.unwrap_or(0), query.number("length")?)));
    let opened = match range {
        Ok((offset, length)) => files::open(target, offset, length).await,
        Err(refusal) => Err(refusal),
    };
    let mut file = match opened {
        Ok(file) => file,
        Err(refusal) => return reply.refuse(&refusal).await,
    };
    let size = file.size().map(|size| (route::SIZE_HEADER, size.to_string()));
    let mut stream = reply.stream(size.as_slice())?;
    loop {
        match file.next().await {
            Ok(Some(chunk)) => reply::send(&mut stream, chunk).await?,
            Ok(None) => break,
            Err(error) => {
                eprintln!("atoll-agent: reading a file: {error}");
                break_off(&mut stream);
                return Ok(());
            }
        }
    }
    stream.send_data(Bytes::new(), true)?;
    Ok(())
}

async fn context_call(
    agent: &Rc<Agent>,
    method: &Method,
    path: &str,
    query: &Query,
    mut body: Body,
    reply: Reply,
) -> Result<(), Gone> {
    match (method.as_str(), path) {
        ("POST", route::CONTEXTS) => {
            return match body.json().await? {
                Ok(request) => finish(reply, contexts::create(agent, request).await).await,
                Err(refusal) => reply.refuse(&refusal).await,
            };
        }
        ("GET", route::CONTEXTS) => return reply.json(&agent.contexts.list()).await,
        _ => {}
    }
    let context = match query.id::<ContextId>().and_then(|id| agent.contexts.get(id)) {
        Ok(context) => context,
        Err(refusal) => return reply.refuse(&refusal).await,
    };
    match (method.as_str(), path) {
        ("POST", route::CONTEXT_RUN) => contexts::run(&context, body, reply).await,
        ("POST", route::CONTEXT_INTERRUPT) => finish_empty(reply, context.interrupt().await).await,
        ("POST", route::CONTEXT_RESTART) => finish(reply, context.restart().await).await,
        ("DELETE", route::CONTEXTS) => finish_empty(reply, contexts::close(agent, &context).await).await,
        _ => reply.refuse(&unknown(method, path)).await,
    }
}

/// The parameters behind the path.
#[derive(Debug)]
struct Query(String);

impl Query {
    fn get(&self, wanted: &str) -> Option<String> {
        self.0.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let text = percent_decode_str(value).decode_utf8_lossy();
            (name == wanted).then(|| text.into_owned())
        })
    }

    fn need(&self, wanted: &str) -> Result<String, GuestRefusal> {
        self.get(wanted)
            .ok_or_else(|| refuse(GuestCode::Invalid, format!("{wanted} is missing")))
    }

    fn id<T: std::str::FromStr<Err: std::fmt::Display>>(&self) -> Result<T, GuestRefusal> {
        let text = self.need("id")?;
        text.parse()
            .map_err(|error: T::Err| refuse(GuestCode::Invalid, error.to_string()))
    }

    fn number(&self, wanted: &str) -> Result<Option<u64>, GuestRefusal> {
        let number = self.get(wanted).map(|text| text.parse()).transpose();
        number.map_err(|_| refuse(GuestCode::Invalid, format!("{wanted} must be a whole number")))
    }
}
