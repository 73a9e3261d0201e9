//! Manifests as people have them run unchanged, or are refused with the line that says why: each file of tests/pods with a
//! real daemon. Shell scripts stand in for the programs; the tests in `real` take the programs themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use podprobe::engine::images::ImageConfig;

use crate::support::debian;
use crate::support::manifests;
use crate::support::manifests::Images;

/// A test for each manifest, and one for the directory.
macro_rules! manifests {
    ($($test:ident = $name:literal),* $(,)?) => {
        $(#[test] fn $test() { manifests::run($name, &Images::StandIns); })*

        #[test]
        fn every_file_of_the_directory_is_run() {
            files_are(&[$($name),*]);
        }
    };
}

manifests![
    anchors = "anchors",
    coredns = "coredns",
    deployment = "deployment",
    downward_env = "downward-env",
    env_from = "env-from",
    flannel = "flannel",
    fluent_bit = "fluent-bit",
    fsgroup = "fsgroup",
    gpu = "gpu",
    grafana = "grafana",
    helm_template = "helm-template",
    home_assistant = "home-assistant",
    hooks = "hooks",
    host_aliases = "host-aliases",
    image_volume = "image-volume",
    kube_vip = "kube-vip",
    kubeadm_etcd = "kubeadm-etcd",
    kubeadm_kube_apiserver = "kubeadm-kube-apiserver",
    kubeadm_kube_controller_manager = "kubeadm-kube-controller-manager",
    kubeadm_kube_scheduler = "kubeadm-kube-scheduler",
    kubectl_get_o_yaml = "kubectl-get-o-yaml",
    list = "list",
    memory_oom = "memory-oom",
    mosquitto = "mosquitto",
    nfs = "nfs",
    nginx_configmap = "nginx-configmap",
    node_debugger = "node-debugger",
    node_exporter = "node-exporter",
    nonroot = "nonroot",
    nonroot_root_image = "nonroot-root-image",
    postgres = "postgres",
    projected = "projected",
    redis = "redis",
    sidecar = "sidecar",
    slow_java = "slow-java",
    tty = "tty",
    two_containers = "two-containers",
    user_namespace = "user-namespace",
    zigbee2mqtt = "zigbee2mqtt",
];

/// A manifest without a test, without what it must show, or the other way round, is an error.
fn files_are(names: &[&str]) {
    let files = names
        .iter()
        .flat_map(|n| [format!("{n}.yaml"), format!("{n}.shows.json")]);
    let wanted: BTreeSet<_> = files.collect();
    let there = fs::read_dir(manifests::dir()).unwrap();
    let there: BTreeSet<_> = there
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, wanted);
}

/// The same manifests with the software that they name, from Debian packages.
mod real {
    use super::*;

    /// Runs a manifest whose image `image` is made of these packages.
    fn run(
        manifest: &str,
        image: &str,
        packages: &[&str],
        config: ImageConfig,
        finish: impl FnOnce(&Path),
    ) {
        let root = debian::root(manifest, packages, finish);
        let env = vec![
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/lib/postgresql/bin".into(),
        ];
        let config = ImageConfig { env, ..config };
        let real = BTreeMap::from([(image.to_owned(), (root, config))]);
        manifests::run(manifest, &Images::Real(&real));
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&w| w.to_owned()).collect()
    }

    /// As the image on the hub has it: what is configured lies in conf.d, and the log goes to stderr.
    const NGINX: &str = "user www-data;\npid /run/nginx.pid;\nerror_log /dev/stderr notice;\nevents {}\n\
        http {\n  include /etc/nginx/mime.types;\n  access_log /dev/stdout;\n  include /etc/nginx/conf.d/*.conf;\n}\n";

    #[test]
    #[ignore = "fetches Debian packages: make realware"]
    fn nginx() {
        let config = ImageConfig {
            cmd: words(&["nginx", "-g", "daemon off;"]),
            stop_signal: "SIGQUIT".into(),
            ..ImageConfig::default()
        };
        run(
            "nginx-configmap",
            "nginx:1.27",
            &["nginx"],
            config,
            |root| {
                fs::write(root.join("etc/nginx/nginx.conf"), NGINX).unwrap();
            },
        );
    }

    #[test]
    #[ignore = "fetches Debian packages: make realware"]
    fn redis() {
        run(
            "redis",
            "redis:7",
            &["redis-server"],
            ImageConfig::default(),
            |_| (),
        );
    }

    #[test]
    #[ignore = "fetches Debian packages: make realware"]
    fn mosquitto() {
        let config = ImageConfig {
            cmd: words(&["mosquitto", "-c", "/mosquitto/config/mosquitto.conf"]),
            ..ImageConfig::default()
        };
        run(
            "mosquitto",
            "eclipse-mosquitto:2.0",
            &["mosquitto"],
            config,
            |_| (),
        );
    }

    #[test]
    #[ignore = "fetches Debian packages: make realware"]
    fn node_exporter() {
        let config = ImageConfig {
            entrypoint: words(&["prometheus-node-exporter"]),
            user: "65534".into(),
            ..ImageConfig::default()
        };
        let (image, package) = (
            "quay.io/prometheus/node-exporter:v1.8.2",
            "prometheus-node-exporter",
        );
        run("node-exporter", image, &[package], config, |_| ());
    }

    /// What the image on the hub does before its server: makes the data once and runs the scripts.
    const POSTGRES: &str = include_str!("../support/postgres-entrypoint.sh");

    #[test]
    #[ignore = "fetches Debian packages: make realware"]
    fn postgres() {
        let config = ImageConfig {
            entrypoint: words(&["postgres-entrypoint.sh"]),
            stop_signal: "SIGINT".into(),
            ..ImageConfig::default()
        };
        run(
            "postgres",
            "postgres:15",
            &["postgresql", "util-linux"],
            config,
            |root| {
                let lib = root.join("usr/lib/postgresql");
                let version = fs::read_dir(&lib)
                    .unwrap()
                    .flatten()
                    .find(|e| e.path().join("bin/postgres").exists());
                let bin = version.expect("a server").file_name();
                let _ = fs::remove_file(lib.join("bin"));
                std::os::unix::fs::symlink(Path::new(&bin).join("bin"), lib.join("bin")).unwrap();
                let entrypoint = root.join("usr/local/bin/postgres-entrypoint.sh");
                fs::create_dir_all(entrypoint.parent().unwrap()).unwrap();
                fs::write(&entrypoint, POSTGRES).unwrap();
                fs::set_permissions(&entrypoint, fs::Permissions::from_mode(0o755)).unwrap();
            },
        );
    }
}
