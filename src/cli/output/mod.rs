//! The output formats of `-o`, and the writing of objects in these formats.

pub mod custom_columns;
pub mod json;
pub mod yaml;

use std::io::Write;

use serde_json::{Value, json};

use self::custom_columns::CustomColumns;
use super::error::CliError;
use super::jsonpath::{JsonPathError, Template};
use super::suggest::did_you_mean;

/// The values of `-o`.
const FORMS: [&str; 6] = [
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath=TEMPLATE",
    "custom-columns=SPEC",
];

/// The output format of `get`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Output {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// A line `kind/NAME` for each object.
    Name,
    /// The text that the template renders from the objects.
    JsonPath(Template),
    /// A table with the columns that the user chooses.
    CustomColumns(CustomColumns),
}

impl Output {
    /// Parses the value of `-o`.
    ///
    /// # Errors
    /// Returns a sentence if there is no such format, or if its template is wrong.
    pub fn parse(word: &str) -> Result<Self, String> {
        let (form, value) = match word.split_once('=') {
            Some((form, value)) => (form, Some(value)),
            None => (word, None),
        };
        match (form, value) {
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => {
                Template::parse(template).map(Self::JsonPath).map_err(|e| e.to_string())
            }
            ("custom-columns", Some(spec)) => CustomColumns::parse(spec).map(Self::CustomColumns),
            ("jsonpath", None) => {
                Err("-o jsonpath needs a template: -o jsonpath='{.items[*].metadata.name}'".into())
            }
            ("custom-columns", None) => Err(
                "-o custom-columns needs columns: -o custom-columns=NAME:.metadata.name,IP:.status.podIP".into(),
            ),
            _ => Err(format!(
                "unknown output form '{word}'{}; -o takes {}",
                did_you_mean(form, FORMS.map(|f| f.split('=').next().unwrap_or(f)), ""),
                FORMS.join(", ")
            )),
        }
    }

    /// Tells whether the output is a table with the columns of the kind.
    pub fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Returns several objects as a v1 `List`, as kubectl prints several objects. Refused files are not objects, so
/// the metadata of the list holds the refused files.
pub fn list(items: Vec<Value>, refused: Option<Value>) -> Value {
    let mut list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    if let Some(refused) = refused {
        list["metadata"]["refusedFiles"] = refused;
    }
    list
}

/// Writes an object or a list as YAML, as JSON, or with a template.
///
/// # Errors
/// Returns a [`CliError`] if the template does not fit the value, or if the output cannot be written.
pub fn write(form: &Output, value: &Value, out: &mut dyn Write) -> Result<(), CliError> {
    match form {
        Output::Yaml => out.write_all(yaml::document(value).as_bytes())?,
        Output::JsonPath(template) => {
            let text = template.render(value).map_err(failed)?;
            out.write_all(json::escape_unsafe(text.into()).as_bytes())?;
        }
        _ => json::write_json(value, out)?,
    }
    Ok(())
}

/// Converts the error of a template that is valid but does not fit the objects.
pub fn failed(e: JsonPathError) -> CliError {
    CliError::Failed(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(word: &str, expected: &str) {
        assert_eq!(Output::parse(word), Err(expected.into()));
    }

    #[test]
    fn a_form_that_is_not_known_gets_the_likely_one() {
        let takes = "; -o takes wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=SPEC";
        check_error(
            "yml",
            &format!("unknown output form 'yml', did you mean 'yaml'?{takes}"),
        );
        check_error("table", &format!("unknown output form 'table'{takes}"));
        check_error(
            "json=x",
            &format!("unknown output form 'json=x', did you mean 'json'?{takes}"),
        );
        check_error(
            "jsonpath",
            "-o jsonpath needs a template: -o jsonpath='{.items[*].metadata.name}'",
        );
        check_error(
            "jsonpath={.a",
            "jsonpath, character 4: '}' is missing at the end",
        );
        check_error(
            "custom-columns",
            "-o custom-columns needs columns: -o custom-columns=NAME:.metadata.name,IP:.status.podIP",
        );
    }

    #[test]
    fn a_template_may_hold_what_separates() {
        assert!(matches!(
            Output::parse("jsonpath={.a[?(@.b==1)]}"),
            Ok(Output::JsonPath(_))
        ));
    }

    #[test]
    fn several_are_a_list() {
        let refused = list(vec![json!(1)], Some(json!(["f"])));
        assert_eq!(
            (&refused["kind"], &refused["items"]),
            (&json!("List"), &json!([1]))
        );
        assert_eq!(refused["metadata"]["refusedFiles"], json!(["f"]));
        assert_eq!(
            list(vec![], None)["metadata"],
            json!({"resourceVersion": ""})
        );
    }
}
