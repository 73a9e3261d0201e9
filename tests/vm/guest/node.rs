//! The node under test: the daemon, its verbs, and what root can see of the containers.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::case::until;
use crate::sys;

pub const PODS: &str = "/etc/podprobe/pods";
pub const LOG: &str = "/tmp/podprobe.log";
/// An address of the node that is no loopback address.
pub const ADDRESS: &str = "192.168.77.1";
const TERM: i32 = 15;
const KILL: i32 = 9;

#[derive(Default)]
pub struct Node {
    daemon: Mutex<Option<Child>>,
}

/// What a verb printed, and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn all(&self) -> String {
        format!("exit code {}: {}{}", self.code, self.out, self.err)
    }
}

impl Node {
    /// Starts the daemon with this configuration, and waits until it answers.
    pub fn start(&self, config: &str) -> Result<(), String> {
        let tell = |e| format!("start the daemon: {e}");
        fs::create_dir_all(PODS).map_err(tell)?;
        fs::write("/etc/podprobe/config.json", config).map_err(tell)?;
        let log = File::options().create(true).append(true).open(LOG);
        let child = Command::new("/usr/bin/podprobe")
            .arg("run")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(tell)?)
            .spawn()
            .map_err(tell)?;
        *self.daemon.lock().unwrap() = Some(child);
        until("the daemon's socket", || {
            self.ask(&["get", "pods"]).map(drop)
        })
    }

    /// Ends the daemon alone.
    pub fn stop(&self) -> Result<(), String> {
        self.end(TERM)
    }

    pub fn kill(&self) -> Result<(), String> {
        self.end(KILL)
    }

    fn end(&self, signal: i32) -> Result<(), String> {
        let Some(mut child) = self.daemon.lock().unwrap().take() else {
            return Ok(());
        };
        sys::signal(child.id(), signal).map_err(|e| format!("end the daemon: {e}"))?;
        until("the end of the daemon", || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    /// Runs a verb of the program.
    pub fn run(&self, args: &[&str]) -> Said {
        match Command::new("/usr/bin/podprobe")
            .args(args)
            .stdin(Stdio::null())
            .output()
        {
            Ok(done) => Said {
                code: done.status.code().unwrap_or(-1),
                out: String::from_utf8_lossy(&done.stdout).into_owned(),
                err: String::from_utf8_lossy(&done.stderr).into_owned(),
            },
            Err(e) => Said {
                code: -1,
                out: String::new(),
                err: e.to_string(),
            },
        }
    }

    /// The output of a verb that must succeed.
    pub fn ask(&self, args: &[&str]) -> Result<String, String> {
        let said = self.run(args);
        if said.code == 0 {
            Ok(said.out)
        } else {
            Err(format!("podprobe {}: {}", args.join(" "), said.all()))
        }
    }

    /// A field of a pod, by its path in kubectl's jsonpath.
    pub fn field(&self, pod: &str, path: &str) -> Result<String, String> {
        let form = format!("jsonpath={{{path}}}");
        self.ask(&["get", "pod", pod, "-o", &form])
    }

    pub fn wait_ready(&self, pods: &[&str]) -> Result<(), String> {
        let mut args = vec!["wait"];
        args.extend(pods);
        args.extend(["--for=condition=Ready", "--timeout=90s"]);
        self.ask(&args).map(drop).map_err(|e| {
            let mut described = vec!["describe", "pod"];
            described.extend(pods);
            let events = self.run(&described).out;
            let events = events.split("Events:").nth(1).unwrap_or("");
            let from = events.len().saturating_sub(500);
            format!("{e}; {}", events.get(from..).unwrap_or(""))
        })
    }

    /// The output of a command in a pod's first container.
    pub fn exec(&self, pod: &str, command: &[&str]) -> Said {
        let mut args = vec!["exec", pod, "--"];
        args.extend(command);
        self.run(&args)
    }

    /// Waits until a pod's first container has printed a line that begins so, and returns the whole log.
    pub fn logged(&self, pod: &str, begins: &str) -> Result<String, String> {
        until(&format!("{begins:?} in the log of {pod}"), || {
            let log = self.ask(&["logs", pod])?;
            if log.lines().any(|line| line.starts_with(begins)) {
                Ok(log)
            } else {
                Err(format!("{log:?}, {}", self.states(pod)))
            }
        })
    }

    /// The states of a pod's containers, for messages.
    pub fn states(&self, pod: &str) -> String {
        let said = self.field(pod, ".status.containerStatuses[*].state");
        said.unwrap_or_else(|e| e)
    }
}

/// A process of the machine, as root sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    /// The process that has all these words in its command line, in a container.
    pub fn of(words: &[&str]) -> Result<Process, String> {
        until(&format!("a process {words:?}"), || {
            let all = processes().into_iter();
            all.filter(|p| p.is_in_container())
                .find(|p| {
                    let line = p.file("cmdline");
                    let line: Vec<_> = line.split('\0').collect();
                    words.iter().all(|word| line.contains(word))
                })
                .ok_or_else(|| "there is none".to_owned())
        })
    }

    fn is_in_container(self) -> bool {
        self.file("cgroup").contains("pod")
            && fs::metadata(format!("/proc/{}/root", self.0))
                .is_ok_and(|root| fs::metadata("/").is_ok_and(|own| root.dev() != own.dev()))
    }

    /// A file of the process in /proc; empty when it is gone.
    pub fn file(self, name: &str) -> String {
        let bytes = fs::read(format!("/proc/{}/{name}", self.0)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A line of its `status`, without the name.
    pub fn status(self, name: &str) -> String {
        let status = self.file("status");
        let mut lines = status.lines();
        let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("").trim().to_owned()
    }

    pub fn namespace(self, kind: &str) -> String {
        let link = fs::read_link(format!("/proc/{}/ns/{kind}", self.0));
        link.map(|l| l.display().to_string()).unwrap_or_default()
    }

    /// Its directory below /sys/fs/cgroup.
    pub fn cgroup(self) -> Result<String, String> {
        let file = self.file("cgroup");
        let path = file.lines().find_map(|l| l.strip_prefix("0::"));
        let path = path.ok_or_else(|| format!("process {} has no cgroup: {file:?}", self.0))?;
        Ok(format!("/sys/fs/cgroup{path}"))
    }

    /// A file of its cgroup.
    pub fn cgroup_file(self, name: &str) -> Result<String, String> {
        read(&format!("{}/{name}", self.cgroup()?))
    }
}

pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .map(Process)
        .collect()
}

/// A file's text without the white space around it.
pub fn read(path: &str) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) => Err(format!("{path}: {e}")),
    }
}

/// Runs a program of the node, such as an applet of busybox.
pub fn command(words: &[&str]) -> Result<String, String> {
    let done = Command::new(words[0]).args(&words[1..]).output();
    let done = done.map_err(|e| format!("{}: {e}", words.join(" ")))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        Ok(text)
    } else {
        let err = String::from_utf8_lossy(&done.stderr);
        Err(format!("{}: {text}{err}", words.join(" ")))
    }
}

/// The last lines that the daemon has logged since its log was so long.
pub fn logged_since(length: usize) -> Vec<String> {
    let log = fs::read(LOG).unwrap_or_default();
    let log = String::from_utf8_lossy(log.get(length..).unwrap_or(&[]));
    let all: Vec<_> = log.lines().map(str::to_owned).collect();
    all[all.len().saturating_sub(15)..].to_vec()
}

pub fn log_length() -> usize {
    fs::metadata(LOG).map_or(0, |m| m.len() as usize)
}
