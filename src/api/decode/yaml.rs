//! YAML as Kubernetes reads it: YAML 1.1 with the scalars of `sigs.k8s.io/yaml` (kubelet-probes 6.2).
//!
//! Invariants: aliases add at most [`MOST_COPIED`] bytes of values to a text, however they are nested. A text nests
//! at most [`DEEPEST`] levels. A value that JSON cannot express is an error.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Value};

use super::escapes::GoInput;
use super::place::{Place, Position, Visit};
use crate::api::field::{item, push_key};

/// Deepest nesting of a document, in levels. serde_json reads 127 levels, and a response to a client adds some levels
/// around an object.
pub(super) const DEEPEST: usize = 100;
/// Largest amount that aliases may add to a file, in bytes of its values: 1 MiB.
const MOST_COPIED: usize = 1 << 20;
/// Number of bytes that each copied value counts in addition to its text.
const VALUE_COST: usize = 32;

/// The error of a text that podprobe cannot read as YAML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}{}", way_out.map_or_else(String::new, |way_out| format!(": {way_out}")))]
pub struct YamlError {
    /// Place of the error in the text.
    pub(super) at: Position,
    /// Reason for the error.
    cause: YamlCause,
    /// Advice what to do, in addition to the advice that the text of the reason may have; None if there is no more
    /// advice.
    way_out: Option<&'static str>,
}

/// The reasons for which podprobe cannot read a text as YAML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum YamlCause {
    /// The parser refuses the text.
    #[error("not YAML: {0}")]
    Scan(String),
    #[error("not YAML: a value is missing")]
    NoValue,
    #[error("the text ends in the middle")]
    CutOff,
    #[error("nested deeper than {DEEPEST} levels: no object is")]
    TooDeep,
    #[error("a key must be a text; fill in a template ({{{{ … }}}}) first, as helm template does")]
    Template,
    #[error("a key must be a text")]
    Key,
    #[error("the alias stands inside the value it names: write the value out")]
    AliasOfItself,
    #[error("the aliases of the file make more than {MOST_COPIED} bytes: write fewer of them")]
    TooManyAliases,
    #[error("<< takes an object, or a list of objects")]
    Merge,
    #[error("the tag {0} is not known here: leave it out")]
    Tag(String),
    /// The value of the scalar has another type than the scalar's tag says.
    #[error("`{text}` is no !!{tag}")]
    Mistagged { text: String, tag: String },
    #[error("`{0}` is no number that JSON has")]
    NotInJson(String),
}

type Result<T, E = YamlError> = std::result::Result<T, E>;

/// Returns every document of the text, except empty ones.
///
/// # Errors
/// Returns the first error of the text.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    read(text).map_err(|e| with_way_out(text, e))
}

fn read(text: &str) -> Result<Vec<Value>> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::DocumentStart(_) => reader.anchors.clear(),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
            event => all.push(reader.value(event, span)?),
        }
    }
    all.retain(|document| !document.is_null());
    Ok(all)
}

struct Reader<'t> {
    parser: Parser<'t, GoInput<'t>>,
    /// Values that aliases may name. The key is the parser's number for the anchor of the value.
    anchors: HashMap<usize, Value>,
    copied: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            parser: Parser::new(GoInput::new(text)),
            anchors: HashMap::new(),
            copied: 0,
            depth: 0,
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>> {
        self.parser.next_event().transpose().map_err(scan_error)
    }

    /// Returns the next event inside of a collection.
    fn inner(&mut self, outer: Span) -> Result<(Event<'t>, Span)> {
        self.next()?
            .ok_or_else(|| error(outer.start, YamlCause::CutOff))
    }

    fn value(&mut self, event: Event<'t>, span: Span) -> Result<Value> {
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref());
                (value.map_err(|cause| error(span.start, cause))?, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", span)?;
                (self.nested(span, Self::sequence)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map", span)?;
                (self.nested(span, Self::mapping)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, span),
            _ => return Err(error(span.start, YamlCause::NoValue)),
        };
        if anchor != 0 {
            self.charge(&value, span)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn nested(&mut self, span: Span, read: fn(&mut Self, Span) -> Result<Value>) -> Result<Value> {
        if self.depth == DEEPEST {
            return Err(error(span.start, YamlCause::TooDeep));
        }
        self.depth += 1;
        let value = read(self, span);
        self.depth -= 1;
        value
    }

    fn sequence(&mut self, span: Span) -> Result<Value> {
        let mut items = Vec::new();
        loop {
            match self.inner(span)? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, at) => items.push(self.value(event, at)?),
            }
        }
    }

    fn mapping(&mut self, span: Span) -> Result<Value> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, at) = match self.inner(span)? {
                (Event::MappingEnd, _) => break,
                next => next,
            };
            let key = self.key(event, at)?;
            let (event, at) = self.inner(span)?;
            let value = self.value(event, at)?;
            match key {
                Key::Name(name) => drop(map.insert(name, value)),
                Key::Merge => merged.push((value, at)),
            }
        }
        for (value, at) in merged {
            merge(&mut map, value, at)?;
        }
        Ok(Value::Object(map))
    }

    fn key(&mut self, event: Event<'t>, span: Span) -> Result<Key> {
        if is_merge(&event) {
            return Ok(Key::Merge);
        }
        let name = match self.value(event, span)? {
            Value::String(name) => Some(name),
            Value::Bool(on) => Some(on.to_string()),
            Value::Number(number) => Some(number.to_string()),
            // The template `{{ .Values.name }}` is a map with a map as its key.
            Value::Object(_) => return Err(error(span.start, YamlCause::Template)),
            Value::Null | Value::Array(_) => None,
        };
        name.map(Key::Name)
            .ok_or_else(|| error(span.start, YamlCause::Key))
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<Value> {
        let Some(value) = self.anchors.get(&anchor).cloned() else {
            return Err(error(span.start, YamlCause::AliasOfItself));
        };
        self.charge(&value, span)?;
        Ok(value)
    }

    /// Counts a copy of a value. Returns an error if the copies are too large.
    fn charge(&mut self, value: &Value, span: Span) -> Result<()> {
        self.copied += cost(value);
        match self.copied <= MOST_COPIED {
            true => Ok(()),
            false => Err(error(span.start, YamlCause::TooManyAliases)),
        }
    }
}

enum Key {
    Name(String),
    /// The key `<<`: the fields of its value are added to the object, except those that the object has itself.
    Merge,
}

fn is_merge(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<")
}

fn merge(map: &mut Map<String, Value>, value: Value, at: Span) -> Result<()> {
    match value {
        Value::Object(more) => {
            for (key, value) in more {
                map.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(all) if all.iter().all(Value::is_object) => {
            all.into_iter().try_for_each(|one| merge(map, one, at))
        }
        _ => Err(error(at.start, YamlCause::Merge)),
    }
}

fn cost(value: &Value) -> usize {
    VALUE_COST
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(cost).sum(),
            Value::Object(map) => map.iter().map(|(key, v)| key.len() + cost(v)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

fn error(at: Marker, cause: YamlCause) -> YamlError {
    YamlError {
        at: position(at),
        cause,
        way_out: None,
    }
}

fn scan_error(e: ScanError) -> YamlError {
    error(*e.marker(), YamlCause::Scan(e.info().to_owned()))
}

/// Parts of the parser's messages, each with advice on the error.
const WAYS_OUT: [(&str, &str); 4] = [
    ("tab", "indent with spaces"),
    ("expect ':'", "a key ends with a colon and a space"),
    ("expected key", "indent this line as those beside it"),
    (
        "mapping values are not allowed",
        "indent this line as those beside it, or put quotes around a text that has a colon",
    ),
];

fn with_way_out(text: &str, mut e: YamlError) -> YamlError {
    // The other causes name their own way out, and may quote words of the file.
    let YamlCause::Scan(cause) = &e.cause else {
        return e;
    };
    let Some((said, way_out)) = WAYS_OUT.iter().find(|(said, _)| cause.contains(said)) else {
        return e;
    };
    if *said == "tab" {
        // For a tab, the parser may report the place of the scalar that continues after the tab.
        let mut lines = text.lines().enumerate().skip(e.at.line - 1);
        let found = lines.find_map(|(n, line)| {
            let indented = line.len() - line.trim_start().len();
            Some((n + 1, line[..indented].find('\t')? + 1))
        });
        if let Some((line, column)) = found {
            e.at = Position { line, column };
        }
    }
    e.way_out = Some(way_out);
    e
}

fn position(at: Marker) -> Position {
    Position {
        line: at.line(),
        column: at.col() + 1,
    }
}

fn collection_tag(tag: Option<&Tag>, expected: &str, span: Span) -> Result<()> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == expected) => {
            Err(error(span.start, unknown_tag(tag)))
        }
        _ => Ok(()),
    }
}

fn unknown_tag(tag: &Tag) -> YamlCause {
    YamlCause::Tag(match tag.is_yaml_core_schema() {
        true => format!("!!{}", tag.suffix),
        false => tag.to_string(),
    })
}

/// Returns the value of a scalar. Quoted and block scalars are texts. The type of a plain scalar follows from its
/// spelling.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, YamlCause> {
    let plain = style == ScalarStyle::Plain;
    let Some(tag) = tag else {
        return match plain {
            true => resolve(text),
            false => Ok(text.into()),
        };
    };
    if !tag.is_yaml_core_schema() {
        return Err(unknown_tag(tag));
    }
    let fits: fn(&Value) -> bool = match tag.suffix.as_str() {
        "str" => return Ok(text.into()),
        "bool" => Value::is_boolean,
        "null" => Value::is_null,
        "int" => |v| v.is_i64() || v.is_u64(),
        "float" => Value::is_number,
        _ => return Err(unknown_tag(tag)),
    };
    let value = resolve(text)?;
    match fits(&value) {
        true => Ok(value),
        false => Err(YamlCause::Mistagged {
            text: text.to_owned(),
            tag: tag.suffix.clone(),
        }),
    }
}

/// Returns the value of a plain scalar, by its spelling.
fn resolve(text: &str) -> Result<Value, YamlCause> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(true.into());
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(false.into());
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(YamlCause::NotInJson(text.to_owned()));
        }
        _ => {}
    }
    let may_be_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    Ok(may_be_number
        .then(|| number(&text.replace('_', "")))
        .flatten()
        .unwrap_or_else(|| text.into()))
}

fn number(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if let Some(whole) = whole(digits) {
        let signed = match negative {
            true => i128::from(whole).checked_neg()?,
            false => whole.into(),
        };
        return i64::try_from(signed)
            .map(Value::from)
            .or_else(|_| u64::try_from(signed).map(Value::from))
            .ok()
            .or_else(|| fraction(text));
    }
    is_decimal(digits).then(|| fraction(text)).flatten()
}

/// Reads a whole number as Go does: in base 16, 8 or 2 after `0x`, `0o` or `0b`, and in base 8 after a 0, such as
/// `0644`.
fn whole(digits: &str) -> Option<u64> {
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let unsigned = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    unsigned
        .then(|| u64::from_str_radix(digits, base).ok())
        .flatten()
}

/// True if the text has the form `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, with or without an exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()) && exponent_fits
}

/// Reads a number with a fraction. If the fraction is 0, the result is a whole number, as in Go's JSON.
fn fraction(text: &str) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value: f64 = text.parse().ok()?;
    match value.fract() == 0.0 && value.abs() <= EXACT {
        true => Some((value as i64).into()),
        false => serde_json::Number::from_f64(value).map(Value::Number),
    }
}

/// Calls `visit` for every document, every member and every list item, as [`super::locate`] does for JSON. The value
/// of an alias is not visited; its fields have the place of the alias.
pub(super) fn walk(text: &str, visit: &mut Visit<'_>) {
    let mut walk = Walk {
        reader: Reader::new(text),
        path: String::new(),
        document: 0,
        visit,
    };
    // The text was read before, so there is no error to report.
    let _ = walk.documents();
}

struct Walk<'t, 'w, 'v> {
    reader: Reader<'t>,
    path: String,
    document: usize,
    visit: &'w mut Visit<'v>,
}

impl<'t> Walk<'t, '_, '_> {
    fn documents(&mut self) -> Result<()> {
        while let Some((event, span)) = self.reader.next()? {
            match event {
                Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Nothing => {}
                event => {
                    if is_null(&event) {
                        continue;
                    }
                    self.visit(span, false);
                    self.value(event, span)?;
                    self.document += 1;
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, event: Event<'t>, span: Span) -> Result<()> {
        match event {
            Event::SequenceStart(..) => self.sequence(span),
            Event::MappingStart(..) => self.mapping(span),
            _ => Ok(()),
        }
    }

    fn sequence(&mut self, span: Span) -> Result<()> {
        let around = self.path.len();
        for index in 0.. {
            let (event, at) = self.reader.inner(span)?;
            if event == Event::SequenceEnd {
                break;
            }
            self.path = item(&self.path, index);
            self.visit(at, false);
            self.value(event, at)?;
            self.path.truncate(around);
        }
        Ok(())
    }

    fn mapping(&mut self, span: Span) -> Result<()> {
        let around = self.path.len();
        let mut seen = HashSet::new();
        loop {
            let (event, at) = match self.reader.inner(span)? {
                (Event::MappingEnd, _) => return Ok(()),
                next => next,
            };
            if let Key::Name(name) = self.reader.key(event, at)? {
                push_key(&mut self.path, &name);
                self.visit(at, !seen.insert(name));
            }
            let (event, at) = self.reader.inner(span)?;
            self.value(event, at)?;
            self.path.truncate(around);
        }
    }

    fn visit(&mut self, at: Span, again: bool) {
        let place = Place::At(position(at.start));
        (self.visit)(self.document, &self.path, place, again);
    }
}

fn is_null(event: &Event<'_>) -> bool {
    let Event::Scalar(text, ScalarStyle::Plain, _, None) = event else {
        return false;
    };
    resolve(text).is_ok_and(|value| value.is_null())
}

#[cfg(test)]
mod tests;
