use super::super::test_texts::{check_text, decode};
use super::*;

#[track_caller]
fn good(text: &str) -> LocalObject {
    let mut found = decode(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(found.notes, Vec::<String>::new());
    found.objects.remove(0)
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: web}\n";

#[test]
fn a_config_map_has_texts_and_bytes() {
    let text = format!(
        "{MAP}data:\n  a: one\n  b.conf: |\n    x = 1\n    y = 2\n  empty:\nbinaryData:\n  c: AAEC\nimmutable: true\n"
    );
    let LocalObject { key, content } = good(&text);
    assert_eq!(key.to_string(), "ConfigMap default/settings");
    let ObjectContent::ConfigMap(map) = content else {
        panic!("{content:?}")
    };
    let entries: Vec<_> = map.entries().collect();
    let expected: [(&str, &[u8]); 4] = [
        ("a", b"one"),
        ("b.conf", b"x = 1\ny = 2\n"),
        ("empty", b""),
        ("c", &[0, 1, 2]),
    ];
    assert_eq!(entries, expected);
    assert!(map.immutable);
}

#[test]
fn a_secret_is_decoded_and_its_texts_win() {
    let text = format!("{SECRET}data: {{a: b25l, b: dHdv}}\nstringData:\n  b: three\n");
    let LocalObject { key, content } = good(&text);
    assert_eq!(key.to_string(), "Secret web/login");
    let ObjectContent::Secret(secret) = content else {
        panic!("{content:?}")
    };
    assert_eq!(secret.type_, "Opaque");
    assert_eq!(secret.data["a"], b"one");
    assert_eq!(secret.data["b"], b"three");
    let shown = format!("{secret:?}");
    assert!(shown.contains("\"a\"") && !shown.contains("one"), "{shown}");
    assert!(!shown.contains("111, 110"), "no bytes either: {shown}");
}

#[test]
fn what_a_server_writes_into_an_object_is_of_no_meaning() {
    let text = format!(
        "{MAP}  uid: x\n  resourceVersion: \"7\"\n  creationTimestamp: null\n  managedFields: []\n  labels: {{a: b}}\ndata: {{}}\n"
    );
    good(&text);
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce]}\nstatus: {phase: Bound}\n";
    let expected = ObjectContent::PersistentVolumeClaim(Arc::default());
    assert_eq!(good(claim).content, expected);
}

#[test]
fn labels_are_kept_and_their_values_are_texts() {
    let labels = "  labels: {tier: front}\n";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: data\n";
    for text in [
        MAP,
        &SECRET.replace("{name: login, namespace: web}", "\n  name: login"),
        claim,
    ] {
        let object = good(&format!("{text}{labels}")).v1();
        assert_eq!(
            object["metadata"]["labels"],
            serde_json::json!({"tier": "front"})
        );
        let number = labels.replace("front", "1");
        let expected = "5:12: metadata.labels[tier]: Invalid value: 1: must be a text (\"...\"), not a number; write \"1\" with quotes";
        check_text(&format!("{text}{number}"), &[expected]);
    }
    let expected =
        "5:3: metadata.labels: Invalid value: [\"a\"]: must be an object ({...}), not a list";
    check_text(&format!("{MAP}  labels: [a]\n"), &[expected]);
}

#[test]
fn a_claim_to_a_block_volume_is_refused() {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  volumeMode: Block\n";
    check_text(
        claim,
        &[
            "5:3: spec.volumeMode: Forbidden: not supported: a claim is a directory, and no volume is a block volume here: mount the device as a hostPath of type BlockDevice, in a privileged container",
        ],
    );
    good(&claim.replace("Block", "Filesystem"));
}

#[test]
fn bad_data_is_told_with_its_place_and_no_secret_is_shown() {
    check_text(
        &format!("{MAP}data:\n  a: 5\n  b: [x]\n  'a/b': x\n  ..data: x\n"),
        &[
            "8:3: data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            "9:3: data[..data]: Invalid value: \"..data\": must not start with '..'",
            "6:3: data[a]: Invalid value: must be a text (\"...\"), not a number or a boolean; write it in quotes",
            "7:3: data[b]: Invalid value: must be a text (\"...\"), not a list",
        ],
    );
    check_text(
        &format!("{MAP}data: {{a: x}}\nbinaryData: {{a: eA==}}\n"),
        &["5:8: data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
    let error = decode(&format!("{SECRET}data:\n  password: hunter2!\n")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains(":5:3: data[password]: Invalid value: must be base64: ")
            && error.ends_with("encode it, or write the plain text under stringData")
            && !error.contains("hunter2"),
        "{error}"
    );
    let error = decode(&format!("{SECRET}stringData:\n  pin: 4711\n")).unwrap_err();
    assert!(!error.to_string().contains("4711"), "{error}");
}

#[test]
fn an_unknown_field_would_be_data_that_nobody_sees() {
    check_text(
        &format!("{MAP}dta: {{a: x}}\nimmutable: \"yes\"\n"),
        &[
            "6:1: immutable: Invalid value: \"yes\": must be true or false, not a text",
            "5:1: dta: unknown field: did you mean \"data\"?",
        ],
    );
    check_text(
        &format!("{MAP}template: {{}}\n"),
        &["5:1: template: unknown field: known here are data, binaryData, immutable, metadata"],
    );
}

#[test]
fn names_follow_the_rules_of_the_api() {
    check_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: A}\n",
        &[
            "3:1: metadata.name: Required value: name is needed for the ConfigMap",
            "3:12: metadata.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
}

#[test]
fn a_type_of_secret_has_its_keys() {
    let secret = |type_: &str, data: &str| format!("{SECRET}type: {type_}\nstringData: {data}\n");
    check_text(
        &secret("kubernetes.io/tls", "{tls.crt: x}"),
        &["1:1: data[tls.key]: Required value"],
    );
    let both = [
        "1:1: data[username]: Required value",
        "1:1: data[password]: Required value",
    ];
    check_text(&secret("kubernetes.io/basic-auth", "{}"), &both);
    good(&secret("kubernetes.io/basic-auth", "{password: x}"));
    check_text(
        &secret(
            "kubernetes.io/dockerconfigjson",
            "{.dockerconfigjson: \"{\"}",
        ),
        &["1:1: data[.dockerconfigjson]: Invalid value: must be JSON, as docker's config.json"],
    );
    good(&secret("example.com/own", "{}"));
}

#[test]
fn a_mebibyte_is_the_most() {
    let of = |bytes: usize| format!("{MAP}data:\n  a: {}\n", "x".repeat(bytes));
    good(&of(MOST_BYTES));
    check_text(
        &of(MOST_BYTES + 1),
        &["5:1: data: Too long: may not be more than 1048576 bytes"],
    );
}

#[test]
fn an_immutable_object_keeps_its_data() {
    let map = |more: &str| good(&format!("{MAP}{more}"));
    let fixed = map("data: {a: x}\nimmutable: true\n");
    let same = map("data: {a: x}\nimmutable: true\n");
    assert_eq!(fixed.may_become(&same), Ok(()));
    assert_eq!(
        fixed.may_become(&map("data: {a: z}\nimmutable: true\n")),
        Err("data")
    );
    assert_eq!(fixed.may_become(&map("data: {a: x}\n")), Err("immutable"));
    assert_eq!(map("data: {a: x}\n").may_become(&fixed), Ok(()));
}
