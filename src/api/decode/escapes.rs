//! `\'` in a double-quoted text, which YAML does not know and go-yaml reads as an apostrophe.
//!
//! Invariants: only the parser knows what is a double-quoted text, so the characters are changed on their way to it: when it
//! asks which escape a backslash begins, `\'` is `\x27`. A column behind one in the same line is two too high.

use saphyr_parser::{Input, StrInput};

/// A text, read as go-yaml reads it.
pub(super) struct GoInput<'t> {
    text: StrInput<'t>,
    /// The parser has taken `\x`; `27` is next, and stands for the two characters of the text.
    in_code: bool,
}

impl<'t> GoInput<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text: StrInput::new(text),
            in_code: false,
        }
    }

    fn is_apostrophe(&self) -> bool {
        self.text.peek() == '\\' && self.text.peek_nth(1) == '\''
    }
}

impl Input for GoInput<'_> {
    fn lookahead(&mut self, count: usize) {
        self.text.lookahead(count);
    }

    fn buflen(&self) -> usize {
        self.text.buflen()
    }

    fn bufmaxlen(&self) -> usize {
        self.text.bufmaxlen()
    }

    fn raw_read_ch(&mut self) -> char {
        self.text.raw_read_ch()
    }

    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        self.text.raw_read_non_breakz_ch()
    }

    fn skip(&mut self) {
        self.text.skip();
    }

    /// The parser takes the two characters of an escape, and those of its code, at a time.
    fn skip_n(&mut self, count: usize) {
        if count == 2 && !self.in_code && self.is_apostrophe() {
            self.in_code = true;
            return;
        }
        self.in_code = false;
        self.text.skip_n(count);
    }

    fn peek(&self) -> char {
        match self.in_code {
            true => '2',
            false => self.text.peek(),
        }
    }

    fn peek_nth(&self, n: usize) -> char {
        match (self.in_code, n) {
            (true, 0) => '2',
            (true, 1) => '7',
            (false, 1) if self.is_apostrophe() => 'x',
            _ => self.text.peek_nth(n),
        }
    }

    fn peek_opt(&self) -> Option<char> {
        match self.in_code {
            true => Some('2'),
            false => self.text.peek_opt(),
        }
    }

    // These are faster than what the parser does without them.

    fn skip_while_non_breakz(&mut self) -> usize {
        self.text.skip_while_non_breakz()
    }

    fn skip_while_blank(&mut self) -> usize {
        self.text.skip_while_blank()
    }

    fn fetch_while_is_alpha(&mut self, out: &mut String) -> usize {
        self.text.fetch_while_is_alpha(out)
    }

    fn fetch_while_is_yaml_non_space(&mut self, out: &mut String) -> usize {
        self.text.fetch_while_is_yaml_non_space(out)
    }
}
