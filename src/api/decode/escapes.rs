//! The escape `\'` in a double-quoted text. YAML does not know this escape, and go-yaml reads it as an apostrophe.
//!
//! Invariants: only the parser knows where a double-quoted text is, so the characters change on their way to the
//! parser. When the parser asks which escape a backslash begins, it gets the escape `\x27` in place of `\'`. After
//! each replaced escape, columns in the same line are too high by two.

use saphyr_parser::{Input, StrInput};

/// A text that the parser reads as go-yaml reads it.
pub(super) struct GoInput<'t> {
    text: StrInput<'t>,
    /// True if the parser has skipped the `\x` of an escape `\x27` that replaces `\'`. The parser then reads the code
    /// `27`, while `text` is still at `\'`.
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

    /// Skips characters. The parser skips the first two characters of an escape in one call, and then those of the
    /// escape's code in another. For `\'`, only the second call moves `text` on.
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

    // The following methods are faster than the default methods of the trait.

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
