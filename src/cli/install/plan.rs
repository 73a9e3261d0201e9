//! The plan of an installation: which steps it has for an init system.
//!
//! Invariant: pure.

use std::path::{Path, PathBuf};

use super::init_system::InitSystem;
use super::step::Step;

const UNIT: &str = include_str!("../../../config/init/podprobe.service");
const SHUTDOWN_UNIT: &str = include_str!("../../../config/init/podprobe-shutdown.service");
const OPENRC: &str = include_str!("../../../config/init/podprobe.openrc");
const SYSV: &str = include_str!("../../../config/init/podprobe.sysv");
/// Place in a service where the path of the program belongs.
const PROGRAM: &str = "@PROGRAM@";

/// The directory of systemd's units.
const UNITS: &str = "/etc/systemd/system";
/// The service of OpenRC, and the script of a SysV init.
const SCRIPT_PATH: &str = "/etc/init.d/podprobe";

/// The place where podprobe is installed.
pub struct Place {
    /// The root below which everything lies.
    pub root: PathBuf,
    /// The directory below which the program goes, as the node sees it.
    pub prefix: PathBuf,
    /// The init system that gets a service.
    pub init: InitSystem,
    /// The directories of run levels that a SysV init has, relative to the root.
    pub run_levels: Vec<PathBuf>,
    /// True if the run levels of a SysV init are kept by Debian's update-rc.d.
    pub has_update_rc: bool,
    /// True if the service is started.
    pub starts: bool,
}

/// Texts that are made from the table of verbs.
pub struct Texts {
    /// The completions of bash, zsh and fish.
    pub completions: [String; 3],
    /// The manual page.
    pub manual: String,
}

impl Place {
    /// True if the node itself gets podprobe, and not an image of a node.
    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    fn program(&self) -> PathBuf {
        self.prefix.join("bin/podprobe")
    }

    fn service(&self, template: &str, path: &str, mode: u32) -> Step {
        let program = self.program();
        Step::File {
            path: path.into(),
            mode,
            text: template.replace(PROGRAM, &program.to_string_lossy()),
        }
    }
}

/// Returns the steps of an installation in their order. The service is written before it is started, and after the program.
pub fn steps(place: &Place, texts: Texts) -> Vec<Step> {
    let mut steps = vec![
        Step::Program(place.program()),
        Step::Directory("/etc/podprobe/pods".into()),
        Step::UsersFile("/etc/podprobe/config.json".into(), "{}\n"),
    ];
    let shared = [
        "bash-completion/completions/podprobe",
        "zsh/site-functions/_podprobe",
        "fish/vendor_completions.d/podprobe.fish",
        "man/man8/podprobe.8",
    ];
    let texts = texts.completions.into_iter().chain([texts.manual]);
    steps.extend(
        shared
            .into_iter()
            .zip(texts)
            .map(|(path, text)| Step::File {
                path: place.prefix.join("share").join(path),
                mode: 0o644,
                text,
            }),
    );
    let link = |at: &str, to: &str| Step::Link(at.into(), to.into());
    match place.init {
        InitSystem::Systemd => {
            for (unit, text) in [
                ("podprobe.service", UNIT),
                ("podprobe-shutdown.service", SHUTDOWN_UNIT),
            ] {
                let path = format!("{UNITS}/{unit}");
                let wanted = format!("{UNITS}/multi-user.target.wants/{unit}");
                steps.extend([place.service(text, &path, 0o644), link(&wanted, &path)]);
            }
        }
        InitSystem::Openrc => {
            let wanted = "/etc/runlevels/default/podprobe";
            steps.extend([
                place.service(OPENRC, SCRIPT_PATH, 0o755),
                link(wanted, SCRIPT_PATH),
            ]);
        }
        InitSystem::Sysv => {
            steps.push(place.service(SYSV, SCRIPT_PATH, 0o755));
            if place.is_live() && place.has_update_rc {
                steps.push(run(&["update-rc.d", "podprobe", "defaults"]));
            } else {
                let links = place.run_levels.iter().map(|dir| in_run_level(dir));
                steps.extend(links);
            }
        }
        InitSystem::None => {}
    }
    if place.starts {
        steps.extend(start(place.init));
    }
    steps
}

/// Returns the link in the directory of a run level. The levels 0, 1 and 6 end services.
fn in_run_level(dir: &Path) -> Step {
    let level = dir.to_string_lossy();
    let ends = ["rc0.d", "rc1.d", "rc6.d"]
        .iter()
        .any(|end| level.ends_with(end));
    let name = if ends { "K01podprobe" } else { "S99podprobe" };
    Step::Link(Path::new("/").join(dir).join(name), SCRIPT_PATH.into())
}

fn run(words: &[&str]) -> Step {
    Step::Run(words.iter().map(ToString::to_string).collect())
}

/// Returns the commands that start the service, or restart it with the new program.
fn start(init: InitSystem) -> Vec<Step> {
    match init {
        InitSystem::Systemd => vec![
            run(&["systemctl", "daemon-reload"]),
            run(&["systemctl", "restart", "podprobe.service"]),
            run(&["systemctl", "start", "podprobe-shutdown.service"]),
        ],
        InitSystem::Openrc => vec![run(&["rc-service", "podprobe", "restart"])],
        InitSystem::Sysv => vec![run(&[SCRIPT_PATH, "restart"])],
        InitSystem::None => Vec::new(),
    }
}

/// Returns the commands that stop the service.
pub fn stop(init: InitSystem) -> Vec<Step> {
    match init {
        // The daemon goes first, so that the end of the other one ends no pod.
        InitSystem::Systemd => vec![
            run(&["systemctl", "stop", "podprobe.service"]),
            run(&["systemctl", "stop", "podprobe-shutdown.service"]),
        ],
        InitSystem::Openrc => vec![run(&["rc-service", "--ifstarted", "podprobe", "stop"])],
        InitSystem::Sysv => vec![run(&[SCRIPT_PATH, "stop"])],
        InitSystem::None => Vec::new(),
    }
}

/// Returns the commands after the service's files are gone.
pub fn forget(init: InitSystem, has_update_rc: bool) -> Vec<Step> {
    match init {
        InitSystem::Sysv if has_update_rc => vec![run(&["update-rc.d", "podprobe", "remove"])],
        InitSystem::Systemd => vec![run(&["systemctl", "daemon-reload"])],
        InitSystem::Openrc | InitSystem::Sysv | InitSystem::None => Vec::new(),
    }
}

/// Returns the line about what a person does next.
pub fn next(place: &Place) -> String {
    match (place.init, place.starts) {
        (InitSystem::None, _) => format!(
            "no service was written: let something start '{} run' at boot",
            place.program().display()
        ),
        (_, true) => {
            "podprobe runs; put pod files into /etc/podprobe/pods, and ask 'podprobe status'".into()
        }
        // It cannot be run in an image of another processor.
        (InitSystem::Sysv, false) if place.has_update_rc && !place.is_live() => format!(
            "run 'chroot {} update-rc.d podprobe defaults', and podprobe starts at the next boot",
            place.root.display()
        ),
        (_, false) => "podprobe starts at the next boot".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_for(init: InitSystem, starts: bool) -> Vec<Step> {
        let place = Place {
            root: "/".into(),
            prefix: "/opt/pp".into(),
            init,
            run_levels: ["etc/rc2.d", "etc/rc6.d"].map(PathBuf::from).into(),
            has_update_rc: false,
            starts,
        };
        let texts = Texts {
            completions: ["bash", "zsh", "fish"].map(str::to_owned),
            manual: "manual".to_owned(),
        };
        steps(&place, texts)
    }

    /// Returns the paths and commands of the steps after those that every init system has.
    fn own(init: InitSystem) -> Vec<String> {
        let common = steps_for(InitSystem::None, true).len();
        let own = steps_for(init, true).into_iter().skip(common);
        own.map(|step| match step {
            Step::File { path, mode, text } => {
                assert!(text.contains("/opt/pp/bin/podprobe") && !text.contains(PROGRAM));
                format!("{} {mode:o}", path.display())
            }
            Step::Link(path, to) => format!("{} -> {}", path.display(), to.display()),
            Step::Run(words) => words.join(" "),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn each_init_system_has_its_service() {
        assert_eq!(
            own(InitSystem::Systemd),
            [
                "/etc/systemd/system/podprobe.service 644",
                "/etc/systemd/system/multi-user.target.wants/podprobe.service -> /etc/systemd/system/podprobe.service",
                "/etc/systemd/system/podprobe-shutdown.service 644",
                "/etc/systemd/system/multi-user.target.wants/podprobe-shutdown.service -> /etc/systemd/system/podprobe-shutdown.service",
                "systemctl daemon-reload",
                "systemctl restart podprobe.service",
                "systemctl start podprobe-shutdown.service",
            ]
        );
        assert_eq!(
            own(InitSystem::Openrc),
            [
                "/etc/init.d/podprobe 755",
                "/etc/runlevels/default/podprobe -> /etc/init.d/podprobe",
                "rc-service podprobe restart",
            ]
        );
        assert_eq!(
            own(InitSystem::Sysv),
            [
                "/etc/init.d/podprobe 755",
                "/etc/rc2.d/S99podprobe -> /etc/init.d/podprobe",
                "/etc/rc6.d/K01podprobe -> /etc/init.d/podprobe",
                "/etc/init.d/podprobe restart",
            ]
        );
    }

    #[test]
    fn the_program_and_its_texts_are_written_for_every_init_system() {
        let steps = steps_for(InitSystem::None, false);
        let paths: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Program(path)
                | Step::Directory(path)
                | Step::UsersFile(path, _)
                | Step::File { path, .. } => path.display().to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            paths,
            [
                "/opt/pp/bin/podprobe",
                "/etc/podprobe/pods",
                "/etc/podprobe/config.json",
                "/opt/pp/share/bash-completion/completions/podprobe",
                "/opt/pp/share/zsh/site-functions/_podprobe",
                "/opt/pp/share/fish/vendor_completions.d/podprobe.fish",
                "/opt/pp/share/man/man8/podprobe.8",
            ]
        );
    }

    #[test]
    fn where_update_rc_d_keeps_the_links_it_is_asked_on_the_node_itself() {
        let place = |root: &str| Place {
            root: root.into(),
            prefix: "/usr/local".into(),
            init: InitSystem::Sysv,
            run_levels: vec!["etc/rc2.d".into()],
            has_update_rc: true,
            starts: false,
        };
        let texts = || Texts {
            completions: Default::default(),
            manual: String::new(),
        };
        let is_asked = |step: &Step| *step == run(&["update-rc.d", "podprobe", "defaults"]);
        let is_link = |step: &Step| matches!(step, Step::Link(..));
        let of = |root: &str| {
            let steps = steps(&place(root), texts());
            (steps.iter().any(is_asked), steps.iter().any(is_link))
        };
        assert_eq!([of("/"), of("/image")], [(true, false), (false, true)]);
        let then = "run 'chroot /image update-rc.d podprobe defaults', and podprobe starts at the next boot";
        assert_eq!(next(&place("/image")), then);
        let last = forget(InitSystem::Sysv, true);
        assert_eq!(last, [run(&["update-rc.d", "podprobe", "remove"])]);
        assert_eq!(forget(InitSystem::Sysv, false), []);
    }

    #[test]
    fn nothing_is_started_for_an_image() {
        let all = steps_for(InitSystem::Systemd, false);
        assert!(!all.iter().any(|step| matches!(step, Step::Run(_))));
    }
}
