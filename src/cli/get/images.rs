//! The form `get images`: lists the same images as `image list`. The form reads the files of the image store, with
//! or without a daemon.

use serde_json::{Value, json};

use super::Get;
use super::item::{Found, Item};
use crate::base::clock::Time;
use crate::base::paths::Layout;
use crate::cli::error::CliError;
use crate::cli::human;
use crate::cli::image::{self, cells};
use crate::cli::suggest::did_you_mean;
use crate::engine::images::{ImageRecord, Reference};

/// Returns the requested images.
///
/// # Errors
/// Returns a [`CliError`] if the image store cannot be read.
pub fn find(get: &Get) -> Result<Found, CliError> {
    let images = image::open(&Layout::new(&get.root))?;
    let records = images.list().map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(select(get, &records, Time::now()))
}

fn select(get: &Get, records: &[ImageRecord], now: Time) -> Found {
    let mut found = Found::default();
    if get.names.is_empty() {
        found.items = records.iter().map(|r| item(r, now)).collect();
        if records.iter().any(|r| r.name.is_none()) {
            found.notes.push(image::NAMELESS.trim().to_owned());
        }
    }
    for name in &get.names {
        match records.iter().find(|r| is_named(r, name)) {
            Some(record) => found.items.push(item(record, now)),
            None => {
                let known = records.iter().filter_map(|r| r.name.as_deref());
                let likely = did_you_mean(name, known, "");
                found
                    .missing
                    .push(format!("images \"{name}\" not found{likely}"));
            }
        }
    }
    found
}

/// Tells whether `name` stands for the image. `name` may be the image's full name, its short name, or the first
/// digits of its id.
fn is_named(record: &ImageRecord, name: &str) -> bool {
    let whole = Reference::parse(name).map(|r| r.to_string());
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    let id = record.id.strip_prefix("sha256:").unwrap_or(&record.id);
    record.name.is_some() && record.name == whole.ok()
        || (digits.len() >= 6 && id.starts_with(digits))
}

fn item(record: &ImageRecord, now: Time) -> Item {
    let mut cells = cells(record).to_vec();
    cells.push(match record.created {
        Some(created) => format!("{} ago", human::since(Some(created), now)),
        None => "<unknown>".into(),
    });
    Item {
        name: record.name.clone().unwrap_or_else(|| record.id.clone()),
        cells,
        object: object(record),
        ..Item::default()
    }
}

fn object(record: &ImageRecord) -> Value {
    let name = record.name.as_ref().unwrap_or(&record.id);
    json!({"apiVersion": "podprobe/v1", "kind": "Image", "metadata": {"name": name, "creationTimestamp": record.created},
        "names": record.name.as_slice(), "id": record.id, "sizeBytes": record.size})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: &[&str], missing: &[&str]) {
        let record = |name: Option<&str>, id: &str| ImageRecord {
            name: name.map(str::to_owned),
            id: format!("sha256:{}", id.repeat(8)),
            size: 1500,
            created: None,
        };
        let records = [
            record(Some("docker.io/library/app:1"), "01234567"),
            record(None, "89abcdef"),
        ];
        let get = Get {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..Get::default()
        };
        let found = select(&get, &records, Time::now());
        let rows: Vec<String> = found.items.iter().map(|i| i.cells.join(" ")).collect();
        assert_eq!(rows, expected);
        assert_eq!(found.missing, missing);
        assert_eq!(found.notes.len(), usize::from(names.is_empty()));
    }

    #[test]
    fn images_are_found_by_name_and_by_id() {
        let app = "docker.io/library/app:1 0123456701234 1.50kB <unknown>";
        let old = "<none> 89abcdef89abc 1.50kB <unknown>";
        check(&[], &[app, old], &[]);
        check(&["app:1"], &[app], &[]);
        check(&["docker.io/library/app:1", "89abcdef"], &[app, old], &[]);
        check(&["sha256:01234567"], &[app], &[]);
        check(&["app:2"], &[], &["images \"app:2\" not found"]);
        check(&["89ab"], &[], &["images \"89ab\" not found"]);
    }
}
