//! The OpenAPI document: what the handlers say of themselves, and what all of them have in common.

use std::collections::BTreeSet;

use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        Components, Content, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Type,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        schema::{AdditionalProperties, KnownFormat, Schema, SchemaFormat},
        security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use crate::{error::ErrorBody, unsupported};

#[derive(OpenApi)]
#[openapi(info(title = "Atoll", license(name = "Apache-2.0"),))]
struct Frame;

const INTRODUCTION: &str = "\
Runs code that models write, each sandbox behind a kernel boundary. A superset of version 1 of PandaStack's API: its \
clients work at this base address unchanged.

**Keys.** `Authorization: Bearer KEY` or `X-API-Key: KEY`; on GET also `?access_token=KEY`, for WebSocket and EventSource.

**Refusals** are flat: `error` is one sentence, `code` is for programs, `field` names what is wrong with the request.

| status | codes |
|---|---|
| 400 | `invalid_request`, `unknown_field`, `template_unknown`, `isolation_unavailable` |
| 401, 403 | `unauthorized`, `forbidden` |
| 404 | `not_found` (another workspace's ids, too), `sandbox_gone`: it ended before or during the call |
| 405, 408, 414, 426, 431 | `invalid_request`, `too_large` |
| 409 | `conflict`, `not_running` |
| 413 | `too_large` |
| 429 | `too_many`, with `Retry-After` |
| 500, 502 | `internal`, `agent_lost` |
| 501 | `not_supported`: known, and not part of this release |
| 503 | `no_capacity`, with `Retry-After`; nothing was created |
| 504 | `timeout` of a command or cell, and of nothing else |
| 507 | `insufficient_storage` (nothing was created), `disk_full` (the sandbox's own) |

**Requests.** A JSON body has at most 1 MiB. An unknown field is refused by its name, unless one of PandaStack's clients \
sent it. Every answer has `X-Request-Id`, yours or a new one.
";

/// The document around the handlers' paths.
pub(crate) fn frame() -> utoipa::openapi::OpenApi {
    let mut document = Frame::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let refused = unsupported::list();
    document.info.description = Some(format!("{INTRODUCTION}\n**Not in this release** (501): {refused}.\n"));
    document
}

/// Adds to each operation what all have in common: path parameters, refusals, keys.
pub(crate) fn complete(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let mut bodies = BTreeSet::new();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in operations.into_iter().flatten() {
            add_path_parameters(path, operation);
            add_refusals(path, operation);
            bodies.extend(body_schema(operation));
        }
    }
    let components = document.components.get_or_insert_with(Components::new);
    components
        .schemas
        .insert(ErrorBody::name().into_owned(), ErrorBody::schema());
    for name in bodies {
        refuse_unknown_fields(components, &name);
    }
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
    components.security_schemes.insert("bearer".to_owned(), bearer.into());
    components.security_schemes.insert("key".to_owned(), header.into());
    let none: [&str; 0] = [];
    document.security = Some(vec![
        SecurityRequirement::new("bearer", none),
        SecurityRequirement::new("key", none),
    ]);
    document
}

/// The name of the schema of an operation's JSON body.
fn body_schema(operation: &Operation) -> Option<String> {
    let body = written_out(operation.request_body.as_ref()?)?;
    let content = written_out(body.content.get("application/json")?)?;
    match content.schema.as_ref()? {
        RefOr::Ref(reference) => name_of(reference),
        // A body that may be left out is one of its schema and null.
        RefOr::T(Schema::OneOf(either)) => either.items.iter().find_map(|item| match item {
            RefOr::Ref(reference) => name_of(reference),
            RefOr::T(_) => None,
        }),
        RefOr::T(_) => None,
    }
}

fn name_of(reference: &Ref) -> Option<String> {
    reference.ref_location.rsplit('/').next().map(str::to_owned)
}

fn written_out<T>(part: &RefOr<T>) -> Option<&T> {
    match part {
        RefOr::T(part) => Some(part),
        RefOr::Ref(_) => None,
    }
}

fn refuse_unknown_fields(components: &mut Components, name: &str) {
    if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(name) {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
}

fn add_path_parameters(path: &str, operation: &mut Operation) {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    for name in names {
        operation
            .parameters
            .get_or_insert_default()
            .push(path_parameter(name).into());
    }
}

fn path_parameter(name: &str) -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let hex = "^[0-9a-f]{16}$";
    let (schema, description) = match name {
        "id" => (
            text.format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid))),
            "The sandbox.",
        ),
        "sid" => (text.pattern(Some(hex)), "The context."),
        "exec_id" => (text.pattern(Some(hex)), "The command."),
        "build_id" => (text.pattern(Some(hex)), "The build."),
        "prefix" => (text.min_length(Some(1)), "The token's prefix, as in lists."),
        _ => (text.min_length(Some(1)), "The name."),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn add_refusals(path: &str, operation: &mut Operation) {
    let needs_no_key = operation.security.is_some();
    let mut refusals = vec![("default", "Refused; see `code`.")];
    if operation.parameters.is_some() || operation.request_body.is_some() {
        refusals.push(("400", "Something about the request is wrong; see `field`."));
    }
    if !needs_no_key {
        refusals.push(("401", "No key, or one that is not valid."));
        refusals.push(("403", "The key's scope does not allow this."));
    }
    if path.contains('{') {
        refusals.push(("404", "No such thing, or another workspace's."));
    }
    for (status, description) in refusals {
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(refusal(description)));
    }
}

fn refusal(description: &str) -> Response {
    let body = Ref::from_schema_name(ErrorBody::name());
    ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(body)))
        .build()
}
