use std::fs;
use std::path::Path;

use super::*;
use crate::net::network::cni::{Loaded, load};

fn text(text: &str) -> Vec<u8> {
    // The tests use apostrophes in place of quotation marks, because apostrophes are easier to read in Rust
    // strings.
    text.replace('\'', "\"").into_bytes()
}

#[track_caller]
fn list(json: &str) -> NetworkList {
    parse_list(&text(json)).unwrap()
}

#[track_caller]
fn wrong(json: &str, expected: &str) {
    assert_eq!(parse_list(&text(json)).unwrap_err().to_string(), expected);
}

#[test]
fn a_list_is_read_and_everything_in_it_is_kept_for_the_plugins() {
    let list = list(
        "{'cniVersion': '1.0.0', 'name': 'db-net_1.x', 'disableCheck': true, 'disableGC': 'TRUE', 'other': 1,
          'plugins': [{'type': 'bridge', 'mtu': 1400, 'ipam': {'type': 'host-local'}},
                      {'type': 'portmap', 'capabilities': {'portMappings': true, 'mac': false}}]}",
    );
    assert_eq!(list.name, "db-net_1.x");
    assert_eq!(list.versions, [Version::parse("1.0.0").unwrap()]);
    assert!(list.disable_check && list.disable_gc && !list.only_inlined);
    assert_eq!(list.plugins[0].kind, "bridge");
    assert_eq!(list.plugins[0].conf["ipam"]["type"], "host-local");
    let on: Vec<_> = list.plugins[1].capabilities.iter().collect();
    assert_eq!(on, ["portMappings"]);
    let kept = list.with_version(Version::CHECK);
    assert_eq!(kept["cniVersion"], "0.4.0");
    assert_eq!(kept["plugins"][0]["mtu"], 1400);
    let again = parse_list(kept.to_string().as_bytes()).unwrap();
    assert_eq!((again.plugins, again.only_inlined), (list.plugins, true));
}

#[track_caller]
fn versions_of(fields: &str, expected: &[&str]) {
    let json = format!("{{'name': 'n', {fields} 'plugins': [{{'type': 'a'}}]}}");
    let found: Vec<_> = list(&json).versions.iter().map(|v| v.as_str()).collect();
    assert_eq!(found, expected, "{fields}");
}

#[test]
fn versions_are_those_written_that_are_known() {
    versions_of("", &["0.1.0"]);
    versions_of("'cniVersion': '',", &["0.1.0"]);
    versions_of("'cniVersion': '0.4.0',", &["0.4.0"]);
    versions_of("'cniVersions': ['1.1.0', '0.3.1'],", &["0.3.1", "1.1.0"]);
    versions_of(
        "'cniVersion': '1.0.0', 'cniVersions': ['1.0.0', '1.1.0', '9.0.0'],",
        &["1.0.0", "1.1.0"],
    );
    versions_of(
        "'cniVersion': '9.0.0', 'cniVersions': ['1.0.0'],",
        &["1.0.0"],
    );
}

#[test]
fn mistakes_are_named_by_field_value_and_way_out() {
    wrong("", "the file is empty");
    wrong(
        "name: dbnet",
        "it is not valid JSON: expected ident at line 1 column 2",
    );
    wrong("[{'type': 'bridge'}]", "must be a JSON object, not a list");
    wrong(
        "{'Name': 'n', 'plugins': [{'type': 'a'}]}",
        "name: Required value: the name of the network; it has \"Name\": keys are case-sensitive",
    );
    wrong(
        "{'name': 7, 'plugins': [{'type': 'a'}]}",
        "name: Invalid value: 7: must be a string, not a number",
    );
    wrong(
        "{'name': '../n', 'plugins': [{'type': 'a'}]}",
        "name: Invalid value: \"../n\": must begin with a letter or digit and have only letters, digits, '_', '.' and '-' after it",
    );
    wrong(
        "{'name': 'n', 'cniVersion': 1.0, 'plugins': [{'type': 'a'}]}",
        "cniVersion: Invalid value: 1.0: must be a string, not a number",
    );
    wrong(
        "{'name': 'n', 'cniVersion': '1.0', 'plugins': [{'type': 'a'}]}",
        "cniVersion: Unsupported value: \"1.0\": supported values: \"0.1.0\", \"0.2.0\", \"0.3.0\", \"0.3.1\", \"0.4.0\", \"1.0.0\", \"1.1.0\"",
    );
    wrong(
        "{'name': 'n', 'cniVersions': ['1.0.0', 'new'], 'plugins': [{'type': 'a'}]}",
        "cniVersions[1]: Invalid value: \"new\": must be a string such as \"1.1.0\"",
    );
    wrong(
        "{'name': 'n', 'cniVersions': '1.0.0', 'plugins': [{'type': 'a'}]}",
        "cniVersions: Invalid value: \"1.0.0\": must be a list of strings",
    );
    wrong(
        "{'name': 'n', 'cniVersions': ['2.0.0'], 'plugins': [{'type': 'a'}]}",
        "cniVersions: Unsupported value: [\"2.0.0\"]: supported values: \"0.1.0\", \"0.2.0\", \"0.3.0\", \"0.3.1\", \"0.4.0\", \"1.0.0\", \"1.1.0\"",
    );
    wrong(
        "{'name': 'n', 'disableCheck': 'yes', 'plugins': [{'type': 'a'}]}",
        "disableCheck: Invalid value: \"yes\": must be true or false",
    );
    wrong(
        "{'name': 'n', 'plugins': []}",
        "plugins: Required value: at least one plugin",
    );
    wrong(
        "{'name': 'n', 'plugins': {'type': 'a'}}",
        "plugins: Invalid value: {\"type\":\"a\"}: must be a list of objects, not an object",
    );
    wrong(
        "{'name': 'n', 'loadOnlyInlinedPlugins': true}",
        "plugins: Required value: loadOnlyInlinedPlugins is true, so the plugins must be in this list",
    );
    wrong(
        "{'name': 'n', 'type': 'bridge'}",
        "type: Forbidden: this is the configuration of one plugin: put it into the list \"plugins\", or rename the file so that it ends in .conf",
    );
}

#[test]
fn mistakes_of_plugins_are_all_named() {
    wrong(
        "{'name': 'n', 'plugins': [{'typ': 'a'}, 'b', {'type': '/bin/c'}, {'type': 'd', 'capabilities': {'mac': 'true'}},
          {'type': 'e', 'capabilities': ['mac']}]}",
        "plugins[0].type: Required value: the name of the plugin's program; it has \"typ\": keys are case-sensitive; \
         plugins[1]: Invalid value: \"b\": must be an object, not a string; \
         plugins[2].type: Invalid value: \"/bin/c\": must be the name of a program in the plugin directories, without a path; \
         plugins[3].capabilities.mac: Invalid value: \"true\": must be true or false; \
         plugins[4].capabilities: Invalid value: [\"mac\"]: must be an object such as {\"portMappings\": true}",
    );
}

#[track_caller]
fn loaded(dir: &Path) -> Loaded {
    load(dir).unwrap().unwrap()
}

fn put(dir: &Path, name: &str, json: &str) {
    fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
    fs::write(dir.join(name), text(json)).unwrap();
}

#[test]
fn the_first_file_by_name_is_the_network_and_a_bad_one_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(load(&dir.join("none")).unwrap().is_none());
    put(dir, "00-readme.txt", "no configuration");
    put(dir, "05-directory.conf/x", "");
    assert!(load(dir).unwrap().is_none());
    put(
        dir,
        "20.conf",
        "{'name': 'twenty', 'type': 'bridge', 'cniVersion': '0.3.1'}",
    );
    let found = loaded(dir);
    assert_eq!(
        (found.list.name.as_str(), found.file),
        ("twenty", dir.join("20.conf"))
    );
    assert_eq!(found.list.plugins[0].kind, "bridge");
    put(
        dir,
        "10.conflist",
        "{'name': 'ten', 'plugins': [{'type': 'ptp'}]}",
    );
    assert_eq!(loaded(dir).list.name, "ten");
    put(dir, "09.json", "{'name': 'nine', 'type': 'ptp'}");
    assert_eq!(loaded(dir).list.name, "nine");
    put(
        dir,
        "08.conf",
        "{'name': 'eight', 'plugins': [{'type': 'ptp'}]}",
    );
    let error = load(dir).unwrap_err().to_string();
    let expected = "08.conf: plugins: Forbidden: this is a list of plugins: rename the file so that it ends in .conflist";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn plugins_in_files_of_their_own_follow_those_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, "1.conflist", "{'name': 'n'}");
    let error = load(dir).unwrap_err().to_string();
    assert!(
        error.contains("no .conf file in") && error.ends_with("/n"),
        "{error}"
    );
    put(dir, "n/2.conf", "{'type': 'second'}");
    put(dir, "n/1.conf", "{'type': 'first'}");
    put(dir, "n/0.json", "{'type': 'never'}");
    let kinds = |dir| {
        let plugins = loaded(dir).list.plugins;
        plugins.into_iter().map(|p| p.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(dir), ["first", "second"]);
    put(
        dir,
        "1.conflist",
        "{'name': 'n', 'plugins': [{'type': 'zero'}]}",
    );
    assert_eq!(kinds(dir), ["zero", "first", "second"]);
    put(
        dir,
        "1.conflist",
        "{'name': 'n', 'loadOnlyInlinedPlugins': true, 'plugins': [{'type': 'zero'}]}",
    );
    assert_eq!(kinds(dir), ["zero"]);
    put(
        dir,
        "1.conflist",
        "{'name': 'n', 'plugins': [{'type': 'zero'}]}",
    );
    put(dir, "n/1.conf", "{}");
    let error = load(dir).unwrap_err().to_string();
    let expected = "/n/1.conf: type: Required value: the name of the plugin's program";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn what_is_no_file_or_too_long_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("1.conf");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = || load(dir.path()).unwrap_err().problem.to_string();
    assert_eq!(error(), "it is not a regular file");
    fs::remove_file(&file).unwrap();
    fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    assert_eq!(error(), "it has more than 1048576 bytes");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    assert_eq!(
        error(),
        "cannot read it: No such file or directory (os error 2)"
    );
}
