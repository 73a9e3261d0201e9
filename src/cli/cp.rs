//! The verb `cp`: copies files into a container and out of it. The daemon reads and writes the files in the
//! container.

mod connection;
mod spec;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use self::connection::{Body, Connection, Upload};
use self::spec::{Place, Side};
use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::{Client, ClientError};
use super::error::CliError;
use super::exec;
use super::logs::choose::container;
use super::workload_pods::{self, Choice, Target as PodTarget};
use crate::engine::file_copy::{CopyError, Placement, Root, Source, Target, unpack};
use crate::face::server::protocol::API;
use crate::face::server::request::encoded;

/// The verb `cp`.
pub const VERB: args::Verb = args::Verb {
    name: "cp",
    summary: &[("cp SRC DST", "copy files into a container or out of it")],
    help: "\
usage: podprobe cp [-c CONTAINER] [-n NAMESPACE] [--root DIR] SRC [NAMESPACE/]POD:PATH
       podprobe cp [-c CONTAINER] [-n NAMESPACE] [--root DIR] [NAMESPACE/]POD:PATH DST

Copies a file, or a directory with all that is in it. The container must run; it needs no tar or shell. A destination
that is a directory gets the copy under its own name, else the copy gets the name of the destination; of a source that
ends with /. the content is copied. With - for SRC a tar is read from standard input and unpacked in the directory
PATH; with - for DST a tar is written to standard output. A relative PATH begins at / of the container. POD may be a
workload, such as deployment/web: then it is a pod of it that is ready.

Permissions and times are kept, set-user-id bits and extended attributes are not. New files belong to the user of the
container, on the node to you. Links are copied as links, and none is followed below SRC or DST; devices, FIFOs and
sockets are left out with a note. A file is replaced as a whole: a copy that breaks off leaves none half written.

  -c, --container NAME     default: the container that the annotation kubectl.kubernetes.io/default-container names, or
                           the first one
",
    options: &[ROOT, NAMESPACE, Opt::value("container", Some('c'))],
    run: |raw, _, err| {
        let copy = parse(raw).map_err(CliError::Usage)?;
        run(&copy, err)
    },
};

/// The arguments of `cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    root: PathBuf,
    namespace: Option<String>,
    container: Option<String>,
    pod: PodTarget,
    place: Place,
    way: Way,
}

/// The direction of the copy, with the path on the node. If the path is None, the copy uses standard input or
/// standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    In(Option<OsString>),
    Out(Option<OsString>),
}

fn parse(raw: &Raw) -> Result<Copy, String> {
    let [source, destination] = raw.words.as_slice() else {
        return Err("'cp' needs a source and a destination: podprobe cp FILE POD:PATH, or podprobe cp POD:PATH FILE".into());
    };
    let on_node = |side| match side {
        Side::Node(path) => Some(path),
        _ => None,
    };
    let (place, way) = match (spec::parse(source)?, spec::parse(destination)?) {
        (Side::Container(_), Side::Container(_)) => {
            return Err(
                "one of source and destination must be a path on the node; copy in two steps"
                    .into(),
            );
        }
        (Side::Container(place), node) => (place, Way::Out(on_node(node))),
        (node, Side::Container(place)) => (place, Way::In(on_node(node))),
        _ => {
            return Err(
                "one of source and destination must be in a container: [NAMESPACE/]POD:PATH".into(),
            );
        }
    };
    let namespace = match (&place.namespace, raw.namespace()?) {
        (Some(named), Some(given)) if *named != given => {
            return Err(format!(
                "-n {given} and {named}/{} exclude each other",
                place.pod
            ));
        }
        (named, given) => given.or(named.clone()),
    };
    Ok(Copy {
        root: raw.root()?,
        namespace,
        container: raw.text("container")?,
        pod: PodTarget::parse(&place.pod)?,
        place,
        way,
    })
}

fn run(copy: &Copy, err: &mut dyn Write) -> Result<ExitCode, CliError> {
    if copy.way == Way::Out(None) && io::stdout().is_terminal() {
        let text =
            "a tar is not written to a terminal; name a file or a directory, or add '| tar t'";
        return Err(CliError::Failed(text.into()));
    }
    let mut client = Client::connect(&copy.root)?;
    let target = target(copy, &mut client, err)?;
    let connection = Connection::new(client).map_err(failed)?;
    let notes = match &copy.way {
        Way::Out(to) => {
            let body = connection.get(&target).map_err(of_daemon)?;
            out(body, to.as_ref())?
        }
        Way::In(Some(path)) => {
            // The source is checked before the daemon is asked to write anything.
            let source = Source::find(&Root::Node, path.as_bytes()).map_err(failed)?;
            send(source, connection.put(&target)?)?
        }
        Way::In(None) => send_tar(connection.put(&format!("{target}&extract=true"))?)?,
    };
    for note in notes {
        writeln!(err, "podprobe: {note}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the path and query of the request.
fn target(copy: &Copy, client: &mut Client, err: &mut dyn Write) -> Result<String, CliError> {
    let snapshot = client.snapshot()?;
    let place = (&*snapshot, copy.namespace.as_deref());
    let pod = workload_pods::resolve(&copy.pod, Choice::Attach, client, place, err)?;
    let (container, note) = container(pod, copy.container.as_deref()).map_err(CliError::Failed)?;
    if let Some(note) = note {
        writeln!(err, "{note}")?;
    }
    Ok(format!(
        "{API}/files{}?path={}",
        exec::path(pod, &container),
        encoded(&copy.place.path)
    ))
}

fn failed(e: impl Display) -> CliError {
    CliError::Failed(e.to_string())
}

/// Converts an error of the client. If the daemon refused the request, the daemon's sentence is the whole error.
fn of_daemon(e: ClientError) -> CliError {
    match e {
        ClientError::Refused(text) => CliError::Failed(text),
        e => e.into(),
    }
}

/// Copies files out of the container.
fn out(mut body: Body, to: Option<&OsString>) -> Result<Vec<String>, CliError> {
    let Some(path) = to else {
        // The tar goes directly to standard output. The verb's writer would change the bytes to make text safe for
        // a terminal.
        let copied = copy_bytes(&mut body, &mut io::stdout());
        return match copied {
            Ok(()) => Ok(Vec::new()),
            Err(Broken::Read(e)) => Err(failed(CopyError::Stream(e))),
            Err(Broken::Write(e)) => Err(e.into()),
        };
    };
    let target = Target {
        root: &Root::Node,
        path: path.as_bytes(),
        owner: None,
        placement: Placement::Copy,
    };
    let done = unpack(&target, &mut body).map_err(failed)?;
    Ok(done.notes.into_texts())
}

/// Copies files into the container.
fn send(source: Source, mut upload: Upload) -> Result<Vec<String>, CliError> {
    match source.pack(&mut upload, || Ok(())) {
        Ok(packed) => {
            let copied = upload.finish().map_err(of_daemon)?;
            let own = packed.notes.into_texts().into_iter();
            let new = copied.notes.into_iter();
            let mut notes: Vec<String> = own.collect();
            let new: Vec<String> = new.filter(|note| !notes.contains(note)).collect();
            notes.extend(new);
            Ok(notes)
        }
        // The daemon stopped reading, because it has refused the request. Its answer says why.
        Err(e @ CopyError::Stream(_)) => match upload.refusal() {
            Some(refusal) => Err(of_daemon(refusal)),
            None => Err(failed(e)),
        },
        Err(e) => Err(failed(format!("{e}; the files before it were copied"))),
    }
}

/// Copies standard input, which is a tar, into the container.
fn send_tar(mut upload: Upload) -> Result<Vec<String>, CliError> {
    match copy_bytes(&mut io::stdin().lock(), &mut upload) {
        Ok(()) => Ok(upload.finish().map_err(of_daemon)?.notes),
        // The daemon stopped reading, because it has refused the request. Its answer says why.
        Err(Broken::Write(e)) => Err(upload
            .refusal()
            .map_or_else(|| failed(CopyError::Stream(e)), of_daemon)),
        Err(Broken::Read(e)) => Err(failed(format!("cannot read standard input: {e}"))),
    }
}

/// The side of the copy that has failed: reading or writing.
enum Broken {
    Read(io::Error),
    Write(io::Error),
}

/// Copies all bytes from `from` to `to`, one buffer at a time.
fn copy_bytes(from: &mut dyn Read, to: &mut dyn Write) -> Result<(), Broken> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = match from.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Broken::Read(e)),
            Ok(n) => n,
        };
        let written = match n {
            0 => return to.flush().map_err(Broken::Write),
            n => to.write_all(&buffer[..n]),
        };
        written.map_err(Broken::Write)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    fn parsed(line: &str) -> Result<Copy, String> {
        testing::parse(&VERB, parse, line)
    }

    #[test]
    fn one_side_is_a_container() {
        let copy = |way| Copy {
            root: "/".into(),
            namespace: None,
            container: None,
            pod: PodTarget::Pod("web".into()),
            place: Place {
                namespace: None,
                pod: "web".into(),
                path: "/a".into(),
            },
            way,
        };
        assert_eq!(parsed("cp web:/a b"), Ok(copy(Way::Out(Some("b".into())))));
        assert_eq!(parsed("cp b web:/a"), Ok(copy(Way::In(Some("b".into())))));
        assert_eq!(parsed("cp web:/a -"), Ok(copy(Way::Out(None))));
        assert_eq!(parsed("cp - web:/a"), Ok(copy(Way::In(None))));
        let named = parsed("cp -c x n/web:/a b").unwrap();
        assert_eq!(named.namespace.as_deref(), Some("n"));
        assert_eq!(named.container.as_deref(), Some("x"));
        assert_eq!(
            parsed("cp -n n n/web:/a b").unwrap(),
            Copy {
                container: None,
                ..named
            }
        );
    }

    #[test]
    fn what_is_no_copy_is_named() {
        for (line, expected) in [
            (
                "cp a",
                "'cp' needs a source and a destination: podprobe cp FILE POD:PATH, or podprobe cp POD:PATH FILE",
            ),
            (
                "cp a b",
                "one of source and destination must be in a container: [NAMESPACE/]POD:PATH",
            ),
            (
                "cp a:b c:d",
                "one of source and destination must be a path on the node; copy in two steps",
            ),
            ("cp -n m n/web:/a b", "-n m and n/web exclude each other"),
        ] {
            assert_eq!(parsed(line), Err(expected.into()), "{line}");
        }
    }
}
