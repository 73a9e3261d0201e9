use super::file::parse as parse_file;
use super::*;

fn parse(bytes: &[u8]) -> Result<File, String> {
    parse_file(bytes).map_err(|e| e.to_string())
}

#[track_caller]
fn check_error(json: &str, expected: &str) {
    assert_eq!(parse(json.as_bytes()).map(drop), Err(expected.into()));
}

fn resolve(json: &str, root: &str, overrides: &Overrides) -> Result<Settings, String> {
    parse(json.as_bytes())
        .unwrap()
        .resolve(&Layout::new(root), overrides, "Host1", || None)
        .map_err(|e| e.to_string())
}

#[test]
fn podprobe_answers_names_unless_others_are_named_or_there_is_no_domain() {
    let mut settings = Settings {
        service_cidrs: ["10.96.0.0/16", "fd00:96::/112"]
            .map(|c| c.parse().unwrap())
            .into(),
        ..Settings::default()
    };
    let own = ["10.96.0.10", "fd00:96::a"].map(|ip| ip.parse::<IpAddr>().unwrap());
    assert_eq!(settings.node_dns().own_dns, own);
    settings.cluster_dns = vec!["192.0.2.53".parse().unwrap()];
    let dns = settings.node_dns();
    assert_eq!(
        (dns.own_dns, dns.cluster.servers),
        (vec![], settings.cluster_dns.clone())
    );
    settings.cluster_dns.clear();
    settings.cluster_domain.clear();
    assert!(settings.node_dns().own_dns.is_empty());
}

/// The cluster has names of its own, at addresses that podprobe would shadow.
#[test]
fn a_node_of_a_cluster_answers_no_names() {
    let mut settings = Settings::default();
    assert!(!settings.own_dns().is_empty());
    settings.kubeconfig = Some("/etc/podprobe/kubeconfig".into());
    assert!(settings.own_dns().is_empty());
}

#[test]
fn taints_are_checked() {
    let of = |taint: &str| format!("{{\"registerWithTaints\": [{taint}]}}");
    let good = of(r#"{"key": "example.com/edge", "effect": "NoSchedule"}"#);
    let settings = resolve(&good, "/", &Overrides::default()).unwrap();
    assert_eq!(settings.register_with_taints[0].key, "example.com/edge");
    for (taint, said) in [
        (
            r#"{"key": "a b", "effect": "NoSchedule"}"#,
            "taint \"a b\": name part must consist",
        ),
        (
            r#"{"key": "a", "value": "b c", "effect": "NoSchedule"}"#,
            "taint \"a\": a valid label must be",
        ),
        (
            r#"{"key": "a", "effect": "Never"}"#,
            "taint \"a\": effect \"Never\" is none of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (r#"{"key": "a"}"#, "missing field `effect`"),
    ] {
        let error = parse(of(taint).as_bytes()).map(drop).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_shipped_file_has_every_key_with_its_default() {
    let defaults = Settings {
        node_name: "host1".into(),
        ..Settings::default()
    };
    assert_eq!(
        resolve(SHIPPED, "/", &Overrides::default()),
        Ok(defaults.clone())
    );
    assert_eq!(resolve("{}", "/", &Overrides::default()), Ok(defaults));
    let shipped: serde_json::Value = serde_json::from_str(SHIPPED).unwrap();
    let keys = |v: &serde_json::Value| {
        v.as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<std::collections::BTreeSet<_>>()
    };
    // The error of serde for an unknown key names every known key.
    let known = |json: &str| {
        let text = serde_json::from_str::<File>(json).unwrap_err().to_string();
        text.split('`')
            .skip(3)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(keys(&shipped), known("{\"-\": 1}"));
    assert_eq!(
        keys(&shipped["crashLoopBackOff"]),
        known("{\"crashLoopBackOff\": {\"-\": 1}}")
    );
    assert_eq!(
        keys(&shipped["memorySwap"]),
        known("{\"memorySwap\": {\"-\": 1}}")
    );
    assert_eq!(
        keys(&shipped["authentication"]),
        known("{\"authentication\": {\"-\": 1}}")
    );
    assert_eq!(
        keys(&shipped["authentication"]["x509"]),
        known("{\"authentication\": {\"x509\": {\"-\": 1}}}")
    );
    assert_eq!(
        keys(&shipped["authentication"]["webhook"]),
        known("{\"authentication\": {\"webhook\": {\"-\": 1}}}")
    );
    assert_eq!(
        keys(&shipped["authorization"]),
        known("{\"authorization\": {\"-\": 1}}")
    );
    assert_eq!(
        keys(&shipped["authorization"]["webhook"]),
        known("{\"authorization\": {\"webhook\": {\"-\": 1}}}")
    );
}

#[test]
fn what_is_in_force_has_every_key_and_no_password() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let file = dir.path().join("c.json");
    let text = r#"{"maxPods": 7, "nodeLabels": {"a": "b"}, "runtime": null,
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}, "staticPodURL": "https://h/p",
        "staticPodURLHeader": {"Authorization": ["Bearer secret"]}}"#;
    fs::write(&file, text).unwrap();
    let overrides = Overrides {
        static_pod_path: Some("/p".into()),
        node_name: Some("edge".into()),
        runtime: Some(RuntimeChoice::Path("/usr/bin/crun".into())),
        ..Overrides::default()
    };
    let settings = Settings::load(&layout, Some(&file), &overrides).unwrap();
    let all = settings.in_force();
    let shipped: Value = serde_json::from_str(SHIPPED).unwrap();
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&all), keys(&shipped));
    assert_eq!(all["maxPods"], 7);
    assert_eq!(all["nodeLabels"], json!({"a": "b"}));
    let period = &all["crashLoopBackOff"]["maxContainerRestartPeriod"];
    assert_eq!(period, "10s");
    assert_eq!(all["syncFrequency"], "60s", "a default");
    assert_eq!(all["staticPodPath"], "/p");
    assert_eq!(
        (&all["nodeName"], &all["runtime"]),
        (&json!("edge"), &json!("/usr/bin/crun"))
    );
    assert_eq!(
        all["staticPodURLHeader"],
        json!({"Authorization": ["*****"]})
    );
    assert!(!all.to_string().contains("secret"), "{all}");
}

#[test]
fn a_port_needs_tls_and_a_way_to_know_clients_by() {
    let of = |json: &str| resolve(json, "/", &Overrides::default());
    check_error(
        r#"{"readOnlyPort": 65536}"#,
        "readOnlyPort: 65536 is out of range: allowed are 1 to 65535, and 0 for nowhere at line 1 column 2",
    );
    let nobody = "port 10250 needs authentication.x509.clientCAFile or authentication.bearerTokenFile: without one of them nobody could be let in";
    assert_eq!(of(r#"{"port": 10250}"#).unwrap_err(), nobody);
    for half in [r#""tlsCertFile": "/c""#, r#""tlsPrivateKeyFile": "/k""#] {
        let refused = of(&format!("{{{half}}}")).unwrap_err();
        assert!(
            refused.starts_with("tlsCertFile and tlsPrivateKeyFile belong together"),
            "{refused}"
        );
    }
    let tls = r#""port": 10250, "tlsCertFile": "/c", "tlsPrivateKeyFile": "/k""#;
    assert_eq!(of(&format!("{{{tls}}}")).unwrap_err(), nobody);
    let made = r#"{"port": 10250, "authentication": {"bearerTokenFile": "/t"}}"#;
    assert_eq!(of(made).unwrap().tls_cert_file, None);
    for known in [
        r#""x509": {"clientCAFile": "/a"}"#,
        r#""bearerTokenFile": "/t""#,
    ] {
        let settings = of(&format!(r#"{{{tls}, "authentication": {{{known}}}}}"#)).unwrap();
        assert_eq!(settings.port, Some(10250));
    }
    let off = of(r#"{"healthzPort": 0, "port": 0, "readOnlyPort": 0}"#).unwrap();
    assert_eq!(
        (off.healthz_port, off.port, off.read_only_port),
        (None, None, None)
    );
}

#[test]
fn in_a_cluster_the_api_server_is_asked_about_clients() {
    let of = |json: &str| resolve(json, "/", &Overrides::default());
    let seen = |json: &str| {
        let s = of(json).unwrap();
        (s.token_webhook, s.authorization_mode)
    };
    assert_eq!(seen("{}"), (false, AuthorizationMode::AlwaysAllow));
    let cluster = r#""kubeconfig": "/k""#;
    let with = |more: &str| format!("{{{cluster}, \"port\": 10250{more}}}");
    assert_eq!(seen(&with("")), (true, AuthorizationMode::Webhook));
    let all = r#", "authorization": {"mode": "AlwaysAllow"}"#;
    assert_eq!(seen(&with(all)), (true, AuthorizationMode::AlwaysAllow));
    let off = r#", "authentication": {"webhook": {"enabled": false}, "bearerTokenFile": "/t"}"#;
    assert_eq!(seen(&with(off)), (false, AuthorizationMode::Webhook));
    let nobody = r#", "authentication": {"webhook": {"enabled": false}}"#;
    let refused = of(&with(nobody)).unwrap_err();
    assert!(refused.contains("nobody could be let in"), "{refused}");
    for (alone, key) in [
        (r#"{"proxyKubeconfig": "/k"}"#, "proxyKubeconfig"),
        (
            r#"{"authentication": {"webhook": {"enabled": true}}}"#,
            "authentication.webhook.enabled",
        ),
        (
            r#"{"authorization": {"mode": "Webhook"}}"#,
            "authorization.mode Webhook",
        ),
    ] {
        let refused = of(alone).unwrap_err();
        let expected =
            format!("{key} needs kubeconfig: a node that stands alone has no API server to ask");
        assert_eq!(refused, expected);
    }
    check_error(
        r#"{"authorization": {"mode": "RBAC"}}"#,
        "authorization.mode: \"RBAC\" is neither \"Webhook\" nor \"AlwaysAllow\" at line 1 column 20",
    );
    let times = r#"{"authentication": {"webhook": {"cacheTTL": "1s"}},
        "authorization": {"webhook": {"cacheAuthorizedTTL": "2s", "cacheUnauthorizedTTL": "0s"}}}"#;
    let lifetimes = of(times).unwrap().review_lifetimes();
    let seconds = [
        lifetimes.token,
        lifetimes.authorized,
        lifetimes.unauthorized,
    ];
    assert_eq!(seconds.map(|time| time.as_secs()), [1, 2, 0]);
    let defaults = Settings::default().review_lifetimes();
    assert_eq!(defaults, Lifetimes::default());
}

#[test]
fn health_is_asked_for_at_an_address_with_a_port_or_nowhere() {
    let read = |at: &str| {
        let json = format!(r#"{{"healthzBindAddress": "{at}"}}"#);
        let settings = resolve(&json, "/", &Overrides::default()).unwrap();
        let at = settings.healthz_bind_address;
        at.map(|at| at.to_string()).unwrap_or_default()
    };
    for (text, expected) in [
        ("", ""),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("[::1]:65535", "[::1]:65535"),
        ("192.0.2.1", "192.0.2.1:10256"),
        ("::", "[::]:10256"),
    ] {
        assert_eq!(read(text), expected);
    }
    for bad in [
        "localhost:1",
        ":1",
        "1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "[::1]",
        " ",
    ] {
        check_error(
            &format!(r#"{{"healthzBindAddress": "{bad}"}}"#),
            &format!(
                "healthzBindAddress: \"{bad}\" is not an address with a port such as \"127.0.0.1:10256\" or \"[::1]:10256\"; empty is nowhere at line 1 column 2"
            ),
        );
    }
}

#[test]
fn the_resolver_and_the_cluster_s_names() {
    let read = |json: &str| resolve(json, "/", &Overrides::default()).unwrap();
    let s = read(
        r#"{"resolvConf": "", "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local."}"#,
    );
    assert_eq!(s.resolv_conf, None);
    assert_eq!(s.cluster_dns, ["10.96.0.10".parse::<IpAddr>().unwrap()]);
    assert_eq!(s.cluster_domain, "cluster.local");
    let classes = read(r#"{"runtimeClasses": {"crun": "/usr/bin/crun"}}"#).runtime_classes;
    assert_eq!(classes["crun"], RuntimeChoice::Path("/usr/bin/crun".into()));
    assert_eq!(read("{}").resolv_conf, Some("/etc/resolv.conf".into()));
    check_error(
        r#"{"clusterDNS": ["dns"]}"#,
        "clusterDNS: \"dns\" is not an IP address at line 1 column 2",
    );
}

#[test]
fn the_node_has_labels_and_a_number_of_pods() {
    let settings = resolve(
        "{\"maxPods\": 5, \"nodeLabels\": {\"example.com/disk\": \"ssd\"}}",
        "/",
        &Overrides::default(),
    )
    .unwrap();
    assert_eq!(settings.max_pods, 5);
    assert_eq!(settings.node_labels["example.com/disk"], "ssd");
    check_error(
        "{\"maxPods\": 0}",
        "maxPods: 0 is out of range: allowed are 1 to 1000000 at line 1 column 2",
    );
    let error = parse(b"{\"nodeLabels\": {\"a b\": \"c\"}}").unwrap_err();
    assert!(
        error.starts_with("nodeLabels: a b=c is not a label: name part must"),
        "{error}"
    );
}

#[test]
fn the_resources_of_pods_have_the_kubelet_s_keys() {
    let of = |json: &str| {
        let s = resolve(json, "/", &Overrides::default()).unwrap();
        (s.pod_pids_limit, s.single_process_oom_kill, s.swap_behavior)
    };
    let (no, limited) = (SwapBehavior::NoSwap, SwapBehavior::LimitedSwap);
    assert_eq!(of("{\"podPidsLimit\": -1}"), (None, None, no));
    let all = "{\"podPidsLimit\": 512, \"singleProcessOOMKill\": true, \"memorySwap\": {\"swapBehavior\": \"LimitedSwap\"}}";
    assert_eq!(of(all), (Some(512), Some(true), limited));
    assert_eq!(of("{\"memorySwap\": {\"swapBehavior\": \"\"}}").2, no);
    let refusal = check_oom_kill(Some(false), false).unwrap_err().to_string();
    assert!(refusal.contains("cgroups v1"), "{refusal}");
    for (single, v2) in [(Some(false), true), (Some(true), false), (None, false)] {
        assert!(check_oom_kill(single, v2).is_ok());
    }
}

#[test]
fn image_pulls_are_serial_unless_a_number_is_given() {
    let pulls =
        |json: &str| resolve(json, "/", &Overrides::default()).map(|s| s.parallel_image_pulls());
    assert_eq!(pulls("{}"), Ok(Parallel::Serial));
    assert_eq!(
        pulls(r#"{"maxParallelImagePulls": 1}"#),
        Ok(Parallel::Serial)
    );
    assert_eq!(
        pulls(r#"{"maxParallelImagePulls": 3}"#),
        Ok(Parallel::AtMost(3))
    );
    assert_eq!(
        pulls(r#"{"serializeImagePulls": false}"#),
        Ok(Parallel::Unlimited)
    );
    assert!(pulls(r#"{"serializeImagePulls": true, "maxParallelImagePulls": 2}"#).is_err());
    check_error(
        r#"{"maxParallelImagePulls": 0}"#,
        "maxParallelImagePulls: 0 is out of range: allowed are 1 to 1000 at line 1 column 2",
    );
    let error = parse(br#"{"registries": {"hosts": {"r": {"plainHttp": true}}}}"#).unwrap_err();
    assert!(error.contains("did you mean \"plainHTTP\"?"), "{error}");
}

#[test]
fn critical_pods_have_a_part_of_the_time_of_a_shutdown() {
    let times = |json: &str| {
        let settings = resolve(json, "/", &Overrides::default())?;
        let grace = settings.shutdown_grace();
        let critical = grace.critical.as_secs();
        let shown = &settings.in_force()["shutdownGracePeriodCriticalPods"];
        assert_eq!(*shown, format!("{critical}s"));
        Ok::<_, String>((grace.all.as_secs(), critical))
    };
    assert_eq!(times("{}"), Ok((30, 10)));
    assert_eq!(times(r#"{"shutdownGracePeriod": "5s"}"#), Ok((5, 5)));
    assert_eq!(times(r#"{"shutdownGracePeriod": "0s"}"#), Ok((0, 0)));
    let both = r#"{"shutdownGracePeriod": "50s", "shutdownGracePeriodCriticalPods": "0s"}"#;
    assert_eq!(times(both), Ok((50, 0)));
    let error = times(r#"{"shutdownGracePeriodCriticalPods": "31s"}"#).unwrap_err();
    assert_eq!(
        error,
        "shutdownGracePeriodCriticalPods is a part of shutdownGracePeriod, and 31s is more than 30s: set one of them, or both"
    );
    check_error(
        r#"{"shutdownGracePeriod": "61m"}"#,
        "shutdownGracePeriod: 1h1m0s is out of range: allowed are 0s to 1h0m0s at line 1 column 2",
    );
}

#[test]
fn errors_name_key_place_and_range() {
    check_error(
        "{\n \"syncFrequncy\": \"1s\"}",
        "syncFrequncy: unknown key \"syncFrequncy\", did you mean \"syncFrequency\"? at line 2 column 2",
    );
    check_error(
        "{\"syncFrequency\": \"10ms\"}",
        "syncFrequency: 10ms is out of range: allowed are 1s to 24h0m0s at line 1 column 2",
    );
    check_error(
        "{\"crashLoopBackOff\": {\"maxContainerRestartPeriod\": \"301s\"}}",
        "crashLoopBackOff.maxContainerRestartPeriod: 5m1s is out of range: allowed are 1s to 5m0s at line 1 column 23",
    );
    check_error(
        "{\"containerLogMaxFiles\": 1}",
        "containerLogMaxFiles: 1 is out of range: allowed are 2 to 1000 at line 1 column 2",
    );
}

#[test]
fn wrong_values_are_refused() {
    for json in [
        r#"{"fileCheckFrequency": "99ms"}"#,
        r#"{"fileCheckFrequency": "20"}"#,
        r#"{"fileCheckFrequency": 20}"#,
        r#"{"containerLogMaxSize": "10Xi"}"#,
        r#"{"containerLogMaxSize": "0"}"#,
        r#"{"nodeIP": "node1"}"#,
        r#"{"nodeName": "node_1"}"#,
        r#"{"allowProbeHosts": [""]}"#,
        r#"{"staticPodPath": "pods"}"#,
        r#"{"resolvConf": "resolv.conf"}"#,
        r#"{"allowedUnsafeSysctls": ["kernel.*"]}"#,
        r#"{"clusterDNS": ["10.96.0.10", "dns"]}"#,
        r#"{"clusterDomain": "Cluster.local"}"#,
        r#"{"runtime": "runc"}"#,
        r#"{"runtimeClasses": {"crun": "crun"}}"#,
        r#"{"runtimeClasses": {"C": "/usr/bin/crun"}}"#,
        r#"{"podPidsLimit": 0}"#,
        r#"{"podPidsLimit": -2}"#,
        r#"{"singleProcessOOMKill": "no"}"#,
        r#"{"memorySwap": {"swapBehavior": "UnlimitedSwap"}}"#,
        r#"{"crashLoopBackOff": []}"#,
        r#"{"maxPods": 5, "maxPods": 6}"#,
        r#"{} x"#,
        r#"[]"#,
        "",
    ] {
        assert!(parse(json.as_bytes()).is_err(), "{json}");
    }
}

#[test]
fn the_command_line_wins_over_the_file_and_the_file_over_the_root() {
    let overrides = Overrides {
        static_pod_path: Some("/p".into()),
        runtime: Some(RuntimeChoice::Path("/usr/sbin/runc".into())),
        network: None,
        node_name: Some("N".into()),
        log_format: Some(Format::Json),
        log_levels: "warn,probes=debug".parse().ok(),
    };
    let file = r#"{"staticPodPath": "/f", "nodeName": "m", "logging": {"format": "text", "level": "debug"}}"#;
    let s = resolve(file, "/r", &overrides).unwrap();
    assert_eq!(
        (s.static_pod_path.to_str().unwrap(), s.node_name.as_str()),
        ("/p", "n")
    );
    assert_eq!(s.runtime, RuntimeChoice::Path("/usr/sbin/runc".into()));
    assert_eq!(s.log_format, Some(Format::Json));
    assert_eq!(s.log_levels.to_string(), "warn,probes=debug");
    let s = resolve(file, "/r", &Overrides::default()).unwrap();
    assert_eq!(s.log_format, Some(Format::Text));
    assert_eq!(s.log_levels.to_string(), "debug");
    assert_eq!(
        (s.static_pod_path.to_str().unwrap(), s.node_name.as_str()),
        ("/f", "m")
    );
    assert_eq!(
        resolve("{}", "/r", &Overrides::default())
            .unwrap()
            .static_pod_path,
        Path::new("/r/etc/podprobe/pods")
    );
}

#[test]
fn the_address_is_the_nodes_own_unless_the_file_names_another() {
    let check = |json: &str, own: Option<&str>, expected: &str| {
        let own = || own.map(|ip| ip.parse().unwrap());
        let file = parse(json.as_bytes()).unwrap();
        let s = file.resolve(&Layout::new("/"), &Overrides::default(), "h", own);
        assert_eq!(s.unwrap().node_ip.to_string(), expected, "{json}");
    };
    check("{}", Some("10.0.0.7"), "10.0.0.7");
    check(r#"{"nodeIP": ""}"#, Some("fd00::7"), "fd00::7");
    check("{}", None, "127.0.0.1");
    check(r#"{"nodeIP": "10.0.0.8"}"#, Some("10.0.0.7"), "10.0.0.8");
    check_error(
        r#"{"nodeIP": "here"}"#,
        "nodeIP: \"here\" is not an IP address at line 1 column 2",
    );
}

#[test]
fn only_the_default_file_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let overrides = Overrides {
        node_name: Some("n".into()),
        ..Overrides::default()
    };
    let layout = Layout::new(dir.path());
    assert!(Settings::load(&layout, None, &overrides).is_ok());
    let named = dir.path().join("c.json");
    let e = Settings::load(&layout, Some(&named), &overrides)
        .unwrap_err()
        .to_string();
    assert!(
        e.starts_with(&format!(
            "cannot read configuration {}: No such file",
            named.display()
        )),
        "{e}"
    );
    fs::write(&named, "{\"x\": 1}").unwrap();
    let e = Settings::load(&layout, Some(&named), &overrides)
        .unwrap_err()
        .to_string();
    assert!(
        e.starts_with(&format!(
            "cannot use configuration {}: x: unknown key \"x\"; known are nodeName",
            named.display()
        )),
        "{e}"
    );
}

#[test]
fn a_wrong_form_and_a_wrong_level_of_the_log_are_named() {
    check_error(
        r#"{"logging": {"format": "xml"}}"#,
        "logging.format: \"xml\" is no form of the log; forms are text, json and journald at line 1 column 14",
    );
    check_error(
        r#"{"logging": {"level": "probes=loud"}}"#,
        "logging.level: \"loud\" is no level; levels are error, warn, info, debug, trace and off, and a subject has one by 'probes=debug' at line 1 column 14",
    );
    let empty = resolve(
        r#"{"logging": {"format": "", "level": ""}}"#,
        "/r",
        &Overrides::default(),
    );
    assert_eq!(empty.unwrap().log_format, None);
}
