//! The verb `image`: pulls, loads, imports, saves, inspects, lists and removes images. The verb works on the files
//! of the image store, with or without a daemon.

use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{self, Opt, ROOT, Raw};
use super::error::CliError;
use super::human::size;
use super::image_pull;
use super::run::log_levels;
use super::suggest::did_you_mean;
use super::table::write_rows;
use super::terminal::say;
use crate::base::paths::Layout;
use crate::daemon::logging;
use crate::daemon::settings::Settings;
use crate::engine::images::registry::RegistryPuller;
use crate::engine::images::{
    ImageConfig, ImageError, ImageRecord, ImageStore, LoadedImage, save_to,
};
use crate::engine::shims;

/// The verb `image`.
pub const VERB: args::Verb = args::Verb {
    name: "image",
    summary: &[(
        "image pull|load|import|save|inspect|list|rm",
        "put images on the node",
    )],
    help: "\
usage: podprobe image pull NAME… | load FILE… | import PATH NAME | save NAME… -o FILE | inspect NAME | list | rm NAME…
                      [--root DIR] [--config FILE]

  pull NAME                from the registry in the name; `registries` in the configuration has mirrors, logins and
                           certificates
  load FILE                an OCI layout (directory or tar) or a docker archive
  import PATH NAME         make the image NAME from a plain root directory, a tar of one, or a statically linked
                           program, which it then runs
  save NAME… -o FILE       a docker archive of images, for `image load` on another node; `-o -` writes it to stdout
  inspect NAME             what is known of an image, as JSON
  list                     images on the node, the newest of each name first
  rm NAME                  remove the name; the image itself is removed when nothing uses it

Works with or without a daemon. An image that has lost its name to a newer one is listed as <none>; the daemon removes
it after ten minutes unless a container uses it.
",
    options: &[ROOT, Opt::value("config", None), Opt::value("output", Some('o'))],
    run: |raw, out, _| {
        let image = parse(raw).map_err(CliError::Usage)?;
        // Repairs of the image store are logged to stderr.
        logging::start_direct(log_levels(), Box::new(std::io::stderr()));
        run(&image, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `image`.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Root directory, which contains the image store.
    pub root: PathBuf,
    /// Path of the configuration; None means the file below the root.
    pub config: Option<PathBuf>,
    /// The action to perform.
    pub action: Action,
}

/// The actions of `image`, with their arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The action `pull NAME…`.
    Pull(Vec<String>),
    /// The action `save NAME… -o FILE`. Without a file, the images go to stdout.
    Save(Vec<String>, Option<PathBuf>),
    /// The action `inspect NAME`.
    Inspect(String),
    /// The action `load FILE…`.
    Load(Vec<PathBuf>),
    /// The action `import PATH NAME`.
    Import(PathBuf, String),
    /// The action `list`.
    List,
    /// The action `rm NAME…`.
    Remove(Vec<String>),
}

fn parse(raw: &Raw) -> Result<Image, String> {
    const ACTIONS: [&str; 7] = ["pull", "load", "import", "save", "inspect", "list", "rm"];
    let usage = "'image' takes: pull NAME…, load FILE…, import PATH NAME, save NAME… -o FILE, inspect NAME, list, or rm NAME…";
    let words = raw.text_words()?;
    let (action, rest) = words.split_first().ok_or(usage)?;
    let output = raw.path("output")?;
    if output.is_some() && action != "save" {
        return Err("-o goes with 'image save' only".into());
    }
    let action = match (action.as_str(), rest) {
        ("save", [_, ..]) => match output {
            None => return Err("'image save' needs -o FILE, or -o - for stdout".into()),
            Some(path) if path == Path::new("-") => Action::Save(rest.to_vec(), None),
            path => Action::Save(rest.to_vec(), path),
        },
        ("pull", [_, ..]) => Action::Pull(rest.to_vec()),
        ("inspect", [name]) => Action::Inspect(name.clone()),
        ("load", [_, ..]) => Action::Load(rest.iter().map(PathBuf::from).collect()),
        ("import", [path, name]) => Action::Import(path.into(), name.clone()),
        ("list" | "ls", []) => Action::List,
        ("rm", [_, ..]) => Action::Remove(rest.to_vec()),
        (known, _) if ACTIONS.contains(&known) => {
            return Err(format!("wrong arguments of 'image {known}': {usage}"));
        }
        (other, _) => {
            return Err(format!(
                "unknown verb 'image {other}'{}: {usage}",
                did_you_mean(other, ACTIONS, "image ")
            ));
        }
    };
    Ok(Image {
        root: raw.root()?,
        config: raw.path("config")?,
        action,
    })
}

/// An image that `try` adds before it starts, written `FILE` or `FILE=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Path of an archive, OCI layout or root directory.
    pub path: PathBuf,
    /// The image's name. If a name is given, the path is a plain root directory, or a tar of a root directory. If
    /// the name is None, the path is an image that contains its own name.
    pub name: Option<String>,
}

impl ImageSource {
    /// Parses `FILE` or `FILE=NAME`. The last `=` separates FILE and NAME, because a path may contain `=`, and a
    /// name may not.
    pub fn parse(value: &OsString) -> Result<Self, String> {
        let (path, name) = match value.to_str().and_then(|v| v.rsplit_once('=')) {
            Some((path, name)) => (PathBuf::from(path), Some(name.to_owned())),
            None => (PathBuf::from(value), None),
        };
        if path.as_os_str().is_empty() || name.as_ref().is_some_and(String::is_empty) {
            return Err(format!(
                "--image takes FILE or FILE=NAME, not '{}'",
                value.to_string_lossy()
            ));
        }
        Ok(Self { path, name })
    }

    /// Loads or imports the image into the store.
    pub fn add(&self, images: &ImageStore) -> Result<(), CliError> {
        match &self.name {
            Some(name) => import(images, &self.path, name).map(drop),
            None => load(images, &self.path).map(drop),
        }
        .map_err(failed)
    }
}

/// Opens the image store below a root.
pub fn open(layout: &Layout) -> Result<ImageStore, CliError> {
    // So that the daemon finds the directories above the store as it makes them itself.
    let made = layout.make(&layout.images());
    made.map_err(|e| CliError::Failed(e.to_string()))?;
    ImageStore::open(layout.images()).map_err(failed)
}

fn failed(e: ImageError) -> CliError {
    CliError::Failed(e.to_string())
}

/// Performs the action and prints its result on `out`.
fn run(image: &Image, out: &mut dyn Write) -> Result<(), CliError> {
    let layout = Layout::new(&image.root);
    let images = open(&layout)?;
    match &image.action {
        Action::Pull(names) => {
            let registries = Settings::load_registries(&layout, image.config.as_deref())
                .map_err(|e| CliError::Failed(e.to_string()))?;
            let puller = RegistryPuller::new(images, registries, layout.docker_configs());
            for name in names {
                let loaded = image_pull::pull(&puller, name).map_err(CliError::Failed)?;
                let (id, size) = (loaded.id.clone(), size(loaded.size));
                let name = warn_and_name(loaded).remove(0);
                writeln!(out, "pulled {name} ({id}, {size})")?;
            }
        }
        Action::Inspect(name) => {
            let details = images.inspect(name).map_err(failed)?;
            let text = serde_json::to_string_pretty(&details);
            let text = text.map_err(|e| CliError::Failed(e.to_string()))?;
            writeln!(out, "{text}")?;
        }
        Action::Save(_, None) if std::io::stdout().is_terminal() => {
            let text = "stdout is a terminal: name a file with -o FILE";
            return Err(CliError::Failed(text.into()));
        }
        Action::Save(names, None) => {
            // The archive goes directly to stdout. The writer `out` escapes control characters, which an archive
            // may have.
            let mut stdout = BufWriter::new(std::io::stdout().lock());
            images.save(names, &mut stdout).map_err(failed)?;
            stdout.flush()?;
        }
        Action::Save(names, Some(path)) => {
            save_to(&images, names, path).map_err(failed)?;
            writeln!(out, "saved {} to {}", names.join(", "), path.display())?;
        }
        Action::Load(paths) => {
            for path in paths {
                for name in load(&images, path).map_err(failed)? {
                    writeln!(out, "loaded {name}")?;
                }
            }
        }
        Action::Import(path, name) => {
            let name = import(&images, path, name).map_err(failed)?;
            writeln!(out, "imported {name}")?;
        }
        Action::List => list(&images.list().map_err(failed)?, out)?,
        Action::Remove(names) => {
            for name in names {
                images
                    .remove(name, &|| shims::images_in_use(&layout))
                    .map_err(failed)?;
                writeln!(out, "removed {name}")?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Loads an archive. Returns the names of the images in the archive. For an image without a name, returns its id.
fn load(images: &ImageStore, path: &Path) -> Result<Vec<String>, ImageError> {
    let loaded = images.load(path)?;
    Ok(loaded.into_iter().flat_map(warn_and_name).collect())
}

/// Makes an image from files, and returns its full name.
fn import(images: &ImageStore, path: &Path, name: &str) -> Result<String, ImageError> {
    let made = images.import(path, name, ImageConfig::default())?;
    Ok(warn_and_name(made).remove(0))
}

/// Prints warnings about an image. Returns the image's names, or the image's id if it has no name.
fn warn_and_name(image: LoadedImage) -> Vec<String> {
    image.warnings.iter().for_each(|warning| say(warning));
    match image.names.is_empty() {
        true => vec![image.id],
        false => image.names,
    }
}

/// The note below a list that has images without a name.
pub(super) const NAMELESS: &str = "\n<none>: an old version whose name another image has now. The daemon removes it within ten minutes \
                        after the last container that uses it is gone.\n";

fn list(rows: &[ImageRecord], out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = vec![["IMAGE", "IMAGE ID", "SIZE"].map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| cells(row).to_vec()));
    write_rows(&table, &mut Vec::new(), out)?;
    match rows.iter().any(|row| row.name.is_none()) {
        true => out.write_all(NAMELESS.as_bytes()),
        false => Ok(()),
    }
}

/// Returns the columns of an image: its name, the first 13 digits of its id, and its size.
pub(super) fn cells(row: &ImageRecord) -> [String; 3] {
    let id = row.id.strip_prefix("sha256:").unwrap_or(&row.id);
    [
        row.name.clone().unwrap_or_else(|| "<none>".to_owned()),
        id.chars().take(13).collect(),
        size(row.size),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check_list(names: &[Option<&str>], expected: &str) {
        let row = |name: &Option<&str>| ImageRecord {
            name: name.map(str::to_owned),
            id: "sha256:0123456789abcdef".into(),
            size: 1500,
            created: None,
        };
        let mut out = Vec::new();
        list(&names.iter().map(row).collect::<Vec<_>>(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_list_has_a_row_per_name_and_says_what_becomes_of_images_without_one() {
        let named = "IMAGE                   IMAGE ID        SIZE\n\
                     docker.io/library/a:1   0123456789abc   1.50kB\n\
                     b:2                     0123456789abc   1.50kB\n";
        check_list(&[Some("docker.io/library/a:1"), Some("b:2")], named);
        let nameless = "IMAGE    IMAGE ID        SIZE\n\
                        b:2      0123456789abc   1.50kB\n\
                        <none>   0123456789abc   1.50kB\n";
        check_list(&[Some("b:2"), None], &(nameless.to_owned() + NAMELESS));
    }

    #[test]
    fn a_store_is_made_where_the_daemon_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        open(&layout).unwrap();
        assert_eq!(layout.make_directories().unwrap(), [], "nothing was open");
    }

    #[track_caller]
    fn check(line: &str, expected: Image) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    #[test]
    fn an_action_has_its_arguments() {
        let image = |action| Image {
            root: "/r".into(),
            config: None,
            action,
        };
        check(
            "image pull a b:1 --root /r",
            image(Action::Pull(vec!["a".into(), "b:1".into()])),
        );
        check(
            "image inspect a --root /r",
            image(Action::Inspect("a".into())),
        );
        check(
            "image load a b --root /r",
            image(Action::Load(vec!["a".into(), "b".into()])),
        );
        check(
            "image import dir x:1 --root /r",
            image(Action::Import("dir".into(), "x:1".into())),
        );
        check(
            "image save a b:1 -o /x.tar --root /r",
            image(Action::Save(
                vec!["a".into(), "b:1".into()],
                Some("/x.tar".into()),
            )),
        );
        check(
            "image save a -o - --root /r",
            image(Action::Save(vec!["a".into()], None)),
        );
        check_error(
            "image save a",
            "'image save' needs -o FILE, or -o - for stdout",
        );
        check_error("image list -o x", "-o goes with 'image save' only");
        check("image list --root /r", image(Action::List));
        check(
            "image rm x y --root /r",
            image(Action::Remove(vec!["x".into(), "y".into()])),
        );
        let usage = "'image' takes: pull NAME…, load FILE…, import PATH NAME, save NAME… -o FILE, inspect NAME, list, or rm NAME…";
        check_error("image", usage);
        check_error(
            "image load",
            &format!("wrong arguments of 'image load': {usage}"),
        );
        check_error(
            "image imprt a b",
            &format!("unknown verb 'image imprt', did you mean 'image import'?: {usage}"),
        );
    }
}
