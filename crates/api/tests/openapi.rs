//! The committed document is what the handlers say.

use std::{env, fs, path::Path};

/// Run with `UPDATE_OPENAPI=1` to write the document anew.
#[test]
fn the_committed_document_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/atoll.json");
    let document = atoll_api::openapi_json();
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, document).unwrap();
        return;
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == document,
        "openapi/atoll.json is out of date: run UPDATE_OPENAPI=1 cargo test -p atoll-api --test openapi, and review the diff"
    );
}

#[test]
fn every_operation_is_documented() {
    let document: serde_json::Value = serde_json::from_str(&atoll_api::openapi_json()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{method} {path} has no id"));
            assert!(ids.insert(id.to_owned()), "two operations are called {id}");
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            assert!(
                operation["responses"]["default"].is_object(),
                "{method} {path} does not tell of refusals"
            );
        }
    }
    assert!(ids.len() > 40, "only {} operations", ids.len());
}
