//! The daemon and its terminal: the terminal is closed, HUP or the ends of children are ignored, the log is read on a terminal.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::daemon::settings::Settings;
use serde_json::json;

use crate::support;
use crate::support::daemon::{Day, POLITE};
use crate::support::fake_registry::{Content, Layer, Server, noise, tar};
use crate::support::{CEILING, Node, PROGRAM, on, processes_naming, wait_until};

/// A child that does not outlive the test.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait_until("the end of the child", || {
            self.0.try_wait().unwrap().is_some()
        });
        self.0.wait().unwrap()
    }
}

/// As Ctrl-C ends it, so that `try` also removes what it has started when a test fails; and for good where that does not help.
impl Drop for Killed {
    fn drop(&mut self) {
        let end = Instant::now() + CEILING;
        let is_left = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if is_left(&mut self.0) {
            self.signal(Signal::SIGINT);
        }
        while is_left(&mut self.0) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write_pod(dir: &Path, name: &str) {
    fs::create_dir_all(dir).unwrap();
    let mut container = support::sh("main", "exec sleep 1000");
    container["imagePullPolicy"] = "Never".into();
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    fs::write(dir.join(format!("{name}.json")), pod.to_string()).unwrap();
}

/// Reads what is shown until `find` finds in it what it looks for.
pub(crate) fn wait_for<T>(mut from: impl Read + AsFd, find: impl Fn(&str) -> Option<T>) -> T {
    let (mut shown, mut bytes) = (String::new(), [0; 4096]);
    let end = Instant::now() + CEILING;
    loop {
        if let Some(found) = find(&shown) {
            return found;
        }
        let left = end.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap();
        let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        assert_ne!(poll(&mut fds, timeout).unwrap(), 0, "not shown: {shown:?}");
        let n = from.read(&mut bytes).unwrap();
        assert_ne!(n, 0, "the end of what is shown: {shown:?}");
        shown.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
}

/// `try` without a network, as the bridges of two of them exclude each other on one machine.
fn try_pods(pods: &Path, tmp: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["try", "--network", "none", "--pods"]);
    command.arg(pods).env("TMPDIR", tmp);
    command
}

/// Writes to the terminal fail from then on, and HUP comes.
#[test]
fn closing_the_terminal_of_try_removes_everything() {
    on(Settings::default().runtime, |node| {
        let (pods, tmp) = (node.dir.path().join("pods"), node.dir.path().join("tmp"));
        write_pod(&pods, "web");
        fs::create_dir(&tmp).unwrap();
        let terminal = openpty(None, None).unwrap();
        let (master, slave) = (File::from(terminal.master), File::from(terminal.slave));
        // a child with the other end would keep its own terminal open
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let image = node.dir.path().join("image");
        let child = try_pods(&pods, &tmp)
            .arg("--image")
            .arg(format!("{}=busybox:test", image.display()))
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let mut child = Killed(child);
        drop(slave);
        wait_for(&master, |shown| shown.contains("1/1").then_some(()));
        let root = fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
        drop(master);
        child.signal(Signal::SIGHUP);
        assert_eq!(child.end().code(), Some(0));
        assert!(!root.exists(), "{} is left", root.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = root.to_str().unwrap();
        assert!(!mounts.contains(root), "{mounts}");
        wait_until("every process to end", || processes_naming(root).is_empty());
        fs::create_dir_all(node.layout.containers()).unwrap();
    });
}

/// `try` with a pod whose image comes to the half and no further; how far that is.
fn half_pulled(node: &Node, stdout: Stdio) -> (Killed, Server, String) {
    let layers = [
        Layer::gzip(&tar("a", b"small")),
        Layer::gzip(&tar("b", &noise(300_000))),
    ];
    let mut content = Content::default();
    content.image("1", &layers);
    let [small, large] = layers.each_ref().map(|l| l.stored.len());
    let percent = (small + large / 2) * 100 / (small + large);
    let server = content.stuck_in(&layers[1]);
    let image = format!("{}/team/app:1", server.address);
    let (pods, tmp) = (node.dir.path().join("pods"), node.dir.path().join("tmp"));
    fs::create_dir_all(&pods).unwrap();
    fs::create_dir_all(&tmp).unwrap();
    let spec = json!({"containers": [{"name": "main", "image": image}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    fs::write(pods.join("web.json"), pod.to_string()).unwrap();
    let child = try_pods(&pods, &tmp)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (Killed(child), server, format!("{percent}%"))
}

/// Reads what is still shown: whoever does not read holds up who draws.
fn read_on(mut from: impl Read + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || while matches!(from.read(&mut [0; 4096]), Ok(1..)) {})
}

/// The pull ends with it, and nothing is left.
fn end_of_try(node: &Node, child: &mut Killed) {
    let tmp = node.dir.path().join("tmp");
    let root = fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
    child.signal(Signal::SIGINT);
    assert_eq!(child.end().code(), Some(0));
    assert!(!root.exists(), "{} is left", root.display());
    let root = root.to_str().unwrap();
    wait_until("every process to end", || processes_naming(root).is_empty());
    fs::create_dir_all(node.layout.containers()).unwrap();
}

#[test]
fn the_live_table_shows_how_far_a_pull_is_also_on_a_narrow_terminal() {
    on(Settings::default().runtime, |node| {
        let size = Winsize {
            ws_row: 24,
            ws_col: 30,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = openpty(Some(&size), None).unwrap();
        let (master, slave) = (File::from(terminal.master), File::from(terminal.slave));
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let (mut child, _server, percent) = half_pulled(node, Stdio::from(slave));
        let line = format!("\n{percent:>5}  web-");
        wait_for(&master, |shown| shown.contains(&line).then_some(()));
        let reader = read_on(master);
        end_of_try(node, &mut child);
        reader.join().unwrap();
    });
}

#[test]
fn where_there_is_no_terminal_each_step_of_a_pull_is_a_line() {
    on(Settings::default().runtime, |node| {
        let (read, write) = std::io::pipe().unwrap();
        let (mut child, server, percent) = half_pulled(node, Stdio::from(write));
        let words = format!(": {percent}, ");
        let line = wait_for(&read, |shown| {
            let whole = shown.split_inclusive('\n').filter(|l| l.ends_with('\n'));
            let mut of_pulls = whole.filter(|l| l.contains("  pull   web-"));
            of_pulls.find(|l| l.contains(&words)).map(str::to_owned)
        });
        let image = format!("{}/team/app:1: ", server.address);
        assert!(
            line.contains(&image) && line.contains(", 1 of 2 layers"),
            "{line}"
        );
        let reader = read_on(read);
        end_of_try(node, &mut child);
        reader.join().unwrap();
    });
}

/// A daemon without a terminal, started with HUP ignored where `nohup` says so; it gets HUP, and TERM ends it.
fn log_of_a_daemon(node: &Node, nohup: bool) -> String {
    let log = node.dir.path().join("log");
    let script = match nohup {
        true => "trap '' HUP; exec setsid \"$0\" run --root \"$1\"",
        false => "exec setsid \"$0\" run --root \"$1\"",
    };
    let child = Command::new("/bin/sh")
        .args(["-c", script, PROGRAM])
        .arg(node.layout.root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    wait_until("the daemon to run", || {
        fs::read_to_string(&log).unwrap().contains("runs as node")
    });
    // Where both are pending the daemon takes HUP first, which has the lower number.
    child.signal(Signal::SIGHUP);
    child.signal(Signal::SIGTERM);
    assert_eq!(child.end().code(), Some(0));
    fs::read_to_string(log).unwrap()
}

#[test]
fn hup_reloads_the_configuration_unless_the_daemon_was_told_to_ignore_it() {
    on(Settings::default().runtime, |node| {
        let log = log_of_a_daemon(node, true);
        assert!(
            log.contains("SIGTERM: stopping") && !log.contains("config.json"),
            "{log}"
        );
        let log = log_of_a_daemon(node, false);
        assert!(
            log.contains("etc/podprobe/config.json: nothing has changed"),
            "{log}"
        );
        assert!(log.contains("SIGTERM: stopping"), "{log}");
        fs::create_dir_all(node.layout.containers()).unwrap();
    });
}

/// What a parent ignores, its children ignore, and the kernel keeps no exit code for a process that ignores SIGCHLD.
#[test]
fn a_daemon_whose_parent_ignores_the_ends_of_children_starts_and_probes_containers() {
    on(Settings::default().runtime, |node| {
        let day = Day::begin_after(node, "exec env --ignore-signal=CHLD");
        let probe = json!({"exec": {"command": ["/bin/sh", "-c", "exit 0"]}, "periodSeconds": 1});
        let pod = day.pod("web", POLITE, json!({"readinessProbe": probe}));
        day.put("web", pod);
        day.wait_ready("web");
        day.check_starts("web", 1);
        day.end();
    });
}

#[test]
fn what_the_log_quotes_does_not_act_on_the_terminal() {
    on(Settings::default().runtime, |node| {
        fs::create_dir_all(node.layout.pods_dir()).unwrap();
        let evil = node.layout.pods_dir().join("a\u{1b}]0;pwned\u{7}.json");
        fs::write(evil, "{}").unwrap();
        fs::create_dir_all(node.layout.containers()).unwrap();
        let log = node.dir.path().join("log");
        let text = || fs::read_to_string(&log).unwrap();
        let child = Command::new(PROGRAM)
            .args(["run", "--network", "none", "--root"])
            .arg(node.layout.root())
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let child = Killed(child);
        wait_until("the file to be named in the log", || {
            text().contains("pwned")
        });
        assert!(text().contains("a^[]0;pwned^G.json"), "{}", text());
        assert!(!text().contains('\u{1b}'), "{}", text());
        drop(child);
    });
}
