use serde_json::json;

use super::*;

fn list() -> Value {
    json!({"kind": "List", "items": [
        {"metadata": {"name": "a", "labels": {"app.io/x": "1", "tier": "web"}}, "n": 3, "ok": true, "ports": [80, 81, 82, 83]},
        {"metadata": {"name": "b", "labels": {"tier": "db"}}, "n": 1.5, "ok": false, "ports": [], "gone": null},
        {"metadata": {"name": "c"}, "n": -2, "image": "x:1"}]})
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let rendered = Template::parse(template).and_then(|t| t.render(&list()));
    assert_eq!(rendered, Ok(expected.to_owned()), "{template}");
}

#[track_caller]
fn check_error(template: &str, at: usize, why: &str) {
    let error = Template::parse(template).and_then(|t| t.render(&list()));
    let error = error.expect_err(template);
    assert_eq!((error.at, error.why.as_str()), (at, why), "{template}");
}

/// A backslash at the end of a template is an error, because a backslash needs a next character.
#[test]
fn a_backslash_at_the_end_is_an_error() {
    check_error(r"{.a\", 5, "nothing stands after \\");
    for whole in [
        "{.items[?(@.n>1)].metadata.name}",
        "{range .items[*]}{.n}{end}",
        "{.a['b'][0:2]}",
    ] {
        for end in 0..whole.len() {
            let cut = format!("{}\\", &whole[..end]);
            let _ = Template::parse(&cut);
        }
    }
}

#[test]
fn fields_are_found_and_what_is_missing_is_nothing() {
    check("{.kind}", "List");
    check(
        "{$.kind} and {@.kind} and {.nothing.at.all}!",
        "List and List and !",
    );
    check("{.items[*].metadata.name}", "a b c");
    check("{.items[*].gone}{.items[*].ok}", "nulltrue false");
    check("{['kind']}{[\"kind\"]}", "ListList");
    check(r"{.items[0].metadata.labels.app\.io/x}", "1");
    check(r"{.items[0].metadata.labels['app\.io/x']}", "1");
    check("{.items[0]['metadata.name']}", "a");
    check(
        "{.items[1].metadata}",
        r#"{"name":"b","labels":{"tier":"db"}}"#,
    );
    check("{.items[0].ports}{}", "[80,81,82,83]");
    check(
        "{.items[0].metadata.*}",
        r#"a {"app.io/x":"1","tier":"web"}"#,
    );
    check("{.items[*] .metadata .name}", "a b c");
}

#[test]
fn lists_have_indexes_slices_and_unions() {
    check("{.items[1].metadata.name}{.items[-1].metadata.name}", "bc");
    check("{.items[0].ports[1:3]}", "81 82");
    check(
        "{.items[0].ports[:2]} {.items[0].ports[2:]} {.items[0].ports[-1:]}",
        "80 81 82 83 83",
    );
    check("{.items[0].ports[:-1]}", "80 81 82");
    check(
        "{.items[0].ports[::2]} {.items[0].ports[1:4:2]}",
        "80 82 81 83",
    );
    check(
        "{.items[0].ports[2:2]}{.items[1].gone[0]}{.items[1].ports[:]}",
        "",
    );
    check("{.items[0].ports[0,3]}", "80 83");
    check("{.items[*]['metadata.name', 'n']}", "a b c 3 1.5 -2");
    check_error(
        "{.items[5]}",
        8,
        "array index out of bounds: index 5, length 3",
    );
    check_error(
        "{.items[-4]}",
        8,
        "array index out of bounds: index -4, length 3",
    );
    check_error(
        "{.items[0:4]}",
        8,
        "array index out of bounds: index 4, length 3",
    );
    check_error(
        "{.items[2:1]}",
        8,
        "the slice begins at 2 and ends before it, at 1",
    );
    check_error(
        "{.kind[0]}",
        7,
        "what stands before the brackets is no list",
    );
}

#[test]
fn two_dots_search_at_any_depth() {
    check("{..name}", "a b c");
    check("{.items..tier}", "web db");
    check("{.items[0]..labels.tier}", "web");
}

#[test]
fn filters_compare_or_ask_whether_it_is_there() {
    let names = |filter: &str, expected: &str| {
        check(&format!("{{.items[?({filter})].metadata.name}}"), expected)
    };
    names("@.metadata.name==\"b\"", "b");
    names("@.metadata.name == 'b'", "b");
    names("@.metadata.name!='b'", "a c");
    names("@.n>1", "a b");
    names("@.n>=1.5", "a b");
    names("@.n<=-2", "c");
    names("@.n<0", "c");
    names("@.ok==true", "a");
    names("@.ok!=true", "b");
    names("@.gone==null", "b");
    names("'web'==@.metadata.labels.tier", "a");
    names("@.image", "c");
    names("@.gone", "b");
    names("@.metadata.name==3", "");
    names("@.metadata.name!=3", "a b c");
    names("@.metadata.name>3", "");
    names("@.ports[?(@>82)]", "a");
    check_error(
        "{.metadata}{.kind[?(@.x)]}",
        18,
        "what stands before the brackets is no list",
    );
    check_error(
        "{.items[?(@.ports[*]==1)]}",
        8,
        "can only compare one element at a time",
    );
}

#[test]
fn ranges_repeat_what_stands_in_them() {
    check(
        "{range .items[*]}{.metadata.name}{\"\\t\"}{.n}{'\\n'}{end}.",
        "a\t3\nb\t1.5\nc\t-2\n.",
    );
    check(
        "{range .items[*]}{range .ports[*]}<{.}>{end};{end}",
        "<80><81><82><83>;;;",
    );
    check("{range .nothing[*]}x{end}y", "y");
    check(r#"{"a \"b\" \\"}{'it\'s'}"#, r#"a "b" \it's"#);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    check_error("{.a", 4, "'}' is missing at the end");
    check_error(
        "x{.a[}",
        6,
        "brackets take *, 'key', an index, a slice such as 0:2, or ?(filter)",
    );
    check_error(
        "{.a[b]}",
        5,
        "brackets take *, 'key', an index, a slice such as 0:2, or ?(filter)",
    );
    check_error("{.a[1}", 6, "']' is wanted here, not '}'");
    check_error("{.a['x]}", 5, "the key that begins here has no closing '");
    check_error("{\"x}", 2, "the text that begins here has no closing \"");
    check_error("{\"\\q\"}", 4, "after \\ stands n, t, r, \\ or \"");
    check_error(
        "{metadata.name}",
        2,
        "unknown word 'metadata'; a field is written with a dot, .metadata",
    );
    check_error("{end}", 1, "{end} without a {range …} before it");
    check_error("{range .items[*]}x", 19, "a {range …} has no {end}");
    check_error("{...a}", 4, "three dots; .. searches at any depth");
    check_error("{.a[::0]}", 7, "the step of a slice must be 1 or more");
    check_error("{.a[1-2]}", 5, "'1-2' is no index");
    check_error(
        "{.a[?(@.b=~'x')]}",
        10,
        "'=' is no operator here; a filter has one of == != < <= > >=",
    );
    check_error(
        "{.a[?(@.b==x)]}",
        12,
        "a filter takes @.path, a quoted text, a number, true, false or null",
    );
    check_error(
        "{.a[?('x')]}",
        7,
        "a filter compares with == != < <= > or >=",
    );
    let error = Template::parse("{.a").unwrap_err().to_string();
    assert_eq!(error, "jsonpath, character 4: '}' is missing at the end");
}

#[test]
fn templates_are_bounded() {
    let long = "x".repeat(MAX_TEMPLATE);
    assert!(Template::parse(&long).is_ok());
    check_error(
        &format!("{long}x"),
        1,
        "the template has 4097 bytes; 4096 at most",
    );
    let nested = |n: usize| format!("{}{}", "{range .a[*]}".repeat(n), "{end}".repeat(n));
    assert!(Template::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(Template::parse(&nested(MAX_DEPTH + 1)).is_err());
    let filters = |n: usize| format!("{{{}{}}}", "[?(@".repeat(n), ")]".repeat(n));
    assert!(Template::parse(&filters(MAX_DEPTH)).is_ok());
    assert!(Template::parse(&filters(MAX_DEPTH + 1)).is_err());
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner, [1]]));
    let many = Template::parse("{..[*]..[*]..[*]..[*]..[*]}").unwrap();
    let error = many.render(&deep).unwrap_err();
    assert_eq!(error.why, "finds more than 100000 values");
}

#[test]
fn a_path_may_leave_out_braces_and_dot() {
    let value = list();
    for path in [
        "{.items[0].metadata.name}",
        ".items[0].metadata.name",
        "items[0].metadata.name",
    ] {
        let path = Path::parse(path).unwrap();
        assert_eq!(path.find(&value).unwrap(), [&json!("a")]);
    }
    for (path, at) in [
        ("", 1),
        ("{}", 2),
        ("{.a", 4),
        (".a}", 3),
        ("{.a}{.b}", 5),
        ("'a'", 1),
    ] {
        assert_eq!(Path::parse(path).map_err(|e| e.at), Err(at), "{path}");
    }
}
