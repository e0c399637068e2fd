//! What callers meet at the edge, whatever the engine: keys, envelopes, bounds, routes.

mod support;

use std::{sync::Arc, task::Poll};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, StatusCode, header};
use serde_json::json;
use support::{Api, answer};
use tokio::sync::Notify;

const NOBODY: &str = "0b9f8f5e-5a0e-4c5b-9a7a-4d3a51f1f7c2";

fn sandbox(rest: &str) -> String {
    format!("/v1/sandboxes/{NOBODY}{rest}")
}

#[tokio::test]
async fn a_stranger_gets_the_contracts_401_and_no_body_of_his_is_read() {
    let api = Api::start().await;
    let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post("/v1/sandboxes").body(endless).unwrap();
    let answer = answer(api.send(request).await).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
    assert_eq!(answer.said("error"), "unauthorized");
    assert_eq!(answer.said("detail"), "missing bearer token");
    assert_eq!(answer.said("request_id"), answer.headers["x-request-id"]);
}

#[tokio::test]
async fn a_call_that_waits_ends_with_its_key() {
    let api = Api::start().await;
    let made = api.post("/v1/me/tokens", r#"{"label": "brief"}"#).await.json();
    let key = made["token"].as_str().unwrap().to_owned();
    // It waits for a body that does not come, and tells when it does so.
    let under_way = Arc::new(Notify::new());
    let waits = Arc::clone(&under_way);
    let endless = Body::from_stream(stream::poll_fn(move |_| {
        waits.notify_one();
        Poll::<Option<Result<Bytes, std::io::Error>>>::Pending
    }));
    let request = Request::post("/v1/sandboxes")
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .body(endless)
        .unwrap();
    let revoked = async {
        under_way.notified().await;
        let path = format!("/v1/me/tokens/{}", &key[..12]);
        let answer = api.call(Method::DELETE, &path, Body::empty()).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    };
    let both = async { tokio::join!(api.send(request), revoked).0 };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(5), both).await;
    let answer = answer(ended.expect("the call ends")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.said("detail").contains("during the call"), "{}", answer.text);
}

#[tokio::test]
async fn a_key_works_in_each_of_its_places_and_a_wrong_one_in_none() {
    let api = Api::start().await;
    let key = api.key().to_owned();
    let ask = async |uri: String, header: Option<(&str, String)>| {
        let mut request = Request::get(uri);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        api.send(request.body(Body::empty()).unwrap()).await.status()
    };
    assert_eq!(
        ask("/v1/me".into(), Some(("authorization", format!("Bearer {key}")))).await,
        200
    );
    assert_eq!(ask("/v1/me".into(), Some(("x-api-key", key.clone()))).await, 200);
    assert_eq!(ask(format!("/v1/me?access_token={key}"), None).await, 200);
    let other = key.replace("atl_", "e2b_");
    assert_eq!(ask("/v1/me".into(), Some(("x-api-key", other))).await, 200);
    assert_eq!(ask("/v1/me".into(), Some(("x-api-key", format!("{key}0")))).await, 401);
    assert_eq!(ask("/v1/me?access_token=x".into(), None).await, 401);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_json() {
    let api = Api::start().await;
    let missing = api.get("/v1/sandboxen").await;
    assert_eq!(
        (missing.status, missing.said("code").as_str()),
        (StatusCode::NOT_FOUND, "not_found")
    );
    assert_eq!(api.get("/").await.status, 404);
    let wrong = api.call(Method::PATCH, "/v1/sandboxes", Body::empty()).await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(wrong.headers.contains_key(header::ALLOW), "{:?}", wrong.headers);
    assert!(wrong.said("error").contains("PATCH"));
}

#[tokio::test]
async fn what_this_release_lacks_is_refused_by_type_on_routes_of_its_own() {
    let api = Api::start().await;
    for path in [
        "/v1/volumes",
        "/v1/functions",
        "/v1/functions/x/invoke",
        "/v1/snapshots",
        "/v1/apps",
        "/v1/orgs",
    ] {
        let refused = api.post(path, "{}").await;
        assert_eq!(
            (refused.status.as_u16(), refused.said("code").as_str()),
            (501, "not_supported"),
            "{path}"
        );
        assert!(!refused.said("error").is_empty());
    }
    for (path, method) in [
        ("/fork", Method::POST),
        ("/ports", Method::GET),
        ("/pause", Method::POST),
    ] {
        let unknown = api.call(method, &sandbox(path), Body::empty()).await;
        assert_eq!(
            unknown.status, 404,
            "{path}: another workspace's sandbox is not there at all"
        );
    }
}

#[tokio::test]
async fn ids_are_parsed_and_never_joined_to_paths() {
    let api = Api::start().await;
    for id in [
        "..%2f..%2fkeys",
        "x",
        "%2e%2e",
        "0B9F8F5E-5A0E-4C5B-9A7A-4D3A51F1F7C2",
        NOBODY,
        &"a".repeat(300),
    ] {
        let answer = api.get(&format!("/v1/sandboxes/{id}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("error").as_str()),
            (404, "sandbox not found"),
            "{id}"
        );
    }
    let wrong = api
        .post(&sandbox("/repl/sessions/..%2f..%2f/run"), r#"{"code": ""}"#)
        .await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.said("error").as_str()),
        (404, "session not found")
    );
}

#[tokio::test]
async fn what_cannot_be_decoded_is_refused() {
    let api = Api::start().await;
    for path in ["/fs?path=%00", "/fs?path=%ff", "/fs?path=%zz", "/fs?path=/a%"] {
        let answer = api.get(&sandbox(path)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("code").as_str()),
            (400, "invalid_request"),
            "{path}"
        );
    }
    assert_eq!(api.get("/v1/sandboxes/%00").await.status, 400);
    let long = api.get(&sandbox(&format!("/fs?path=/{}", "a".repeat(20_000)))).await;
    assert_eq!(long.status, StatusCode::URI_TOO_LONG);
    let request = Request::get("/healthz")
        .header("x-big", "x".repeat(40_000))
        .body(Body::empty())
        .unwrap();
    assert_eq!(
        api.send(request).await.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
}

#[tokio::test]
async fn a_wrong_body_names_its_field() {
    let api = Api::start().await;
    for (path, body, field) in [
        ("/v1/sandboxes", r#"{"ttl_seconds": -1}"#.to_owned(), "ttl_seconds"),
        ("/v1/sandboxes", r#"{"netwrok": {}}"#.to_owned(), "netwrok"),
        ("/v1/sandboxes", r#"{"metadata": ["x"]}"#.to_owned(), "metadata"),
        ("/v1/sandboxes", r#"{"memory_mb": "x"}"#.to_owned(), "memory_mb"),
        (
            "/v1/me/tokens",
            r#"{"label": "x", "expires_in_days": -1}"#.to_owned(),
            "expires_in_days",
        ),
        (
            "/v1/me/tokens",
            r#"{"label": "x", "scope": "root"}"#.to_owned(),
            "scope",
        ),
        (
            &sandbox("/exec"),
            r#"{"cmd": "x", "timeout_seconds": NaN}"#.to_owned(),
            "timeout_seconds",
        ),
        (&sandbox("/exec"), r#"{"argv": []}"#.to_owned(), "argv"),
        (&sandbox("/exec"), "{}".to_owned(), "cmd"),
    ] {
        let answer = api.post(path, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("field").as_str()),
            (400, field),
            "{path} {body}: {}",
            answer.text
        );
    }
    for body in ["", "[", "null", "\u{0}", "{\"a\":1}{"] {
        let answer = api.post("/v1/sandboxes", body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("code").as_str()),
            (400, "invalid_request"),
            "{body:?}"
        );
    }
}

#[tokio::test]
async fn a_known_client_may_send_fields_of_its_own() {
    let api = Api::start().await;
    let status = async |agent: &str| {
        let request = Request::post("/v1/sandboxes")
            .header(header::USER_AGENT, agent)
            .header("x-api-key", api.key())
            .body(Body::from(r#"{"template": "no such", "netwrok": 1}"#))
            .unwrap();
        answer(api.send(request).await).await.said("code")
    };
    for agent in ["pandastack-py/0.10.0", "node", "undici"] {
        assert_eq!(status(agent).await, "template_unknown", "{agent}");
    }
    assert_eq!(status("python-requests/2").await, "unknown_field");
}

#[tokio::test]
async fn a_json_body_has_a_bound() {
    let api = Api::start().await;
    let large = format!(r#"{{"metadata": {{"a": "{}"}}}}"#, "x".repeat(1 << 20));
    let answer = api.post("/v1/sandboxes", &large).await;
    assert_eq!(
        (answer.status.as_u16(), answer.said("code").as_str()),
        (413, "too_large")
    );
}

#[tokio::test]
async fn a_create_that_finds_no_template_ready_is_refused_in_the_envelope() {
    let api = Api::start().await;
    let unknown = api.post("/v1/sandboxes", r#"{"template": "no-such"}"#).await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.said("code").as_str()),
        (400, "template_unknown")
    );
    assert!(unknown.said("error").contains("not in the template catalog"));
    let unbuilt = api.post("/v1/sandboxes", r#"{"template": "base"}"#).await;
    assert!(unbuilt.status.is_client_error() || unbuilt.status == 503, "{unbuilt:?}");
    assert_eq!(api.get("/v1/sandboxes").await.json(), json!([]));
}

#[tokio::test]
async fn health_tells_that_nothing_can_be_created_yet() {
    let api = Api::start().await;
    for path in ["/healthz", "/v1/healthz"] {
        let answer = answer(api.send(Request::get(path).body(Body::empty()).unwrap()).await).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("status").as_str()),
            (503, "unavailable")
        );
        assert!(!answer.said("error").is_empty());
    }
    assert_eq!(api.get("/version").await.said("engine"), "none");
    assert_eq!(api.get("/v1/version").await.said("isolation"), "kernel");
}

#[tokio::test]
async fn the_numbers_need_a_key_and_count_requests_by_route() {
    let api = Api::start().await;
    let open = Request::get("/metrics").body(Body::empty()).unwrap();
    assert_eq!(api.send(open).await.status(), 401);
    api.get(&sandbox("")).await;
    let text = api.get("/metrics").await.text;
    assert!(
        text.contains(r#"atoll_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="404"} 1"#),
        "{text}"
    );
    for name in [
        "atoll_live_sandboxes 0",
        "atoll_cell_seconds_count 0",
        "atoll_cell_seconds_bucket{le=\"+Inf\"} 0",
    ] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_token_is_made_shown_once_listed_by_its_prefix_and_revoked() {
    let api = Api::start().await;
    let made = api
        .post(
            "/v1/me/tokens",
            r#"{"label": "ci", "scope": "read-only", "expires_in_days": 1}"#,
        )
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let (token, prefix) = (made.said("token"), made.said("prefix"));
    assert!(token.starts_with(&prefix) && token.len() == 44);
    let listed = api.get("/v1/me/tokens").await;
    assert!(listed.text.contains(&prefix) && !listed.text.contains(&token));

    let with = async |method: Method, path: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(path).header("x-api-key", &token);
        answer(api.send(request.body(Body::from(body)).unwrap()).await).await
    };
    assert_eq!(with(Method::GET, "/v1/sandboxes", "").await.status, 200);
    let refused = with(Method::POST, "/v1/sandboxes", "{}").await;
    assert_eq!(
        (refused.status.as_u16(), refused.said("code").as_str()),
        (403, "forbidden")
    );

    let revoked = api
        .call(Method::DELETE, &format!("/v1/me/tokens/{prefix}"), Body::empty())
        .await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    assert_eq!(with(Method::GET, "/v1/sandboxes", "").await.status, 401);
}

#[tokio::test]
async fn templates_are_listed_and_none_can_be_deleted() {
    let api = Api::start().await;
    let list = api.get("/v1/templates").await.json();
    let names: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|template| template["name"].clone())
        .collect();
    assert!(names.contains(&json!("code-interpreter")), "{names:?}");
    assert_eq!(api.get("/v1/templates/ubuntu-24.04").await.said("name"), "base");
    assert_eq!(api.get("/v1/templates/no-such").await.status, 404);
    let deleted = api.call(Method::DELETE, "/v1/templates/base", Body::empty()).await;
    assert_eq!(
        (deleted.status.as_u16(), deleted.said("code").as_str()),
        (403, "forbidden")
    );
}

#[tokio::test]
async fn builds_from_images_and_dockerfiles_are_refused_by_their_field() {
    let api = Api::start().await;
    for field in ["image_ref", "dockerfile", "rootfs"] {
        let url_encoded = api
            .post("/v1/templates/build", &format!("name=x&size_mb=1024&{field}=y"))
            .await;
        assert_eq!(
            (url_encoded.status.as_u16(), url_encoded.said("field").as_str()),
            (501, field)
        );
        let multipart = format!(
            "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; \
             name=\"{field}\"; filename=\"f\"\r\n\r\ny\r\n--b--\r\n"
        );
        let request = Request::post("/v1/templates/build")
            .header("x-api-key", api.key())
            .header(header::CONTENT_TYPE, "multipart/form-data; boundary=b")
            .body(Body::from(multipart))
            .unwrap();
        let answer = answer(api.send(request).await).await;
        assert_eq!(
            (answer.status.as_u16(), answer.said("field").as_str()),
            (501, field),
            "{answer:?}"
        );
    }
    assert_eq!(api.post("/v1/templates/build", "size_mb=1").await.said("field"), "name");
    assert_eq!(api.get("/v1/templates/builds").await.json(), json!([]));
    assert_eq!(api.get("/v1/templates/builds/0123456789abcdef").await.status, 404);
}

#[tokio::test]
async fn sockets_ask_for_an_upgrade() {
    let api = Api::start().await;
    for path in ["/exec/pty?rows=1", "/exec/ws", "/exec/socket", "/ssh"] {
        assert_eq!(
            api.get(&sandbox(path)).await.status,
            StatusCode::UPGRADE_REQUIRED,
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_document_is_served_at_both_addresses_without_a_key() {
    let api = Api::start().await;
    for path in ["/openapi.json", "/v1/openapi.json"] {
        let answer = answer(api.send(Request::get(path).body(Body::empty()).unwrap()).await).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["info"]["title"].clone()),
            (200, json!("Atoll"))
        );
    }
}
