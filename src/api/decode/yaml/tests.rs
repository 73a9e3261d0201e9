use serde_json::json;

use super::*;

#[track_caller]
fn check(text: &str, expected: &Value) {
    let found = documents(text).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(found, std::slice::from_ref(expected), "{text}");
}

#[track_caller]
fn check_error(text: &str, line: usize, column: usize, expected: &str) {
    let at = Position { line, column };
    let error = documents(text).unwrap_err();
    assert_eq!((error.at, &*error.to_string()), (at, expected), "{text}");
}

#[test]
fn plain_scalars_mean_what_they_mean_to_kubernetes() {
    let cases = [
        ("yes", json!(true)),
        ("On", json!(true)),
        ("y", json!(true)),
        ("NO", json!(false)),
        ("off", json!(false)),
        ("yEs", json!("yEs")),
        ("~", json!(null)),
        ("Null", json!(null)),
        ("nul", json!("nul")),
        ("0644", json!(420)),
        ("0o644", json!(420)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("-12", json!(-12)),
        ("+5", json!(5)),
        ("089", json!(89)),
        ("0xZZ", json!("0xZZ")),
        ("1.5", json!(1.5)),
        ("2.0", json!(2)),
        ("1e3", json!(1000)),
        (".5", json!(0.5)),
        ("5.", json!(5)),
        ("1e", json!("1e")),
        ("-x", json!("-x")),
        ("1:30", json!("1:30")),
        ("10.0.0.1", json!("10.0.0.1")),
        ("64Mi", json!("64Mi")),
        ("2001-01-01", json!("2001-01-01")),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("99999999999999999999", json!(1e20)),
        ("!!str 5", json!("5")),
        ("!!int 5", json!(5)),
        ("!!float 5", json!(5)),
        ("\"yes\"", json!("yes")),
        ("'5'", json!("5")),
    ];
    for (text, expected) in cases {
        // A document that is only null counts as empty, so the value is tested below a key.
        check(&format!("a: {text}\n"), &json!({"a": expected}));
    }
}

#[test]
fn keys_become_texts() {
    check(
        "yes: 1\n5: 2\n\"no\": 3\n1.5: 4\n",
        &json!({"true": 1, "5": 2, "no": 3, "1.5": 4}),
    );
    check_error("~: 1\n", 1, 1, "a key must be a text");
    check_error("[a]: 1\n", 1, 1, "a key must be a text");
    let template =
        "a key must be a text; fill in a template ({{ … }}) first, as helm template does";
    check_error("a: {{ .Values.a }}\n", 1, 5, template);
}

#[test]
fn block_texts_keep_their_lines() {
    check(
        "a: |\n  one\n   two\nb: >-\n  one\n  two\nc: |+\n  x\n\n",
        &json!({"a": "one\n two\n", "b": "one two", "c": "x\n\n"}),
    );
}

#[test]
fn documents_are_separated_and_the_empty_ones_are_none() {
    let text = "# a comment\n---\n# another\n---\na: 1\n...\n---\nb: 2\n---\n~\n";
    assert_eq!(documents(text), Ok(vec![json!({"a": 1}), json!({"b": 2})]));
    assert_eq!(documents("# nothing\n"), Ok(vec![]));
}

#[test]
fn aliases_and_merges_are_written_out() {
    check(
        "base: &b {x: 1, z: 2}\nown:\n  <<: *b\n  z: 3\nlist: [*b]\n",
        &json!({"base": {"x": 1, "z": 2}, "own": {"z": 3, "x": 1}, "list": [{"x": 1, "z": 2}]}),
    );
    check(
        "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  <<: [*a, *b]\n",
        &json!({"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x": 1, "z": 3}}),
    );
    check_error(
        "a:\n  <<: 5\n",
        2,
        7,
        "<< takes an object, or a list of objects",
    );
    check_error(
        "a: &a [*a]\n",
        1,
        8,
        "the alias stands inside the value it names: write the value out",
    );
}

#[test]
fn an_anchor_ends_with_its_document() {
    let error = documents("a: &a 1\n---\nb: *a\n").unwrap_err();
    assert_eq!(error.at.line, 3, "{error:?}");
}

#[test]
fn a_billion_laughs_are_not_heard() {
    let mut text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_owned();
    for n in 1..40 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    let error = documents(&text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the aliases of the file make more than 1048576 bytes: write fewer of them"
    );
}

#[test]
fn what_json_has_not_is_an_error() {
    check_error("a: .inf\n", 1, 4, "`.inf` is no number that JSON has");
    check_error("a: !!int x\n", 1, 4, "`x` is no !!int");
    check_error(
        "a: !!binary eA==\n",
        1,
        4,
        "the tag !!binary is not known here: leave it out",
    );
    check_error(
        "a: !own {b: 1}\n",
        1,
        4,
        "the tag !own is not known here: leave it out",
    );
    // A word of the file is no word of the parser, which speaks of tabs.
    check_error(
        "a: !table x\n",
        1,
        4,
        "the tag !table is not known here: leave it out",
    );
    let deep = format!("{}1{}", "[".repeat(101), "]".repeat(101));
    check_error(&deep, 1, 101, "nested deeper than 100 levels: no object is");
    check(
        &format!("{}1{}", "[".repeat(3), "]".repeat(3)),
        &json!([[[1]]]),
    );
}

#[test]
fn a_syntax_error_has_its_place() {
    for (text, line) in [("a: b\n  c: d\n", 2), ("a: [1\nb: 2\n", 2), ("a: \"b\n", 1)] {
        let error = documents(text).unwrap_err();
        assert_eq!(error.at.line, line, "{text:?}: {error:?}");
        assert!(error.to_string().starts_with("not YAML: "), "{error:?}");
    }
}

#[test]
fn a_syntax_error_names_the_way_out() {
    let check = |text: &str, at: (usize, usize), way_out: &str| {
        let error = documents(text).unwrap_err();
        assert_eq!((error.at.line, error.at.column), at, "{error:?}");
        assert!(error.to_string().ends_with(way_out), "{text:?}: {error:?}");
    };
    let tab = "tab: indent with spaces";
    check("a:\n  - b: c\n\td: e\n", (3, 1), tab);
    check("a:\n  b: c\n  \td: e\n", (3, 3), tab);
    let tab = "(block indentation): indent with spaces";
    check("a:\n\tb: c\n", (2, 1), tab);
    let colon = ": a key ends with a colon and a space";
    check("a: b\nc:d\n", (3, 1), colon);
    let beside = ": indent this line as those beside it";
    check("a:\n- b: c\n d: e\n", (3, 2), beside);
    let quotes = "or put quotes around a text that has a colon";
    check("a: b: c\n", (1, 5), quotes);
    // An error without advice has only its own text.
    check("a: \"b\n", (1, 4), "found unexpected end of stream");
}

/// The escape `\'` is an apostrophe in a double-quoted text only, as in go-yaml. An example in Kubernetes' own
/// documentation contains this escape.
#[test]
fn an_escaped_apostrophe_is_one_in_a_double_quoted_text_only() {
    let text = r#"
a: "it\'s"
b: "\'"
c: "\'\'x\\'\x27'"
d: 'a\'
e: it\'s
f: |
  \'
g: ["\'", 'x''y', "\"\'\""]
"#;
    let read = documents(text).unwrap();
    let expected = json!({
        "a": "it's", "b": "'", "c": "''x\\'''", "d": "a\\", "e": "it\\'s", "f": "\\'\n",
        "g": ["'", "x'y", "\"'\""],
    });
    assert_eq!(read, [expected]);
    for (text, line) in [
        ("a: \"\\'\"\nb: \"\\q\"", 2),
        ("a: \"\\'", 1),
        ("a: \"\\' \\'\n", 2),
    ] {
        assert!(documents(text).unwrap_err().at.line <= line, "{text}");
    }
}
