//! Directory entries: list, stat, remove, rename, make.

use std::io;

use atoll_control::{Caller, Control};
use atoll_model::SandboxId;
use atoll_protocol::types::{FileInfo, FileKind, FileList};
use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    app::{App, Authenticated},
    error::ApiResult,
    extract::{Id, Json, Query},
};

/// Entries that a whole directory is read by; so many are in memory at once.
const PAGE: u32 = 1000;

/// One entry of a directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// The last part of its path; bytes that are no UTF-8 are replaced.
    name: String,
    /// Whether it is a directory; a link to one is not.
    is_dir: bool,
    /// Size in bytes.
    size: u64,
    /// What it is: `f` file, `d` directory, `l` symbolic link, `o` other.
    #[schema(example = "f")]
    mode: &'static str,
    /// Permission bits in octal, as in `0644`.
    permissions: String,
    /// When it was last changed, in seconds since 1970.
    mtime: i64,
}

impl From<FileInfo> for Entry {
    fn from(info: FileInfo) -> Self {
        Self {
            is_dir: info.kind == FileKind::Directory,
            size: info.size,
            mode: match info.kind {
                FileKind::File => "f",
                FileKind::Directory => "d",
                FileKind::Symlink => "l",
                FileKind::Other => "o",
            },
            permissions: format!("{:04o}", info.mode & 0o7777),
            mtime: info.mtime,
            name: info.name,
        }
    }
}

/// A directory, or a page of one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listing {
    /// The path as it was given.
    path: String,
    /// The entries in the order of their names.
    entries: Vec<Entry>,
    /// Ask again with `after` set to this; absent at the end, and when no `limit` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which directory, and which page of it.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DirQuery {
    /// Absolute path inside the sandbox; `/` when absent.
    path: Option<String>,
    /// Only entries after this name: the `next` of the page before.
    after: Option<String>,
    /// How many entries at most; all of them when absent.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
}

/// Lists a directory. Does not count as use.
#[utoipa::path(
    get, path = "/sandboxes/{id}/fs/dir", tag = "files", operation_id = "file_list", params(DirQuery),
    responses(
        (status = 200, description = "Its entries.", body = Listing),
    )
)]
pub(crate) async fn dir(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<DirQuery>,
) -> ApiResult<Response> {
    let limit = query.limit.unwrap_or(PAGE);
    let pages = Pages {
        control: app.control,
        caller,
        sandbox: id,
        path: query.path.unwrap_or_else(|| "/".to_owned()),
    };
    // The first page is awaited, so that a refusal has its status.
    let first = pages.after(query.after.as_deref(), limit).await?;
    if query.limit.is_some() || first.next.is_none() {
        let whole = Listing {
            path: pages.path,
            entries: first.entries.into_iter().map(Entry::from).collect(),
            next: first.next,
        };
        return Ok(axum::Json(whole).into_response());
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, Body::from_stream(pages.all(first))).into_response())
}

struct Pages {
    control: Control,
    caller: Caller,
    sandbox: SandboxId,
    path: String,
}

/// Where the writing of a long listing stands.
enum Writing {
    Page(FileList),
    Follow(String),
    End,
}

impl Pages {
    async fn after(&self, after: Option<&str>, limit: u32) -> ApiResult<FileList> {
        let list = self
            .control
            .file_list(&self.caller, self.sandbox, &self.path, after, limit);
        Ok(list.await?)
    }

    /// The whole directory as one JSON object, a page in memory at a time.
    fn all(self, first: FileList) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let opening = format!(
            "{{\"path\":{},\"entries\":[",
            serde_json::Value::from(self.path.as_str())
        );
        stream::unfold(Some((self, Writing::Page(first), opening)), |state| async move {
            let (pages, writing, mut text) = state?;
            let page = match writing {
                Writing::End => return None,
                Writing::Page(page) => page,
                Writing::Follow(name) => match pages.after(Some(&name), PAGE).await {
                    Ok(page) => page,
                    Err(error) => return Some((Err(io::Error::other(error)), None)),
                },
            };
            let entries: Result<Vec<String>, _> = page
                .entries
                .into_iter()
                .map(|info| serde_json::to_string(&Entry::from(info)))
                .collect();
            match entries {
                // A last page may be empty: then no comma either.
                Ok(entries) if entries.is_empty() => text.clear(),
                Ok(entries) => text.push_str(&entries.join(",")),
                Err(error) => return Some((Err(error.into()), None)),
            }
            let writing = match page.next {
                Some(name) => Writing::Follow(name),
                None => {
                    text.push_str("]}");
                    Writing::End
                }
            };
            let separator = ",".to_owned();
            Some((Ok(Bytes::from(text)), Some((pages, writing, separator))))
        })
    }
}

/// Which file or directory.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// Absolute path inside the sandbox.
    #[param(example = "/work")]
    path: String,
}

/// Tells what a path is; links are followed. Does not count as use.
#[utoipa::path(
    get, path = "/sandboxes/{id}/fs/stat", tag = "files", operation_id = "file_stat", params(PathQuery),
    responses((status = 200, description = "The entry.", body = Entry))
)]
pub(crate) async fn stat(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<PathQuery>,
) -> ApiResult<axum::Json<Entry>> {
    Ok(axum::Json(
        app.control.file_stat(&caller, id, &query.path).await?.into(),
    ))
}

/// Removes a file, or a directory with all it holds.
#[utoipa::path(
    delete, path = "/sandboxes/{id}/fs", tag = "files", operation_id = "file_remove", params(PathQuery),
    responses((status = 204, description = "It is gone."))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<PathQuery>,
) -> ApiResult<StatusCode> {
    app.control.file_remove(&caller, id, &query.path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A directory to make.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MkdirBody {
    /// Absolute path inside the sandbox; missing parents are made.
    path: String,
}

/// Makes a directory and its parents. One that exists is left as it is.
#[utoipa::path(
    post, path = "/sandboxes/{id}/fs/mkdir", tag = "files", operation_id = "file_mkdir", request_body = MkdirBody,
    responses(
        (status = 204, description = "It exists."),
    )
)]
pub(crate) async fn mkdir(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Json(body): Json<MkdirBody>,
) -> ApiResult<StatusCode> {
    app.control.file_mkdir(&caller, id, &body.path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A rename.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MoveBody {
    /// From this absolute path.
    from: String,
    /// To this absolute path.
    to: String,
}

/// Renames a file or directory.
#[utoipa::path(
    post, path = "/sandboxes/{id}/fs/move", tag = "files", operation_id = "file_move", request_body = MoveBody,
    responses(
        (status = 204, description = "It has its new name."),
    )
)]
pub(crate) async fn rename(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Json(body): Json<MoveBody>,
) -> ApiResult<StatusCode> {
    app.control.file_move(&caller, id, &body.from, &body.to).await?;
    Ok(StatusCode::NO_CONTENT)
}
