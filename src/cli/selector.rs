//! The option `-l`: the labels that objects must have, in kubectl's syntax.
//!
//! Invariants: pure. As in an API server, `!=` and `notin` also match an object without the label.

use std::collections::BTreeMap;

use crate::api::validation::{is_qualified_name, is_valid_label_value};

/// A label selector: requirements that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    IsAbsent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key` and `!key`, separated by
    /// commas.
    ///
    /// # Errors
    /// Returns a sentence that names the wrong requirement and says why it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = split(text)?;
        let parts = parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty());
        let requirement =
            |part| Requirement::parse(part).map_err(|why| format!("selector '{part}': {why}"));
        let all: Vec<_> = parts.map(requirement).collect::<Result<_, _>>()?;
        match all.is_empty() {
            true => Err("selector: nothing is asked for; write -l key=value".into()),
            false => Ok(Self(all)),
        }
    }

    /// Tells whether the selector matches an object with these labels.
    pub fn matches(&self, labels: &BTreeMap<&str, &str>) -> bool {
        self.0
            .iter()
            .all(|r| r.holds(labels.get(r.key.as_str()).copied()))
    }
}

/// Splits the text at each comma outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut inside, mut wrong) = (false, false);
    let parts = text.split(|c: char| {
        match c {
            '(' => wrong |= std::mem::replace(&mut inside, true),
            ')' => wrong |= !std::mem::replace(&mut inside, false),
            _ => {}
        }
        c == ',' && !inside
    });
    let parts = parts.collect();
    match wrong || inside {
        true => Err(format!("selector '{text}': its parentheses do not match")),
        false => Ok(parts),
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let (key, test) = if let Some(key) = text.strip_prefix('!') {
            (key, Test::IsAbsent)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Test::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = text.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Test::In(vec![value.trim().to_owned()]))
        } else if let Some((words, values)) = text.split_once('(') {
            set(words, values)?
        } else {
            (text, Test::Exists)
        };
        let requirement = Self {
            key: key.trim().to_owned(),
            test,
        };
        requirement.check().map(|()| requirement)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(why) = is_qualified_name(&self.key).first() {
            let form = "write key=value, key!=value, key in (a,b), key notin (a,b), key or !key";
            return Err(format!(
                "'{}' is no key of a label: {why}; {form}",
                self.key
            ));
        }
        let (Test::In(values) | Test::NotIn(values)) = &self.test else {
            return Ok(());
        };
        values
            .iter()
            .try_for_each(|value| match is_valid_label_value(value).first() {
                Some(why) => Err(format!("'{value}' is no value of a label: {why}")),
                None => Ok(()),
            })
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let is_one = |values: &[String]| value.is_some_and(|v| values.iter().any(|w| w == v));
        match &self.test {
            Test::Exists => value.is_some(),
            Test::IsAbsent => value.is_none(),
            Test::In(values) => is_one(values),
            Test::NotIn(values) => !is_one(values),
        }
    }
}

/// Parses a set. `words` is `key in` or `key notin`, and `values` is `a,b)`.
fn set<'t>(words: &'t str, values: &str) -> Result<(&'t str, Test), String> {
    let values = values
        .strip_suffix(')')
        .ok_or("nothing may follow the closing parenthesis")?;
    let values = values.split(',').map(|v| v.trim().to_owned()).collect();
    match words.trim().rsplit_once(' ') {
        Some((key, "in")) => Ok((key, Test::In(values))),
        Some((key, "notin")) => Ok((key, Test::NotIn(values))),
        _ => Err("before the parentheses stands 'key in' or 'key notin'".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let labels = BTreeMap::from([("app", "web"), ("tier", ""), ("a.io/b", "1")]);
        let parsed = Selector::parse(selector);
        assert_eq!(
            parsed.map(|s| s.matches(&labels)),
            Ok(expected),
            "{selector}"
        );
    }

    #[test]
    fn requirements_are_those_of_kubectl() {
        check("app=web", true);
        check("app==web", true);
        check(" app = web ", true);
        check("app=db", false);
        check("app!=db", true);
        check("app!=web", false);
        check("none!=web", true);
        check("none=web", false);
        check("tier=", true);
        check("app", true);
        check("none", false);
        check("!none", true);
        check("!app", false);
        check("app in (db, web)", true);
        check("app in (db)", false);
        check("none in (web)", false);
        check("app notin (db,x)", true);
        check("app notin (web)", false);
        check("none notin (web)", true);
        check("a.io/b=1,app in (web,db),!x", true);
        check("a.io/b=1,app in (web,db),x", false);
    }

    #[track_caller]
    fn check_error(selector: &str, expected: &str) {
        assert_eq!(Selector::parse(selector), Err(expected.into()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        check_error("", "selector: nothing is asked for; write -l key=value");
        check_error(" , ", "selector: nothing is asked for; write -l key=value");
        check_error(
            "a in (b",
            "selector 'a in (b': its parentheses do not match",
        );
        check_error(
            "a in b)",
            "selector 'a in b)': its parentheses do not match",
        );
        check_error(
            "a in (b) c",
            "selector 'a in (b) c': nothing may follow the closing parenthesis",
        );
        check_error(
            "a of (b)",
            "selector 'a of (b)': before the parentheses stands 'key in' or 'key notin'",
        );
        let wrong = |selector: &str| Selector::parse(selector).unwrap_err();
        let value = wrong("app=a b");
        assert!(
            value.starts_with("selector 'app=a b': 'a b' is no value of a label: "),
            "{value}"
        );
        let key = wrong("app>1");
        assert!(
            key.starts_with("selector 'app>1': 'app>1' is no key of a label: "),
            "{key}"
        );
        assert!(
            key.ends_with(
                "; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
            ),
            "{key}"
        );
    }
}
