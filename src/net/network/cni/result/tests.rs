use serde_json::json;

use super::*;

fn parsed(text: &str) -> Result<Value, String> {
    parse(text.as_bytes(), Version::STATUS).map_err(|cause| cause.to_string())
}

#[track_caller]
fn check(result: &Value, expected: Result<&[&str], &str>) {
    let found = addresses(&parsed(&result.to_string()).unwrap());
    let texts = found.map(|a| a.iter().map(IpAddr::to_string).collect::<Vec<_>>());
    match expected {
        Ok(expected) => assert_eq!(texts.unwrap(), expected),
        Err(expected) => assert_eq!(texts.unwrap_err().to_string(), expected),
    }
}

#[test]
fn the_addresses_of_eth0_count_and_the_first_of_ipv4_is_primary() {
    let result = json!({
        "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/x"}, {"name": "eth1", "sandbox": "/x"}],
        "ips": [
            {"address": "fd00::5/64", "interface": 1},
            {"address": "10.9.0.5/16", "interface": 2},
            {"address": "10.1.0.5/16", "interface": 1, "gateway": "10.1.0.1"},
            {"address": "10.2.0.5/16"},
        ],
    });
    check(&result, Ok(&["10.1.0.5", "fd00::5", "10.2.0.5"]));
    let early =
        json!({"cniVersion": "0.2.0", "ip6": {"ip": "fd00::5/64"}, "ip4": {"ip": "10.1.0.5/16"}});
    let found = addresses(&early).unwrap();
    assert_eq!(
        found.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        ["10.1.0.5", "fd00::5"]
    );
}

#[test]
fn a_result_without_a_usable_address_says_what_is_wrong() {
    let none = "the network gave no address for eth0";
    check(&json!({}), Err(none));
    check(&json!({"ips": []}), Err(none));
    check(
        &json!({"ips": [{"address": "10.1.0.5"}]}),
        Err("\"10.1.0.5\" is not an address with its prefix length, such as \"10.1.0.5/16\""),
    );
    check(
        &json!({"ips": [{"address": "10.1.0.5/33"}]}),
        Err("\"10.1.0.5/33\" is not an address with its prefix length, such as \"10.1.0.5/16\""),
    );
    check(
        &json!({"ips": [{"address": "10.1.0.5/8", "interface": 3}], "interfaces": [{"name": "eth0"}]}),
        Err("ips[0].interface is not in the list of interfaces"),
    );
    let early = json!({"cniVersion": "0.1.0", "ips": [{"address": "10.1.0.5/8"}]});
    assert!(matches!(addresses(&early), Err(ResultError::NoAddress)));
}

#[test]
fn a_result_without_a_version_has_that_of_the_request() {
    assert_eq!(parsed("{}").unwrap()["cniVersion"], "1.1.0");
    assert_eq!(
        parsed(r#"{"cniVersion": ""}"#).unwrap()["cniVersion"],
        "1.1.0"
    );
}

#[test]
fn a_result_of_another_version_is_made_one_of_the_request() {
    let ips = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/16"}, {"address": "fd00::5/64"}]});
    let parsed = |version| {
        let version = Version::parse(version).unwrap();
        parse(ips.to_string().as_bytes(), version).map_err(|cause| cause.to_string())
    };
    let new = parsed("1.0.0").unwrap();
    assert_eq!(
        (&new["cniVersion"], &new["ips"]),
        (&json!("1.0.0"), &ips["ips"])
    );
    let old = parsed("0.4.0").unwrap();
    let families = [&old["ips"][0]["version"], &old["ips"][1]["version"]];
    assert_eq!(
        (&old["cniVersion"], families),
        (&json!("0.4.0"), [&json!("4"), &json!("6")])
    );
    let error = parsed("0.2.0").unwrap_err();
    let expected = "its result is one of CNI 1.1.0, but 0.2.0 was asked for; stdout: {";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn what_is_no_result_is_shown_shortened() {
    let error = |text: &str| parsed(text).unwrap_err();
    assert_eq!(error(" \n"), "it succeeded without a result");
    assert_eq!(error("[]"), "its result is not a JSON object; stdout: []");
    assert_eq!(
        error("hello\nworld"),
        "its result is not valid JSON: expected value at line 1 column 1; stdout: hello world"
    );
    assert_eq!(
        error(r#"{"cniVersion": "7"}"#),
        "its result has a cniVersion that is not known; stdout: {\"cniVersion\": \"7\"}"
    );
    assert_eq!(error(&"z".repeat(9999)).matches('z').count(), SHOWN);
    // An error in JSON is an error, even with exit status 0.
    assert_eq!(
        error(r#"{"code": 11, "msg": "busy"}"#),
        "busy (code 11, try again later)"
    );
}

#[track_caller]
fn failed(stdout: &str, stderr: &str, expected: &str) {
    let cause = failure("exit status 1".into(), stdout.as_bytes(), stderr.as_bytes());
    assert_eq!(cause.to_string(), expected);
}

#[test]
fn a_failure_has_the_plugins_own_words_or_what_it_left() {
    failed(
        r#"{"cniVersion": "1.0.0", "code": 7, "msg": "bad subnet", "details": "10.0.0.0/31"}"#,
        "",
        "bad subnet; 10.0.0.0/31 (code 7, invalid network configuration)",
    );
    failed(
        r#"{"code": 123, "msg": "own"}"#,
        "log line\n",
        "own (code 123); stderr: log line",
    );
    failed(
        r#"{"code": 4}"#,
        "",
        "no message (code 4, invalid environment variables)",
    );
    failed("", "", "exit status 1 without an error message");
    failed(
        "oops",
        "Traceback\n  line 2",
        "exit status 1 without an error message; stdout: oops; stderr: Traceback   line 2",
    );
    let stderr = format!("{}end", "x".repeat(9999));
    let cause = failure("exit status 1".into(), b"", stderr.as_bytes()).to_string();
    assert!(cause.ends_with("xend") && cause.len() < 600, "{cause}");
}

#[test]
fn versions_are_read_as_all_plugins_write_them() {
    let supported = |text: &str| supported(text.as_bytes());
    let list = r#"{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}"#;
    assert_eq!(supported(list).unwrap(), ["0.4.0", "1.0.0"]);
    assert_eq!(
        supported(r#"{"cniVersion": "0.2.0"}"#).unwrap(),
        ["0.1.0", "0.2.0"]
    );
    assert_eq!(supported(r#"{"cniVersion": "1.0.0"}"#), None);
    assert_eq!(supported("1.0.0"), None);
}
