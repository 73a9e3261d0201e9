//! Parses JSONPath templates and paths.

use serde_json::Value;

use super::{
    Filter, JsonPathError, MAX_DEPTH, MAX_TEMPLATE, Node, Operand, Operator, Path, Step, StepKind,
};

type Result<T> = std::result::Result<T, JsonPathError>;

/// Parses a template into its nodes.
pub(super) fn template(text: &str) -> Result<Vec<Node>> {
    let mut parser = Parser::new(text)?;
    let nodes = parser.nodes(false)?;
    Ok(nodes)
}

/// Parses a path, with or without its braces and its first dot.
pub(super) fn path(text: &str) -> Result<Path> {
    let mut parser = Parser::new(text)?;
    let braces = parser.take('{');
    let path = match parser.peek() {
        Some(c) if is_name_start(c) => parser.path_after_a_name()?,
        _ => parser.path()?,
    };
    if path.0.is_empty() {
        return Err(parser.error("a path is missing, such as .metadata.name"));
    }
    if braces {
        parser.expect('}')?;
    }
    match parser.peek() {
        None => Ok(path),
        Some(_) => Err(parser.error("one path is wanted, and nothing after it")),
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn new(text: &str) -> Result<Self> {
        let parser = Self {
            text: text.chars().collect(),
            at: 0,
            depth: 0,
        };
        match text.len() {
            0..=MAX_TEMPLATE => Ok(parser),
            n => Err(parser.error(format!(
                "the template has {n} bytes; {MAX_TEMPLATE} at most"
            ))),
        }
    }

    fn error(&self, why: impl Into<String>) -> JsonPathError {
        error(self.at, why)
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = word
            .chars()
            .eq(self.text[self.at..].iter().copied().take(word.len()));
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        self.spaces();
        match self.take(wanted) {
            true => Ok(()),
            false => Err(self.error(match self.peek() {
                Some(c) => format!("'{wanted}' is wanted here, not '{c}'"),
                None => format!("'{wanted}' is missing at the end"),
            })),
        }
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
    }

    fn while_(&mut self, fits: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let word: String = rest.iter().copied().take_while(|c| fits(*c)).collect();
        self.at += word.chars().count();
        word
    }

    /// Calls `read` one level deeper. Returns an error if the template is nested too deeply.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Parses nodes up to the end of the template. If `in_range` is true, parses nodes up to the `{end}` of the
    /// range.
    fn nodes(&mut self, in_range: bool) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            let text = self.while_(|c| c != '{');
            if !text.is_empty() {
                nodes.push(Node::Text(text));
            }
            let begun = self.at;
            if !self.take('{') {
                return match in_range {
                    false => Ok(nodes),
                    true => Err(self.error("a {range …} has no {end}")),
                };
            }
            self.spaces();
            match self.keyword().as_str() {
                "end" if in_range => return self.expect('}').map(|()| nodes),
                "end" => return Err(error(begun, "{end} without a {range …} before it")),
                "range" => nodes.push(self.range()?),
                "" => nodes.extend(self.action()?),
                word => {
                    let why =
                        format!("unknown word '{word}'; a field is written with a dot, .{word}");
                    return Err(error(begun + 1, why));
                }
            }
        }
    }

    fn keyword(&mut self) -> String {
        match self.peek() {
            Some(c) if is_name_start(c) => self.while_(is_name),
            _ => String::new(),
        }
    }

    fn range(&mut self) -> Result<Node> {
        let path = self.path()?;
        self.expect('}')?;
        let body = self.nested(|p| p.nodes(true))?;
        Ok(Node::Range(path, body))
    }

    /// Parses a quoted text or a path, up to the closing brace.
    fn action(&mut self) -> Result<Option<Node>> {
        let node = match self.peek() {
            Some(quote @ ('"' | '\'')) => Some(Node::Text(self.quoted(quote)?)),
            Some('}') => None,
            _ => Some(Node::Path(self.path()?)),
        };
        self.expect('}').map(|()| node)
    }

    fn quoted(&mut self, quote: char) -> Result<String> {
        let begun = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                _ if c == quote => return Ok(text),
                '\\' => text.push(self.escaped(quote)?),
                _ => text.push(c),
            }
        }
        Err(error(
            begun,
            format!("the text that begins here has no closing {quote}"),
        ))
    }

    fn escaped(&mut self, quote: char) -> Result<char> {
        let meant = match self.peek() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('\\') => '\\',
            Some(c) if c == quote => c,
            _ => {
                let why = format!("after \\ stands n, t, r, \\ or {quote}");
                return Err(self.error(why));
            }
        };
        self.at += 1;
        Ok(meant)
    }

    fn path_after_a_name(&mut self) -> Result<Path> {
        let at = self.at;
        let mut steps = vec![Step {
            at: at + 1,
            kind: StepKind::Field(self.name()?),
        }];
        steps.extend(self.path()?.0);
        Ok(Path(steps))
    }

    /// Parses the steps of a path, up to the first character that begins no step.
    fn path(&mut self) -> Result<Path> {
        let mut steps: Vec<Step> = Vec::new();
        loop {
            self.spaces();
            let at = self.at;
            let mut push = |kind| steps.push(Step { at: at + 1, kind });
            match self.peek() {
                Some('$' | '@') => self.at += 1,
                Some('.') => {
                    self.at += 1;
                    self.after_a_dot(&mut push)?;
                }
                Some('[') => {
                    self.at += 1;
                    self.brackets(&mut push)?;
                }
                _ => return Ok(Path(steps)),
            }
        }
    }

    fn after_a_dot(&mut self, push: &mut impl FnMut(StepKind)) -> Result<()> {
        if self.take('.') {
            push(StepKind::Recursive);
            if self.peek() == Some('.') {
                return Err(self.error("three dots; .. searches at any depth"));
            }
        }
        if self.take('*') {
            push(StepKind::Wildcard);
            return Ok(());
        }
        let name = self.name()?;
        // `{.}` means the value itself, without a step.
        if !name.is_empty() {
            push(StepKind::Field(name));
        }
        Ok(())
    }

    /// Parses a name up to a character that cannot be part of a name. `\` makes the next character part of the
    /// name.
    fn name(&mut self) -> Result<String> {
        let mut name = String::new();
        while let Some(mut c) = self.peek() {
            if c == '\\' {
                self.at += 1;
                c = self
                    .peek()
                    .ok_or_else(|| self.error("nothing stands after \\"))?;
            } else if ends_a_name(c) {
                break;
            }
            name.push(c);
            self.at += 1;
        }
        Ok(name)
    }

    /// Parses the content of brackets, up to the `]`.
    fn brackets(&mut self, push: &mut impl FnMut(StepKind)) -> Result<()> {
        self.spaces();
        if self.take('?') {
            push(StepKind::Filter(Box::new(self.nested(Self::filter)?)));
            return self.expect(']');
        }
        let mut parts = vec![self.part()?];
        self.spaces();
        while self.take(',') {
            parts.push(self.part()?);
            self.spaces();
        }
        match parts.len() {
            1 => parts
                .remove(0)
                .0
                .into_iter()
                .for_each(|step| push(step.kind)),
            _ => push(StepKind::Union(parts)),
        }
        self.expect(']')
    }

    /// Parses one part in brackets: `*`, `'key'`, an index or a slice.
    fn part(&mut self) -> Result<Path> {
        self.spaces();
        let at = self.at + 1;
        let step = |kind| Step { at, kind };
        match self.peek() {
            Some('*') => {
                self.at += 1;
                Ok(Path(vec![step(StepKind::Wildcard)]))
            }
            Some(quote @ ('"' | '\'')) => {
                let keys = self.keys(quote)?;
                Ok(Path(
                    keys.into_iter().map(|k| step(StepKind::Field(k))).collect(),
                ))
            }
            _ => Ok(Path(vec![step(self.slice()?)])),
        }
    }

    /// Parses keys in quotes. As in kubectl, a dot begins the next key, unless `\` precedes the dot.
    fn keys(&mut self, quote: char) -> Result<Vec<String>> {
        let begun = self.at;
        self.at += 1;
        let mut keys = vec![String::new()];
        while let Some(c) = self.peek() {
            self.at += 1;
            let key = keys.len() - 1;
            match c {
                _ if c == quote => return Ok(keys),
                '.' => keys.push(String::new()),
                '\\' => {
                    keys[key].extend(self.peek());
                    self.at += 1;
                }
                _ => keys[key].push(c),
            }
        }
        Err(error(
            begun,
            format!("the key that begins here has no closing {quote}"),
        ))
    }

    fn slice(&mut self) -> Result<StepKind> {
        let begun = self.at;
        let from = self.integer()?;
        if !self.take(':') {
            let why = "brackets take *, 'key', an index, a slice such as 0:2, or ?(filter)";
            return from.map(StepKind::Index).ok_or_else(|| error(begun, why));
        }
        let to = self.integer()?;
        let has_step = self.take(':');
        let step_at = self.at;
        let step = match has_step {
            true => self.integer()?.unwrap_or(1),
            false => 1,
        };
        match usize::try_from(step) {
            Ok(step) if step > 0 => Ok(StepKind::Slice { from, to, step }),
            _ => Err(error(step_at, "the step of a slice must be 1 or more")),
        }
    }

    fn integer(&mut self) -> Result<Option<i64>> {
        let begun = self.at;
        let word = self.while_(|c| c == '-' || c.is_ascii_digit());
        match word.is_empty() {
            true => Ok(None),
            false => word
                .parse()
                .map(Some)
                .map_err(|_| error(begun, format!("'{word}' is no index"))),
        }
    }

    /// Parses a filter. The filter `(left op right)` compares two operands. The filter `(path)` checks that the
    /// path finds a value.
    fn filter(&mut self) -> Result<Filter> {
        self.expect('(')?;
        let begun = self.at;
        let left = self.operand()?;
        self.spaces();
        let filter = match (self.operator(), left) {
            (Some(operator), left) => Filter::Compare(left, operator, self.operand()?),
            (None, Operand::Path(path)) => Filter::Exists(path),
            (None, Operand::Literal(_)) => {
                return Err(error(begun, "a filter compares with == != < <= > or >="));
            }
        };
        self.spaces();
        match self.peek() {
            Some(c @ ('=' | '!' | '~' | '&' | '|')) => Err(self.error(format!(
                "'{c}' is no operator here; a filter has one of == != < <= > >="
            ))),
            _ => self.expect(')').map(|()| filter),
        }
    }

    fn operator(&mut self) -> Option<Operator> {
        const ALL: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let found = ALL.iter().find(|(word, _)| self.take_word(word));
        found.map(|(_, operator)| *operator)
    }

    fn operand(&mut self) -> Result<Operand> {
        self.spaces();
        let begun = self.at;
        match self.peek() {
            Some(quote @ ('"' | '\'')) => Ok(Operand::Literal(self.quoted(quote)?.into())),
            Some('@' | '$' | '.') => self.path().map(Operand::Path),
            _ => {
                let word = self.while_(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
                let value: Option<Value> = serde_json::from_slice(word.as_bytes()).ok();
                value.map(Operand::Literal).ok_or_else(|| {
                    error(
                        begun,
                        "a filter takes @.path, a quoted text, a number, true, false or null",
                    )
                })
            }
        }
    }
}

fn error(at: usize, why: impl Into<String>) -> JsonPathError {
    JsonPathError {
        at: at + 1,
        why: why.into(),
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

fn ends_a_name(c: char) -> bool {
    c.is_whitespace() || ".,[]$@{}()=!<>".contains(c)
}
