//! Results of a cell on the wire: MIME bundles whose values are all strings (pandastack-v1 §4.5).

use std::collections::BTreeMap;

use atoll_control::CellResult;
use serde_json::Value;

/// MIME type to text: images in base64, JSON types as JSON text.
pub(crate) type Bundle = BTreeMap<String, String>;

pub(crate) fn bundle(result: CellResult) -> Bundle {
    result
        .bundle
        .into_iter()
        // The clients take a bundle with the key `type` for another form of result. No MIME type lacks the slash.
        .filter(|(mime, _)| mime.contains('/'))
        .map(|(mime, value)| {
            let text = wire_text(&mime, value);
            (mime, text)
        })
        .collect()
}

fn wire_text(mime: &str, value: Value) -> String {
    let is_json = mime == "application/json" || mime.ends_with("+json");
    match value {
        // A string that is a JSON value keeps its quotes, or parsing it would fail.
        Value::String(text) if !is_json => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_is_a_string() {
        let result = CellResult {
            bundle: BTreeMap::from([
                ("text/plain".to_owned(), json!("'a'")),
                ("image/png".to_owned(), json!("aGk=")),
                ("application/json".to_owned(), json!({"a": [1, null]})),
                ("application/vnd.plotly.v1+json".to_owned(), json!("x")),
                ("type".to_owned(), json!("image/png")),
            ]),
            is_last_expression: true,
        };
        let bundle = bundle(result);
        assert_eq!(bundle["text/plain"], "'a'");
        assert_eq!(bundle["image/png"], "aGk=");
        assert_eq!(bundle["application/json"], r#"{"a":[1,null]}"#);
        assert_eq!(bundle["application/vnd.plotly.v1+json"], "\"x\"");
        assert!(!bundle.contains_key("type"));
    }
}
