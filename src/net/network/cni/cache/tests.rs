use serde_json::json;

use super::*;

fn entry(network: &str, id: &str, result: Option<Value>) -> Entry {
    let text = format!(
        r#"{{"name": "{network}", "cniVersion": "1.0.0", "plugins": [{{"type": "p", "key": [1]}}]}}"#
    );
    let mut list = conf::parse_list(text.as_bytes()).unwrap();
    list.only_inlined = true;
    Entry {
        list,
        file: "/etc/cni/net.d/1.conflist".into(),
        attachment: Attachment {
            container_id: id.into(),
            netns: "/proc/7/ns/net".into(),
            args: vec![("K8S_POD_NAME".into(), "web".into())],
            capabilities: Map::from_iter([("bandwidth".to_owned(), json!({"ingressRate": 5}))]),
        },
        namespace: "4:17".into(),
        result,
    }
}

fn found(cache: &Cache, id: Option<&str>) -> Vec<(String, String, bool)> {
    let found = cache.find(id).unwrap().into_iter();
    let found = found.map(|f| (f.network, f.container_id, f.entry.is_some()));
    found.collect()
}

#[test]
fn an_entry_is_read_as_it_was_written_and_found_by_its_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::below(dir.path());
    assert!(cache.find(None).unwrap().is_empty());
    let first = entry("db-net", "a1", Some(json!({"ips": []})));
    cache.write(&first).unwrap();
    cache.write(&entry("other", "b2", None)).unwrap();
    let of_a1 = cache.find(Some("a1")).unwrap().remove(0);
    assert_eq!(of_a1.entry, Some(first));
    assert_eq!(found(&cache, None).len(), 2);
    assert_eq!(
        found(&cache, Some("b2")),
        [("other".into(), "b2".into(), true)]
    );
    Cache::remove(&of_a1.path).unwrap();
    Cache::remove(&of_a1.path).unwrap();
    assert!(found(&cache, Some("a1")).is_empty());
}

#[test]
fn the_file_is_one_of_libcni() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::below(dir.path());
    cache
        .write(&entry("n", "a1", Some(json!({"ips": []}))))
        .unwrap();
    let text = fs::read_to_string(dir.path().join("results/n-a1-eth0")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let config = STANDARD
        .decode(file["config"].take().as_str().unwrap())
        .unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["plugins"], json!([{"type": "p", "key": [1]}]));
    assert_eq!(
        file,
        json!({
            "kind": "cniCacheV1", "containerId": "a1", "config": null, "ifName": "eth0", "networkName": "n",
            "netns": "/proc/7/ns/net", "cniArgs": [["K8S_POD_NAME", "web"]],
            "capabilityArgs": {"bandwidth": {"ingressRate": 5}}, "result": {"ips": []},
            "podprobe": {"file": "/etc/cni/net.d/1.conflist", "namespace": "4:17"},
        })
    );
}

#[test]
fn damaged_files_are_found_by_their_names_and_foreign_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::below(dir.path());
    cache.write(&entry("n", "a1", None)).unwrap();
    fs::write(cache.path("n", "c3"), "{").unwrap();
    // The name of a cache file must agree with the content. A copy under the name of another sandbox counts as
    // damaged.
    fs::copy(cache.path("n", "a1"), cache.path("n", "d4")).unwrap();
    fs::write(dir.path().join("results/n-a1-eth0.tmp"), "{").unwrap();
    fs::write(dir.path().join("results/eth0"), "{").unwrap();
    let expected = [("a1", true), ("c3", false), ("d4", false)];
    let expected = expected.map(|(id, whole)| ("n".to_owned(), id.to_owned(), whole));
    assert_eq!(found(&cache, None), expected);
    cache.sweep();
    assert!(!dir.path().join("results/n-a1-eth0.tmp").exists());
    assert_eq!(found(&cache, None), expected);
}
