//! Evaluates JSONPath templates and paths.

use std::cmp::Ordering;

use serde_json::Value;

use super::{
    Filter, JsonPathError, MAX_RESULTS, MAX_TEXT, Node, Operand, Operator, Path, Step, StepKind,
    text,
};

type Result<T> = std::result::Result<T, JsonPathError>;

/// Appends the text of the nodes to `out`.
pub(super) fn render(nodes: &[Node], value: &Value, out: &mut String) -> Result<()> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Path(path) => {
                let found = find(path, value)?;
                let texts: Vec<String> = found.into_iter().map(text).collect();
                out.push_str(&texts.join(" "));
                if out.len() > MAX_TEXT {
                    let at = path.0.first().map_or(1, |step| step.at);
                    let why = format!("the text is longer than {} MiB", MAX_TEXT >> 20);
                    return Err(JsonPathError { at, why });
                }
            }
            Node::Range(path, body) => {
                for each in find(path, value)? {
                    render(body, each, out)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns all values that the path finds.
pub(super) fn find<'a>(path: &'a Path, value: &'a Value) -> Result<Vec<&'a Value>> {
    follow(path, vec![value])
}

fn follow<'a>(path: &'a Path, from: Vec<&'a Value>) -> Result<Vec<&'a Value>> {
    path.0.iter().try_fold(from, |values, step| {
        let mut found = Vec::new();
        match &step.kind {
            StepKind::Union(parts) => {
                for part in parts {
                    found.extend(follow(part, values.clone())?);
                }
            }
            _ => {
                for value in values {
                    one(step, value, &mut found)?;
                    bounded(step, &found)?;
                }
            }
        }
        bounded(step, &found)?;
        Ok(found)
    })
}

fn bounded(step: &Step, found: &[&Value]) -> Result<()> {
    match found.len() {
        0..=MAX_RESULTS => Ok(()),
        _ => Err(error(step, format!("finds more than {MAX_RESULTS} values"))),
    }
}

fn one<'a>(step: &'a Step, value: &'a Value, found: &mut Vec<&'a Value>) -> Result<()> {
    match &step.kind {
        StepKind::Field(name) => found.extend(value.get(name)),
        StepKind::Wildcard => found.extend(children(value)),
        StepKind::Recursive => descend(step, value, found)?,
        StepKind::Index(index) => found.extend(
            list(step, value)?
                .map(|l| at(step, l, *index))
                .transpose()?,
        ),
        StepKind::Slice { from, to, step: by } => {
            if let Some(list) = list(step, value)? {
                found.extend(slice(step, list, *from, *to)?.iter().step_by(*by));
            }
        }
        StepKind::Filter(filter) => {
            for element in list(step, value)?.into_iter().flatten() {
                if holds(step, filter, element)? {
                    found.push(element);
                }
            }
        }
        // `follow` handles unions.
        StepKind::Union(_) => {}
    }
    Ok(())
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Finds all objects and lists that are not empty: the value itself, and the objects and lists inside of it at any
/// depth.
fn descend<'a>(step: &Step, value: &'a Value, found: &mut Vec<&'a Value>) -> Result<()> {
    let mut inner = children(value).peekable();
    if inner.peek().is_some() {
        found.push(value);
        bounded(step, found)?;
    }
    inner.try_for_each(|child| descend(step, child, found))
}

/// Returns the value as a list. A null value counts as missing and returns None.
fn list<'a>(step: &Step, value: &'a Value) -> Result<Option<&'a Vec<Value>>> {
    match value {
        Value::Array(items) => Ok(Some(items)),
        Value::Null => Ok(None),
        _ => Err(error(
            step,
            "what stands before the brackets is no list".into(),
        )),
    }
}

fn at<'a>(step: &Step, list: &'a [Value], index: i64) -> Result<&'a Value> {
    let place = from_end(index, list.len());
    let found = usize::try_from(place).ok().and_then(|i| list.get(i));
    found.ok_or_else(|| outside(step, index, list.len()))
}

fn slice<'a>(
    step: &Step,
    list: &'a [Value],
    from: Option<i64>,
    to: Option<i64>,
) -> Result<&'a [Value]> {
    let length = list.len();
    let place = |index: i64| {
        let place = usize::try_from(from_end(index, length)).ok();
        place
            .filter(|i| *i <= length)
            .ok_or_else(|| outside(step, index, length))
    };
    let (first, end) = (place(from.unwrap_or(0))?, to.map_or(Ok(length), place)?);
    list.get(first..end).ok_or_else(|| {
        error(
            step,
            format!("the slice begins at {first} and ends before it, at {end}"),
        )
    })
}

fn from_end(index: i64, length: usize) -> i64 {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if index < 0 {
        index.saturating_add(length)
    } else {
        index
    }
}

fn outside(step: &Step, index: i64, length: usize) -> JsonPathError {
    error(
        step,
        format!("array index out of bounds: index {index}, length {length}"),
    )
}

fn error(step: &Step, why: String) -> JsonPathError {
    JsonPathError { at: step.at, why }
}

fn holds(step: &Step, filter: &Filter, element: &Value) -> Result<bool> {
    match filter {
        Filter::Exists(path) => find(path, element).map(|found| !found.is_empty()),
        Filter::Compare(left, operator, right) => {
            let left = operand(step, left, element)?;
            let right = operand(step, right, element)?;
            Ok(matches!((left, right), (Some(l), Some(r)) if compare(l, *operator, r)))
        }
    }
}

/// Returns the value of an operand. Returns None if the operand has no value, and an error if it has several
/// values.
fn operand<'a>(step: &Step, operand: &'a Operand, element: &'a Value) -> Result<Option<&'a Value>> {
    let found = match operand {
        Operand::Literal(value) => vec![value],
        Operand::Path(path) => find(path, element)?,
    };
    match found[..] {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(error(step, "can only compare one element at a time".into())),
    }
}

/// Compares two values. Values of different types are unequal and have no order.
fn compare(left: &Value, operator: Operator, right: &Value) -> bool {
    let order = order(left, right);
    match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Returns the order of two values; None if such values have no order.
pub(in crate::cli) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (a, b) => (a == b).then_some(Ordering::Equal),
    }
}
