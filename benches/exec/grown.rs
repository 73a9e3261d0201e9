//! A daemon of any size: this program again, in a process of its own, with idle threads and touched heap, that runs a
//! command in the container whenever it is asked to and says what that cost.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::{Guard, program};
use super::{Running, ours, used_us};

/// In the environment of such a process: its threads and megabytes.
const ROLE: &str = "BENCH_GROWN";

/// A process that waits to be asked.
pub(super) struct Grown {
    stdin: std::process::ChildStdin,
    stdout: BufReader<std::process::ChildStdout>,
    _guard: Guard,
}

/// Microseconds of processor time and of waiting.
pub(super) struct Cost {
    pub(super) cpu: f64,
    pub(super) wall: f64,
}

impl Grown {
    pub(super) fn start(threads: usize, megabytes: usize, container: &Running) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg("--bench")
            .env(ROLE, format!("{threads} {megabytes}"))
            .env("PODPROBE", program());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, stdout) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        writeln!(
            stdin,
            "{} {} {}",
            container.pid, container.start_time, container.container.config
        )
        .unwrap();
        let guard = Guard::new(move || {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        });
        let mut grown = Self {
            stdin,
            stdout,
            _guard: guard,
        };
        // The first reads files and makes caches, as in the other rows.
        grown.run();
        grown
    }

    pub(super) fn run(&mut self) -> Cost {
        self.stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let (cpu, wall) = line
            .trim()
            .split_once(' ')
            .unwrap_or_else(|| panic!("the process of another size said {line:?}"));
        Cost {
            cpu: cpu.parse().unwrap(),
            wall: wall.parse().unwrap(),
        }
    }
}

/// The other side. Returns when this process has no such role.
pub(super) fn role() {
    let Ok(size) = std::env::var(ROLE) else {
        return;
    };
    let (threads, megabytes) = size.split_once(' ').unwrap();
    let heap = vec![1u8; megabytes.parse::<usize>().unwrap() << 20];
    for _ in 0..threads.parse().unwrap() {
        let builder = std::thread::Builder::new().stack_size(128 << 10);
        builder
            .spawn(|| {
                loop {
                    std::thread::park()
                }
            })
            .unwrap();
    }
    let mut line = String::new();
    let mut stdin = BufReader::new(std::io::stdin());
    stdin.read_line(&mut line).unwrap();
    let parts: Vec<&str> = line.trim().splitn(3, ' ').collect();
    let (pid, start_time) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
    let config = serde_json::from_str(parts[2]).unwrap();
    while stdin.read_exact(&mut [0]).is_ok() {
        let (cpu, begun) = (used_us(), Instant::now());
        ours(pid, start_time, &config);
        let (wall, cpu) = (begun.elapsed(), used_us() - cpu);
        println!("{cpu} {}", wall.as_secs_f64() * 1e6);
    }
    drop(heap);
    std::process::exit(0);
}
