//! The log of a real daemon: its forms, its levels, and the file that it never fills.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use podprobe::daemon::logging::LARGEST;
use podprobe::daemon::settings::Settings;
use serde_json::{Value, json};

use crate::support::{Node, PROGRAM, on, wait_until};
use crate::terminal::Killed;

/// A daemon with its stderr in a file.
struct Logged<'a> {
    node: &'a Node,
    command: Command,
    stderr: PathBuf,
}

impl<'a> Logged<'a> {
    fn new(node: &'a Node) -> Self {
        fs::create_dir_all(node.layout.containers()).unwrap();
        let stderr = node.dir.path().join("stderr");
        let file = File::create(&stderr).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .args(["run", "--network", "none", "--root"])
            .arg(node.layout.root())
            .stdin(Stdio::null())
            .stderr(file);
        Self {
            node,
            command,
            stderr,
        }
    }

    fn configure(&self, configuration: &Value) {
        let file = self.node.layout.config_file();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, configuration.to_string()).unwrap();
    }

    fn start(&mut self) -> Killed {
        Killed(self.command.spawn().unwrap())
    }

    /// Runs the daemon until the log has a text, and returns the log after its end.
    fn log_until(&mut self, log: &Path, text: &str) -> String {
        let mut child = self.start();
        wait_until("the log to have the text", || read(log).contains(text));
        child.signal(Signal::SIGTERM);
        assert_eq!(child.0.wait().unwrap().code(), Some(0));
        read(log)
    }

    /// Runs the daemon until it is ready, and returns its log.
    fn log(&mut self) -> String {
        self.log_until(&self.stderr.clone(), "runs as node")
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn the_log_is_text_or_json_or_what_the_journal_reads() {
    on(Settings::default().runtime, |node| {
        let text = Logged::new(node).log();
        assert!(text.contains(" INFO  daemon] podprobe "), "{text}");
        for module in ["podprobe::", "podprobe_pods"] {
            assert!(!text.contains(module), "{text}");
        }

        let mut json = Logged::new(node);
        json.command.args(["--log-format", "json"]);
        let text = json.log();
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let ready = lines
            .iter()
            .find(|l| l["msg"].as_str().unwrap().contains("runs as node"));
        let ready = ready.unwrap();
        assert_eq!(
            (&ready["level"], &ready["subject"]),
            (&json!("info"), &json!("daemon"))
        );

        // A service of systemd has its stderr named in JOURNAL_STREAM.
        let mut service = Logged::new(node);
        let stderr = fs::metadata(&service.stderr).unwrap();
        let stream = format!("{}:{}", stderr.dev(), stderr.ino());
        service.command.env("JOURNAL_STREAM", stream);
        let text = service.log();
        assert!(text.contains("<6>daemon: podprobe "), "{text}");
        assert!(text.lines().all(|l| l.starts_with('<')), "{text}");

        // Another process of that service has its stderr elsewhere.
        let mut elsewhere = Logged::new(node);
        elsewhere.command.env("JOURNAL_STREAM", "1:1");
        let text = elsewhere.log();
        assert!(text.starts_with('['), "{text}");
    });
}

#[test]
fn a_subject_has_its_own_level_and_a_new_level_is_in_force_at_once() {
    on(Settings::default().runtime, |node| {
        let mut daemon = Logged::new(node);
        daemon.configure(&json!({"logging": {"level": "off,probes=debug"}}));
        let child = daemon.start();
        wait_until("the server to listen", || node.layout.socket().exists());
        daemon.configure(&json!({"logging": {"level": "warn,daemon=info"}}));
        child.signal(Signal::SIGHUP);
        let change = "logging.level: \"off,probes=debug\" -> \"warn,daemon=info\", in force";
        wait_until("the change to be logged", || {
            read(&daemon.stderr).contains(change)
        });
        let log = read(&daemon.stderr);
        assert!(!log.contains("runs as node"), "{log}");
        assert!(log.lines().all(|line| line.contains(" daemon] ")), "{log}");
    });
}

#[test]
fn a_level_that_is_none_is_named_and_the_log_goes_on() {
    on(Settings::default().runtime, |node| {
        let mut daemon = Logged::new(node);
        daemon.command.env("PODPROBE_LOG", "foo");
        let log = daemon.log();
        assert!(
            log.contains("PODPROBE_LOG counts for nothing: \"foo\" is no level; levels are error,"),
            "{log}"
        );
    });
}

#[test]
fn the_log_goes_to_a_file_that_is_renamed_when_it_is_full() {
    on(Settings::default().runtime, |node| {
        let file = node.dir.path().join("podprobe.log");
        fs::write(&file, vec![b'.'; LARGEST as usize - 10]).unwrap();
        let mut daemon = Logged::new(node);
        daemon.command.arg("--log-file").arg(&file);
        let log = daemon.log_until(&file, "runs as node");
        assert!(log.contains("SIGTERM: stopping"), "{log}");
        assert!(!log.contains(".."), "{log}");
        let older = node.dir.path().join("podprobe.log.1");
        assert_eq!(fs::metadata(older).unwrap().len(), LARGEST - 10);
        assert_eq!(read(&daemon.stderr), "");
    });
}

#[test]
fn a_log_file_that_cannot_be_written_stops_no_daemon() {
    on(Settings::default().runtime, |node| {
        let mut daemon = Logged::new(node);
        let file = node.dir.path().join("missing/podprobe.log");
        daemon.command.arg("--log-file").arg(&file);
        let log = daemon.log();
        let told = format!(
            "cannot write the log to {}: No such file or directory (os error 2); it goes to stderr",
            file.display()
        );
        assert!(log.contains(&told), "{log}");
    });
}

#[test]
fn a_log_file_has_the_reason_why_the_configuration_cannot_be_used() {
    on(Settings::default().runtime, |node| {
        let mut daemon = Logged::new(node);
        daemon.configure(&json!({"logging": {"level": "loud"}}));
        let file = node.dir.path().join("podprobe.log");
        daemon.command.arg("--log-file").arg(&file);
        let mut child = daemon.start();
        assert_eq!(child.0.wait().unwrap().code(), Some(78));
        let log = read(&file);
        assert!(log.contains("logging.level: \"loud\" is no level"), "{log}");
        assert_eq!(read(&daemon.stderr), "");
    });
}
