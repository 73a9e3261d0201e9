//! `image`: loads, imports, lists and removes images. Works on the store's files, with or without a daemon.

use std::io::Write;

use super::args::{ImageAction, ImageSource};
use super::connect::{ImageRow, Images};
use super::error::CliError;
use super::get::write_rows;

/// Does one action and says on `out` what came of it.
pub fn run(action: &ImageAction, images: &dyn Images, out: &mut dyn Write) -> Result<(), CliError> {
    match action {
        ImageAction::Load(paths) => {
            for path in paths {
                for name in images.load(path).map_err(CliError::Failed)? {
                    writeln!(out, "loaded {name}")?;
                }
            }
        }
        ImageAction::Import(path, name) => writeln!(
            out,
            "imported {}",
            images.import(path, name).map_err(CliError::Failed)?
        )?,
        ImageAction::List => list(&images.list().map_err(CliError::Failed)?, out)?,
        ImageAction::Remove(names) => {
            for name in names {
                images.remove(name).map_err(CliError::Failed)?;
                writeln!(out, "removed {name}")?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Loads or imports one `--image` of `try`.
pub fn add(source: &ImageSource, images: &dyn Images) -> Result<(), String> {
    match &source.name {
        Some(name) => images.import(&source.path, name).map(|_| ()),
        None => images.load(&source.path).map(|_| ()),
    }
}

fn list(rows: &[ImageRow], out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = vec![["IMAGE", "IMAGE ID", "SIZE"].map(str::to_owned).to_vec()];
    for row in rows {
        let id = row
            .id
            .strip_prefix("sha256:")
            .unwrap_or(&row.id)
            .chars()
            .take(13)
            .collect::<String>();
        let names = if row.names.is_empty() {
            vec!["<none>".to_owned()]
        } else {
            row.names.clone()
        };
        table.extend(
            names
                .into_iter()
                .map(|name| vec![name, id.clone(), size(row.size)]),
        );
    }
    write_rows(&table, &mut Vec::new(), out)
}

/// Three digits in decimal units, as `crictl images` has them.
fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    match (unit, value) {
        ("B", _) => format!("{bytes}B"),
        (_, v) if v < 9.995 => format!("{v:.2}{unit}"),
        (_, v) if v < 99.95 => format!("{v:.1}{unit}"),
        (_, v) => format!("{v:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.00kB"),
            (12_345, "12.3kB"),
            (999_499, "999kB"),
            (999_500, "1.00MB"),
            (1_234_567_890, "1.23GB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn the_list_has_a_row_per_name() {
        let mut out = Vec::new();
        let rows = [ImageRow {
            names: vec!["docker.io/library/a:1".into(), "b:2".into()],
            id: "sha256:0123456789abcdef".into(),
            size: 1500,
        }];
        list(&rows, &mut out).unwrap();
        let expected = "IMAGE                   IMAGE ID        SIZE\n\
                        docker.io/library/a:1   0123456789abc   1.50kB\n\
                        b:2                     0123456789abc   1.50kB\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
