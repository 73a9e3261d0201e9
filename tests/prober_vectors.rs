//! The probe targets of the conformance vectors (tests/vectors/ports-urls.json).

use podprobe::api::pod::{ContainerPort, HttpHeader, IntOrString};
use podprobe::prober::http::header_map;
use podprobe::prober::ports::resolve_port;
use podprobe::prober::url::ProbeUrl;
use serde_json::Value;

fn vectors(group: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("vectors/ports-urls.json")).unwrap();
    let cases = all[group].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn ports() {
    for group in ["resolvePort", "httpTarget", "tcpTarget"] {
        for case in vectors(group) {
            // A port that is neither a number nor a text cannot be written in our types.
            let Ok(port) = serde_json::from_value::<IntOrString>(case["port"].clone()) else { continue };
            let ports: Vec<ContainerPort> = serde_json::from_value(case["ports"].clone()).unwrap();
            let got = resolve_port(&port, &ports);
            assert_eq!(got.is_ok(), case["ok"].as_bool().unwrap(), "{}: {got:?}", case["id"]);
            let expected = case["value"].as_u64().or(case["expectPort"].as_u64());
            if let (Ok(got), Some(expected)) = (got, expected) {
                assert_eq!(u64::from(got), expected, "{}", case["id"]);
            }
        }
    }
}

#[test]
fn urls() {
    for case in vectors("formatURL") {
        let text = |key: &str| case[key].as_str().unwrap();
        let url = ProbeUrl::of_probe(text("scheme"), text("host"), case["port"].as_u64().unwrap() as u16, text("path"));
        assert_eq!(url.to_string(), text("url"), "{}", case["id"]);
    }
}

#[test]
fn headers() {
    for case in vectors("headers") {
        let pairs: Vec<(String, String)> = serde_json::from_value(case["in"].clone()).unwrap();
        let spec: Vec<_> = pairs.into_iter().map(|(name, value)| HttpHeader { name, value }).collect();
        let got: Value = header_map(&spec).into_iter().map(|(name, values)| (name, Value::from(values))).collect();
        assert_eq!(got, case["out"], "{}", case["id"]);
    }
}
