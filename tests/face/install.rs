//! `install` and `uninstall` below a root of their own, and what a service manager sees of the daemon. Real init systems are
//! started in virtual machines only.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::json;

use crate::support::daemon::{Day, FOREVER};
use crate::support::skip::{has, is_root};
use crate::support::{CEILING, Node, PROGRAM, on, wait_until};

fn podprobe(root: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).arg("--root").arg(root);
    command.output().unwrap()
}

/// What a verb that succeeds says.
#[track_caller]
fn says(root: &Path, words: &[&str]) -> String {
    let output = podprobe(root, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every path below a directory.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
    }
    found.sort();
    found
}

/// Every path below a directory that is no directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = tree(dir);
    found.retain(|path| !path.is_dir());
    found
}

const UNIT: &str = "etc/systemd/system/podprobe.service";

#[test]
fn an_installation_can_be_repeated_upgraded_and_taken_away() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let install = ["install", "--init", "systemd"];
    let dry = says(root, &["install", "--init", "systemd", "--dry-run"]);
    assert!(dry.contains(&format!("would write {}", root.join(UNIT).display())));
    assert_eq!(tree(root), [""; 0].map(PathBuf::from));

    let said = says(root, &install);
    assert!(
        said.ends_with("podprobe starts at the next boot\n"),
        "{said}"
    );
    let program = root.join("usr/local/bin/podprobe");
    assert_eq!(
        fs::metadata(&program).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let version = Command::new(&program).arg("version").output().unwrap();
    assert!(version.status.success(), "{version:?}");
    let unit = fs::read_to_string(root.join(UNIT)).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/podprobe run\n"));
    let wanted = root.join("etc/systemd/system/multi-user.target.wants/podprobe.service");
    assert_eq!(fs::read_link(wanted).unwrap(), Path::new("/").join(UNIT));
    let before = tree(root);
    let again = says(root, &install);
    let lines = again
        .lines()
        .filter(|line| !line.ends_with("podprobe starts at the next boot"));
    for line in lines {
        assert!(
            line.ends_with(" is there") || line.ends_with(" as it is"),
            "{line}"
        );
    }
    assert_eq!(tree(root), before);

    // Another program writes another unit. What nobody has edited is replaced.
    let config = root.join("etc/podprobe/config.json");
    fs::write(&config, "{\"maxPods\": 3}").unwrap();
    let moved = says(root, &["install", "--init", "systemd", "--prefix", "/usr"]);
    let replaced = format!("replaced {}", root.join(UNIT).display());
    assert!(moved.contains(&replaced), "{moved}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "{\"maxPods\": 3}");
    fs::write(root.join(UNIT), "edited").unwrap();
    let edited = says(root, &install);
    assert!(
        edited.contains("because it was edited; the new one is "),
        "{edited}"
    );
    assert_eq!(fs::read_to_string(root.join(UNIT)).unwrap(), "edited");
    assert_eq!(
        fs::read_to_string(root.join(format!("{UNIT}.new"))).unwrap(),
        unit
    );

    let claim = root.join("var/lib/podprobe/claims/default/data");
    fs::create_dir_all(&claim).unwrap();
    let before = tree(root);
    let dry = says(root, &["uninstall", "--dry-run"]);
    assert!(
        dry.contains("would remove ") && !dry.contains("claims"),
        "{dry}"
    );
    assert_eq!(tree(root), before);
    let said = says(root, &["uninstall"]);
    let claims = root.join("var/lib/podprobe/claims");
    assert!(
        said.ends_with(&format!(
            "left {}, which has the claims\n",
            claims.display()
        )),
        "{said}"
    );
    let files: Vec<PathBuf> = tree(root)
        .into_iter()
        .filter(|path| !path.is_dir())
        .collect();
    assert_eq!(files, [""; 0].map(PathBuf::from));
    assert!(claim.is_dir());
    says(root, &["uninstall", "--claims"]);
    assert!(!root.join("var/lib/podprobe").exists());
    let nothing = podprobe(root, &["uninstall"]);
    let text = String::from_utf8(nothing.stderr).unwrap();
    assert!(
        text.contains("nothing of podprobe is installed below "),
        "{text}"
    );
}

#[test]
fn an_uninstallation_ends_the_pods_first() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let root = node.layout.root().to_owned();
        day.put("web", day.pod("web", FOREVER, json!({})));
        day.wait_ready("web");
        let running = podprobe(&root, &["uninstall"]);
        let text = String::from_utf8(running.stderr).unwrap();
        assert!(
            text.contains("another podprobe daemon already runs"),
            "{text}"
        );
        assert_eq!(running.status.code(), Some(69));
        day.check_starts("web", 1);
        let shim = day.shim("web");
        day.terminate();
        assert!(Path::new(&format!("/proc/{}", shim.pid)).exists());
        // The configuration of the tests is on the command line.
        fs::write(node.layout.config_file(), "{\"network\": \"none\"}").unwrap();
        let said = says(&root, &["uninstall"]);
        assert!(
            said.starts_with("ending every pod, for at most 5m0s\n"),
            "{said}"
        );
        wait_until("the shim to end", || {
            !Path::new(&format!("/proc/{}", shim.pid)).exists()
        });
        assert_eq!(files(&root), [""; 0].map(PathBuf::from));
        // What follows looks for the remains of containers in the directories of a daemon.
        node.layout.make_directories().unwrap();
    });
}

/// Also the pods of workloads, whose controllers would make others, and those that a drain has ended.
#[test]
fn an_uninstallation_ends_workloads_and_what_a_drain_holds() {
    for is_drained in [false, true] {
        on(RuntimeChoice::Embedded, |node| {
            let mut day = Day::begin(node);
            let root = node.layout.root().to_owned();
            day.put("web", day.pod("web", FOREVER, json!({})));
            let mut pod = day.pod("shop", FOREVER, json!({}));
            let template =
                json!({"metadata": {"labels": {"app": "shop"}}, "spec": pod["spec"].take()});
            let shop = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
                "spec": {"selector": {"matchLabels": {"app": "shop"}}, "template": template}});
            day.put("shop", shop);
            day.check_starts("web", 1);
            day.check_starts("shop", 1);
            if is_drained {
                day.says(&["drain", "--timeout", "60s"]);
                assert!(day.processes().is_empty());
            }
            day.terminate();
            fs::write(node.layout.config_file(), "{\"network\": \"none\"}").unwrap();
            says(&root, &["uninstall", "--timeout", "30s"]);
            assert_eq!(files(&root), [""; 0].map(PathBuf::from));
            node.layout.make_directories().unwrap();
        });
    }
}

/// The services are right in the eyes of those who read them.
#[test]
fn services_are_well_formed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let install = |init: &str| {
        let root = dir.path().join(init);
        fs::create_dir_all(root.join("etc/rc3.d")).unwrap();
        says(&root, &["install", "--init", init]);
        root
    };
    let systemd = install("systemd");
    if has("systemd-analyze", "systemd") {
        // Its program and its manual are below another root.
        let units = ["podprobe.service", "podprobe-shutdown.service"].map(|name| {
            let unit = fs::read_to_string(systemd.join(UNIT).with_file_name(name)).unwrap();
            let unit = unit.replace("/usr/local/bin/podprobe", PROGRAM);
            let unit = unit.replace("Documentation=man:podprobe(8)\n", "");
            let at = dir.path().join(name);
            fs::write(&at, unit).unwrap();
            at
        });
        let mut verify = Command::new("systemd-analyze");
        let verified = verify
            .arg("verify")
            .arg("--man=no")
            .args(units)
            .output()
            .unwrap();
        let said = String::from_utf8(verified.stderr).unwrap();
        assert!(verified.status.success() && said.is_empty(), "{said}");
    }
    let (openrc, sysv) = (install("openrc"), install("sysv"));
    let link = fs::read_link(openrc.join("etc/runlevels/default/podprobe")).unwrap();
    assert_eq!(link, Path::new("/etc/init.d/podprobe"));
    assert!(sysv.join("etc/rc3.d/S99podprobe").is_symlink());
    if has("shellcheck", "shellcheck") {
        for script in [openrc, sysv].map(|root| root.join("etc/init.d/podprobe")) {
            // OpenRC reads the variables; settings are in files of the node; `ulimit -n` is in dash and busybox.
            let mut check = Command::new("shellcheck");
            check.args(["--shell=sh", "--exclude=SC2034,SC1091,SC3045"]);
            let checked = check.arg(&script).output().unwrap();
            let said = String::from_utf8(checked.stdout).unwrap();
            assert!(checked.status.success(), "{}: {said}", script.display());
        }
    }
}

/// The script for init systems without supervision, with its paths below the root of the test.
struct Script(PathBuf);

impl Script {
    fn new(node: &Node) -> Self {
        let root = node.dir.path().join("image");
        fs::create_dir_all(root.join("etc/init.d")).unwrap();
        says(&root, &["install", "--init", "sysv"]);
        let script = root.join("etc/init.d/podprobe");
        let text = fs::read_to_string(&script).unwrap();
        let at = |name: &str| node.dir.path().join(name).display().to_string();
        let text = text.replace("/run/podprobe-supervisor.pid", &at("supervisor.pid"));
        let text = text.replace("/var/log/podprobe.log", &at("sysv.log"));
        let text = text.replace("/etc/default/podprobe", &at("settings"));
        let text = text.replace(
            "program=/usr/local/bin/podprobe",
            &format!("program={PROGRAM}"),
        );
        fs::write(&script, text).unwrap();
        let arguments = format!(
            "--root {} --network none --node-name edge",
            node.layout.root().display()
        );
        fs::write(at("settings"), format!("ARGUMENTS='{arguments}'\n")).unwrap();
        Self(script)
    }

    fn run(&self, word: &str) -> Option<i32> {
        let mut command = Command::new("sh");
        command
            .arg(&self.0)
            .arg(word)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().unwrap().code()
    }
}

impl Drop for Script {
    /// Also after a test that has failed.
    fn drop(&mut self) {
        self.run("stop");
    }
}

#[test]
fn the_script_without_an_init_system_supervises_the_daemon() {
    on(RuntimeChoice::Embedded, |node| {
        let script = Script::new(node);
        let answers = || {
            podprobe(node.layout.root(), &["get", "pods"])
                .status
                .success()
        };
        let pid = || {
            let supervisor = fs::read_to_string(node.dir.path().join("supervisor.pid")).ok()?;
            let children = format!("/proc/{0}/task/{0}/children", supervisor.trim());
            let children = fs::read_to_string(children).ok()?;
            children.split_whitespace().next()?.parse::<i32>().ok()
        };
        assert_eq!(script.run("status"), Some(3));
        assert_eq!(script.run("start"), Some(0));
        wait_until("the daemon to answer", answers);
        assert_eq!(script.run("status"), Some(0));
        let first = pid().unwrap();
        assert_eq!(script.run("start"), Some(0), "it runs already");
        assert_eq!(pid(), Some(first));
        kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
        wait_until("another daemon", || pid().is_some_and(|pid| pid != first));
        wait_until("it to answer", answers);
        assert_eq!(script.run("stop"), Some(0));
        assert_eq!((script.run("status"), answers()), (Some(3), false));

        // A configuration that cannot be used is not tried again and again.
        fs::write(node.layout.config_file(), "{\"maxPods\": \"many\"}").unwrap();
        assert_eq!(script.run("start"), Some(0));
        wait_until("the supervisor to give up", || {
            script.run("status") == Some(3)
        });
        fs::remove_file(node.layout.config_file()).unwrap();
    });
}

#[test]
fn a_service_manager_is_told_how_the_daemon_is() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.kill9();
        let path = node.dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(CEILING)).unwrap();
        let next = || {
            let mut text = [0; 4096];
            let length = manager.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        let mut daemon = day.command();
        daemon
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "900000");
        let mut daemon = daemon
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut told = vec![next()];
        while told.len() < 5 {
            told.push(next());
        }
        told.sort();
        assert_eq!(told[0].trim_end(), "READY=1");
        assert!(
            told[1..].iter().all(|text| text.trim_end() == "WATCHDOG=1"),
            "{told:?}"
        );
        // What outlives the daemon has nothing that its manager gave it, and a container may see its environment.
        day.put("web", day.pod("web", FOREVER, json!({})));
        day.wait_ready("web");
        for pid in [day.shim("web").pid, day.process("web").pid] {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let of_manager = ["NOTIFY_SOCKET", "WATCHDOG"];
            assert!(
                !of_manager.iter().any(|name| environment.contains(name)),
                "{environment}"
            );
        }
        kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM).unwrap();
        while next().trim_end() != "STOPPING=1" {}
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
        day.start();

        let second = day.command().output().unwrap();
        assert_eq!(second.status.code(), Some(69), "{second:?}");
        fs::write(node.layout.config_file(), "{\"maxPods\": \"many\"}").unwrap();
        let wrong = day.command().output().unwrap();
        assert_eq!(wrong.status.code(), Some(78), "{wrong:?}");
        fs::remove_file(node.layout.config_file()).unwrap();
        day.end();
    });
}
