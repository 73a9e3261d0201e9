//! The format `-o custom-columns=NAME:.metadata.name,…`: a table with columns that the user chooses.

use serde_json::Value;

use crate::cli::jsonpath::{JsonPathError, Path, text};
use crate::cli::terminal::one_line;

/// The text for a cell without a value.
const NONE: &str = "<none>";
/// The largest number of columns.
pub const MAX_COLUMNS: usize = 64;

/// The columns that the user chooses, in order. Each column has a header and a path.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumns(Vec<(String, Path)>);

impl CustomColumns {
    /// Parses `HEADER:path,…`.
    ///
    /// # Errors
    /// Returns a sentence that names the wrong column and says why it is wrong.
    pub fn parse(spec: &str) -> Result<Self, String> {
        let columns = split(spec).into_iter().map(column);
        let columns: Vec<_> = columns.collect::<Result<_, _>>()?;
        match columns.len() {
            0..=MAX_COLUMNS => Ok(Self(columns)),
            n => Err(format!(
                "custom-columns: {n} columns; {MAX_COLUMNS} at most"
            )),
        }
    }

    /// Returns the headers of the columns.
    pub fn header(&self) -> Vec<String> {
        self.0.iter().map(|(header, _)| header.clone()).collect()
    }

    /// Returns the row of an object.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] if a path does not fit the object, as [`Path::find`] does.
    pub fn row(&self, object: &Value) -> Result<Vec<String>, JsonPathError> {
        self.0.iter().map(|(_, path)| cell(path, object)).collect()
    }
}

/// Splits the text at each comma outside of brackets.
fn split(spec: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let outside = move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    spec.split(outside).collect()
}

fn column(text: &str) -> Result<(String, Path), String> {
    match text.split_once(':') {
        Some((header, path)) if !header.is_empty() => {
            let path =
                Path::parse(path).map_err(|e| format!("custom-columns: column {header}: {e}"))?;
            Ok((header.to_owned(), path))
        }
        _ => Err(format!(
            "custom-columns: '{text}' is no column; write HEADER:PATH, such as NAME:.metadata.name,IP:.status.podIP"
        )),
    }
}

fn cell(path: &Path, object: &Value) -> Result<String, JsonPathError> {
    let found = path.find(object)?;
    let texts = found.into_iter().filter(|v| !v.is_null()).map(text);
    let texts: Vec<String> = texts.collect();
    Ok(match texts.is_empty() {
        true => NONE.into(),
        false => one_line(&texts.join(",")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_paths_with_a_header() {
        let spec = "NAME:.metadata.name,IMAGES:.spec.c[*].image,FIRST:{.spec.c[0,1].image},X:.x,NULL:n,NO TAG:.spec.c[?(@.image==\"b\\nc\")]";
        let columns = CustomColumns::parse(spec).unwrap();
        assert_eq!(
            columns.header(),
            ["NAME", "IMAGES", "FIRST", "X", "NULL", "NO TAG"]
        );
        let object = json!({"metadata": {"name": "web"}, "spec": {"c": [{"image": "a"}, {"image": "b\nc"}]}, "n": null});
        let expected = [
            "web",
            "a,b c",
            "a,b c",
            "<none>",
            "<none>",
            "{\"image\":\"b\\nc\"}",
        ];
        assert_eq!(columns.row(&object).unwrap(), expected);
    }

    #[track_caller]
    fn check_error(spec: &str, expected: &str) {
        assert_eq!(
            CustomColumns::parse(spec),
            Err(format!("custom-columns: {expected}"))
        );
    }

    #[test]
    fn what_is_no_column_is_named() {
        let form = "is no column; write HEADER:PATH, such as NAME:.metadata.name,IP:.status.podIP";
        check_error("", &format!("'' {form}"));
        check_error("A:.a,B", &format!("'B' {form}"));
        check_error(":.a", &format!("':.a' {form}"));
        check_error(
            "A:.a,B:.b[",
            "column B: jsonpath, character 4: brackets take *, 'key', an index, a slice such as 0:2, or ?(filter)",
        );
        let many = vec!["A:.a"; 65].join(",");
        check_error(&many, "65 columns; 64 at most");
    }
}
