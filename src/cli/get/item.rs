//! Rows, each with the object that the row shows. `get` prints the rows of every kind in the same way.

use serde_json::Value;

use crate::cli::jsonpath::{JsonPathError, Path, order};

/// A row of a table, and the object that the row shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// The field `metadata.namespace`; empty if the kind has no namespace.
    pub namespace: String,
    /// The field `metadata.name`, which `-o name` prints.
    pub name: String,
    /// The columns of the kind, including the columns of `-o wide`.
    pub cells: Vec<String>,
    /// The object that the row shows.
    pub object: Value,
    /// A text of the visible state. `-w` prints the row again when this text changes.
    pub visible: String,
}

/// The result of a `get`: the requested objects, refused files, notes, and names that were not found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The requested objects.
    pub items: Vec<Item>,
    /// Rows for files that are refused. These rows are shown in tables, and in the metadata of a list.
    pub refused: Vec<Item>,
    /// Notes that are printed to stderr after a table.
    pub notes: Vec<String>,
    /// A sentence for each requested name that was not found. If there is such a name, the verb fails.
    pub missing: Vec<String>,
}

impl Found {
    /// Sorts the items by the first value that the path finds in each object. Objects in which the path finds no
    /// value come first.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] if the path does not fit an object.
    pub fn sort(&mut self, by: &Path) -> Result<(), JsonPathError> {
        let first = |item: &Item| Ok(by.find(&item.object)?.first().map(|v| (*v).clone()));
        let keys = self.items.iter().map(first);
        let keys: Vec<Option<Value>> = keys.collect::<Result<_, JsonPathError>>()?;
        let mut keyed: Vec<_> = keys
            .into_iter()
            .zip(std::mem::take(&mut self.items))
            .collect();
        keyed.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) => order(a, b).unwrap_or(std::cmp::Ordering::Equal),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        self.items = keyed.into_iter().map(|(_, item)| item).collect();
        Ok(())
    }

    /// Returns the rows of a table.
    pub fn rows(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().chain(&self.refused)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_sorted_by_what_a_path_finds() {
        let item = |name: &str, n: Value| Item {
            name: name.into(),
            object: json!({"n": n}),
            ..Item::default()
        };
        let mut found = Found {
            items: vec![
                item("c", json!(10)),
                item("a", json!(9)),
                item("b", json!(null)),
            ],
            ..Found::default()
        };
        found.items[2].object = json!({});
        found.sort(&Path::parse(".n").unwrap()).unwrap();
        let names: Vec<&str> = found.items.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
