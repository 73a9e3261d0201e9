//! Every reference to a rule leads to it. The forms of a reference:
//!
//! - A document of docs/ and a place in it: its section, then perhaps a row, a step or quoted words of that section, as in
//!   "kubelet-probes 2.3 row 8", "exec-in-container 3, steps 3 to 13", "kubelet-probes 5.3 'Reject'".
//! - "lessons" and a row of its lists, as in "lessons 6" and "lessons A6"; "deviations:" and the name of a row.
//! - In docs/kubelet-probes.md and docs/workloads.md a section alone, "(8.4)", means the page itself.
//! - Short forms for kubelet-probes in the comments of Rust files: a section with a point in it, "(8.4)", in parentheses or
//!   at the beginning of the comment; S, V or O with a number, a row of 9.3, 1.3 or 15; in src/pods/prober "row 8", a row of 2.3.
//!
//! Several places follow one another with a comma, a semicolon, "and", "to" or a dash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A section of a document.
#[derive(Default)]
struct Section {
    /// First cells of table rows that are a number or a letter with a number.
    rows: BTreeSet<String>,
    /// Numbers of list items.
    steps: BTreeSet<String>,
    /// All of it in lower case.
    text: String,
}

/// A document by its sections; a heading's number or letter is the key.
#[derive(Default)]
struct Document {
    sections: BTreeMap<String, Section>,
}

impl Document {
    fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut key = String::new();
        for line in text.lines() {
            if line.starts_with('#') {
                let heading = line.trim_start_matches('#').trim_start();
                let first = heading.split(' ').next().unwrap_or_default();
                let number = first.trim_end_matches('.');
                let is_key = is_section(number) || number.len() == 1 && first.ends_with('.');
                key = if is_key { number } else { heading }.to_owned();
            }
            let section = document.sections.entry(key.clone()).or_default();
            section.text += &line.to_lowercase();
            section.text.push('\n');
            if let Some(row) = line.strip_prefix('|') {
                let cell = row.split('|').next().unwrap_or_default().trim();
                if is_row(cell) {
                    assert!(
                        section.rows.insert(cell.into()),
                        "two rows {cell} in section {key}"
                    );
                }
            }
            let number = line.split(". ").next().unwrap_or_default();
            if is_number(number) {
                section.steps.insert(number.into());
            }
        }
        document
    }

    fn has_row(&self, row: &str) -> bool {
        self.sections.values().any(|s| s.rows.contains(row))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_section(text: &str) -> bool {
    text.split('.').all(is_number)
}

fn is_row(text: &str) -> bool {
    is_number(
        text.strip_prefix(|c: char| c.is_ascii_uppercase())
            .unwrap_or(text),
    )
}

/// Names of documents that prose has as words of its own; without a section they are no reference.
const COMMON_WORDS: [&str; 4] = ["services", "names", "nftables", "workloads"];

/// Which kind of part of a section is meant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Row,
    Step,
    Phrase,
}

/// A place of kubelet-probes or exec-in-container.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    section: String,
    part: Option<(Part, String)>,
}

/// What is left of a text while a reference in it is read.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn take(&mut self, word: &str) -> bool {
        let left = self.0.strip_prefix(word);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    fn take_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.take(word))
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !wanted(c)).unwrap_or(self.0.len());
        let (taken, left) = self.0.split_at(end);
        self.0 = left;
        taken
    }

    fn next_is(&self, wanted: impl Fn(char) -> bool) -> bool {
        self.0.chars().next().is_some_and(wanted)
    }

    /// `2`, `2.3`, `3.2.1`; a full stop after it is not part of it.
    fn section(&mut self) -> Option<String> {
        let mut ahead = *self;
        let mut found = ahead.take_while(|c| c.is_ascii_digit()).to_owned();
        while !found.is_empty() {
            *self = ahead;
            let digits = match ahead.take(".") {
                true => ahead.take_while(|c| c.is_ascii_digit()),
                false => "",
            };
            if digits.is_empty() {
                break;
            }
            found = format!("{found}.{digits}");
        }
        let ended = !self.next_is(|c| c.is_ascii_alphanumeric());
        (ended && !found.is_empty()).then_some(found)
    }

    /// `8` or `S8`, not the beginning of a section such as `8.3`.
    fn row(&mut self) -> Option<String> {
        let mut ahead = *self;
        let letter = ahead.0.chars().next().filter(char::is_ascii_uppercase);
        letter.inspect(|c| ahead.0 = &ahead.0[c.len_utf8()..]);
        let digits = ahead.take_while(|c| c.is_ascii_digit());
        let goes_on = ahead
            .0
            .strip_prefix('.')
            .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
            || ahead.next_is(|c| c.is_ascii_alphanumeric());
        if digits.is_empty() || goes_on {
            return None;
        }
        *self = ahead;
        Some(letter.map_or(digits.to_owned(), |l| format!("{l}{digits}")))
    }

    /// Rows one after the other; a range counts with its ends.
    fn rows(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut ahead = *self;
        while let Some(row) = ahead.row() {
            found.push(row);
            *self = ahead;
            if !ahead.take_any(&["–", " to ", ", ", " and "]) {
                break;
            }
        }
        found
    }

    /// The parts of a section that are named after its number.
    fn parts(&mut self) -> Vec<(Part, String)> {
        let before = *self;
        self.take(",");
        let words = [
            (Part::Row, " rows "),
            (Part::Row, " row "),
            (Part::Step, " steps "),
            (Part::Step, " step "),
            (Part::Step, " rules "),
        ];
        for (part, word) in words {
            if self.take(word) {
                return self.rows().into_iter().map(|row| (part, row)).collect();
            }
        }
        if self.take(" \"") {
            let phrase = self.take_while(|c| c != '"').to_lowercase();
            self.take("\"");
            return vec![(Part::Phrase, phrase)];
        }
        *self = before;
        if self.take(" ") && self.next_is(|c| c.is_ascii_uppercase()) {
            let rows = self.rows();
            if !rows.is_empty() {
                return rows.into_iter().map(|row| (Part::Row, row)).collect();
            }
        }
        *self = before;
        Vec::new()
    }

    /// Sections with their parts, one after the other.
    fn places(&mut self) -> Vec<Place> {
        let mut found = Vec::new();
        let mut ahead = *self;
        while let Some(section) = ahead.section() {
            let parts = ahead.parts();
            // ", 3 words" is not another section
            let is_prose = !found.is_empty() && parts.is_empty() && !section.contains('.');
            if is_prose && !ahead.0.is_empty() && !ahead.next_is(|c| ".,;:)–`".contains(c)) {
                break;
            }
            match parts.is_empty() {
                true => found.push(Place {
                    section,
                    part: None,
                }),
                false => found.extend(parts.into_iter().map(|part| Place {
                    section: section.clone(),
                    part: Some(part),
                })),
            }
            *self = ahead;
            if !ahead.take_any(&["–", " to ", ", ", " and ", "; "]) {
                break;
            }
        }
        found
    }
}

/// The documents that references lead to.
struct Documents {
    numbered: BTreeMap<&'static str, Document>,
    lessons: Document,
    deviations: BTreeSet<String>,
}

/// Where a text stands, which decides about the short forms.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A comment of a Rust file; of one below src/pods/prober.
    Comment { prober: bool },
    /// Code with its texts.
    Code,
    /// A page of Markdown.
    Page,
    /// A page of rules whose parentheses refer to itself, by its name.
    TheRules(&'static str),
}

impl Documents {
    fn read() -> Self {
        let numbered = [
            "kubelet-probes",
            "exec-in-container",
            "kubelet-volumes",
            "services",
            "kube-services",
            "names",
            "cni-plugins",
            "nftables",
            "workloads",
        ];
        Self {
            numbered: numbered
                .map(|name| (name, Document::parse(&page(&format!("docs/{name}.md")))))
                .into(),
            lessons: Document::parse(&page("docs/lessons.md")),
            deviations: deviations().into_iter().map(|row| row.name).collect(),
        }
    }

    fn look_up(&self, document: &str, place: &Place) -> Result<(), String> {
        let Some(section) = self.numbered[document].sections.get(&place.section) else {
            return Err(format!("{document} has no section {}", place.section));
        };
        let (found, part) = match &place.part {
            None => (true, String::new()),
            Some((Part::Row, row)) => (section.rows.contains(row), format!("row {row}")),
            Some((Part::Step, step)) => (section.steps.contains(step), format!("step {step}")),
            Some((Part::Phrase, words)) => (
                section.text.contains(words.as_str()),
                format!("\"{words}\""),
            ),
        };
        let wrong = || format!("{document} {} has no {part}", place.section);
        found.then_some(()).ok_or_else(wrong)
    }

    /// The references of one text: how many, and what is wrong with some.
    fn check(&self, text: &str, kind: Kind) -> (usize, Vec<String>) {
        let mut results = Vec::new();
        for (at, _) in text.char_indices() {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "-/.".contains(c)) {
                continue;
            }
            let rest = Rest(&text[at..]);
            results.extend(self.full_form(rest));
            if let Kind::Comment { prober } = kind {
                results.extend(self.short_form(rest, prober, before));
            }
            if before == Some('(') && kind != Kind::Code {
                results.extend(self.unknown_document(rest));
                if let Kind::TheRules(page) = kind {
                    results.extend(self.own_section(page, rest));
                }
            }
        }
        let count = results.len();
        (count, results.into_iter().filter_map(Result::err).collect())
    }

    fn full_form(&self, mut rest: Rest<'_>) -> Vec<Result<(), String>> {
        for name in self.numbered.keys() {
            let named = rest.0.get(..name.len());
            if named.is_some_and(|n| n.eq_ignore_ascii_case(name)) {
                rest = Rest(&rest.0[name.len()..]);
                if rest.take(".md") {
                    return Vec::new();
                }
                rest.take(" ");
                let places = rest.places();
                if places.is_empty() && COMMON_WORDS.contains(name) {
                    return Vec::new();
                }
                if places.is_empty() {
                    return vec![Err(format!("{name} without a section"))];
                }
                return places.iter().map(|p| self.look_up(name, p)).collect();
            }
        }
        if rest.take("lessons ") || rest.take("Lessons ") {
            return self.lessons(rest);
        }
        if rest.take("deviations: `") || rest.take("deviations: ") {
            let name =
                rest.take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            let known = self.deviations.contains(name);
            let result = known
                .then_some(())
                .ok_or(format!("deviations has no row {name}"));
            return vec![result];
        }
        Vec::new()
    }

    /// Rows such as `6` and `A6`, letters such as `A`.
    fn lessons(&self, mut rest: Rest<'_>) -> Vec<Result<(), String>> {
        let mut results = Vec::new();
        loop {
            let mut ahead = rest;
            let (name, known) = match ahead.row() {
                Some(row) => (row.clone(), self.lessons.has_row(&row)),
                None => {
                    let letters = ahead.take_while(|c| c.is_ascii_uppercase());
                    if letters.len() != 1 || ahead.next_is(char::is_alphanumeric) {
                        return results;
                    }
                    (letters.into(), self.lessons.sections.contains_key(letters))
                }
            };
            results.push(known.then_some(()).ok_or(format!("lessons has no {name}")));
            if !ahead.take_any(&["–", " to ", ", ", " and "]) {
                return results;
            }
            rest = ahead;
        }
    }

    /// What stands in a comment without the name of its document.
    fn short_form(
        &self,
        rest: Rest<'_>,
        prober: bool,
        before: Option<char>,
    ) -> Vec<Result<(), String>> {
        let rules = "kubelet-probes";
        let mut row = rest;
        if row.next_is(|c| "SVO".contains(c))
            && let Some(row) = row.row()
        {
            let known = self.numbered[rules].has_row(&row);
            return vec![
                known
                    .then_some(())
                    .ok_or(format!("{rules} has no row {row}")),
            ];
        }
        let mut rows = rest;
        if rows.take_any(&["row ", "rows ", "Row ", "Rows "]) && (prober || before == Some('(')) {
            let place = |row| Place {
                section: "2.3".into(),
                part: Some((Part::Row, row)),
            };
            let found = rows.rows().into_iter().map(|row| match prober {
                true => self.look_up(rules, &place(row)),
                false => Err(format!("row {row} without a section")),
            });
            return found.collect();
        }
        if before.is_some_and(|c| c != '(') {
            return Vec::new();
        }
        let mut steps = rest;
        if steps.take_any(&["step ", "steps ", "Step ", "Steps "]) {
            let bare = |step| Err(format!("step {step} without a section"));
            return steps.rows().into_iter().map(bare).collect();
        }
        let mut section = rest;
        let places = section.places();
        let exact = places
            .first()
            .is_some_and(|p| p.section.contains('.') || p.part.is_some());
        let ends: &[char] = match before {
            None => &['.', ':', ','],
            Some(_) => &[')', ',', ';', ':'],
        };
        match exact && section.next_is(|c| ends.contains(&c)) {
            true => places.iter().map(|p| self.look_up(rules, p)).collect(),
            false => Vec::new(),
        }
    }

    /// `(8.2)` and `(3)` in the page of rules itself.
    fn own_section(&self, page: &str, mut rest: Rest<'_>) -> Vec<Result<(), String>> {
        let places = rest.places();
        match rest.next_is(|c| c == ')') {
            true => places.iter().map(|p| self.look_up(page, p)).collect(),
            false => Vec::new(),
        }
    }

    /// `(some-page 2.3)`, `(DESIGN 2)`: a name as documents have it, and a section.
    fn unknown_document(&self, mut rest: Rest<'_>) -> Option<Result<(), String>> {
        let name = rest.take_while(|c| c.is_ascii_alphabetic() || c == '-');
        let hyphened = name.contains('-') && name.chars().all(|c| c.is_lowercase() || c == '-');
        let shouted = name.len() > 4 && name.chars().all(|c| c.is_ascii_uppercase());
        if !(hyphened || shouted) || self.numbered.contains_key(name) {
            return None;
        }
        let a_place = rest.take(": \"") || rest.take(" ") && !rest.places().is_empty();
        let unknown = || Err(format!("there is no document docs/{name}.md"));
        (a_place && rest.next_is(|c| !c.is_whitespace())).then(unknown)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A row of docs/deviations.md.
struct Deviation {
    name: String,
    cells: Vec<String>,
}

fn deviations() -> Vec<Deviation> {
    let text = page("docs/deviations.md");
    let rows = text.lines().filter(|l| l.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_matches('|');
        inner.split(" | ").map(|c| c.trim().to_owned()).collect()
    };
    rows.map(cells)
        .map(|cells| Deviation {
            name: cells[0].trim_matches('`').to_owned(),
            cells,
        })
        .collect()
}

/// Consecutive comment lines are one text, so that a reference may be wrapped; a line of code is one of its own.
fn texts(path: &str, text: &str) -> Vec<(usize, Kind, String)> {
    let rust = path.ends_with(".rs");
    let prober = path.starts_with("src/pods/prober");
    let mut found: Vec<(usize, Kind, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let comment = line.strip_prefix("//").filter(|_| rust);
        let kind = match (rust, comment) {
            (true, Some(_)) => Kind::Comment { prober },
            (true, None) => Kind::Code,
            (false, _) if path == "docs/kubelet-probes.md" => Kind::TheRules("kubelet-probes"),
            (false, _) if path == "docs/workloads.md" => Kind::TheRules("workloads"),
            (false, _) => Kind::Page,
        };
        let words = comment
            .unwrap_or(line)
            .trim_start_matches(['/', '!'])
            .trim();
        match found.last_mut() {
            Some((_, last, so_far)) if open && *last == kind && kind != Kind::Code => {
                *so_far += " ";
                *so_far += words;
            }
            _ => found.push((number, kind, words.to_owned())),
        }
        open = !words.is_empty() && !line.starts_with('|');
    }
    found
}

fn files() -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = ["src", "tests", "benches", "examples", "docs"]
        .iter()
        .map(|dir| root().join(dir))
        .collect();
    open.extend(
        fs::read_dir(root())
            .expect("the root can be listed")
            .map(|e| e.expect("an entry").path())
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("it can be listed");
            open.extend(entries.map(|e| e.expect("an entry").path()));
        } else if path.extension().is_some_and(|e| e == "rs" || e == "md")
            && !path.ends_with("tests/project/rule_references.rs")
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_reference_leads_to_a_rule() {
    let documents = Documents::read();
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in files() {
        let name = path.strip_prefix(root()).expect("below the root");
        let name = name.display().to_string();
        for (line, kind, text) in texts(&name, &fs::read_to_string(&path).expect("text")) {
            let (references, errors) = documents.check(&text, kind);
            count += references;
            wrong.extend(errors.iter().map(|e| format!("{name}:{line}: {e}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 250, "only {count} references: are all forms seen?");
}

#[test]
fn what_leads_nowhere_is_found() {
    let documents = Documents::read();
    let comment = Kind::Comment { prober: false };
    #[track_caller]
    fn check(documents: &Documents, kind: Kind, text: &str, count: usize, wrong: &[&str]) {
        let (found, errors) = documents.check(text, kind);
        assert_eq!(
            (found, errors),
            (count, wrong.iter().map(|s| s.to_string()).collect()),
            "{text}"
        );
    }
    let right = [
        ("see kubelet-probes 2.3 row 8.", 1),
        ("(kubelet-probes 1.3–1.5, 3.1)", 3),
        (
            "(kubelet-probes 2, 4; lessons A, B6)"
                .replace("B6", "B2")
                .as_str(),
            4,
        ),
        ("(exec-in-container 3, steps 3 to 13)", 2),
        ("(8.4, last paragraph)", 1),
        ("13.1. The container", 1),
        ("(kubelet-probes 5.3 \"Reject\") deviations: run-counter", 2),
        ("in 1.5 s (0.31 s) and (2.0 MB); lessons of others", 0),
        ("(services 5.1 to 5.3), and the services of a node", 2),
        ("(workloads 3.10 to 3.12), and workloads of a node", 2),
    ]
    .map(|(text, count)| (text.to_owned(), count));
    for (text, count) in right {
        check(&documents, comment, &text, count, &[]);
    }
    let nowhere: [(&str, usize, &[&str]); 15] = [
        ("(services 5.40)", 1, &["services has no section 5.40"]),
        ("(workloads 3.40)", 1, &["workloads has no section 3.40"]),
        (
            "kubelet-probes 17",
            1,
            &["kubelet-probes has no section 17"],
        ),
        ("(8.40)", 1, &["kubelet-probes has no section 8.40"]),
        (
            "kubelet-probes 2.3 row 17",
            1,
            &["kubelet-probes 2.3 has no row 17"],
        ),
        (
            "kubelet-probes 9.3 S11",
            2,
            &[
                "kubelet-probes 9.3 has no row S11",
                "kubelet-probes has no row S11",
            ],
        ),
        ("(8.3 step 6)", 1, &["kubelet-probes 8.3 has no step 6"]),
        (
            "(8.5, \"order of turns\")",
            1,
            &["kubelet-probes 8.5 has no \"order of turns\""],
        ),
        (
            "lessons A12 and H",
            2,
            &["lessons has no A12", "lessons has no H"],
        ),
        (
            "deviations: none-such",
            1,
            &["deviations has no row none-such"],
        ),
        (
            "(node-rules 2.3)",
            1,
            &["there is no document docs/node-rules.md"],
        ),
        ("(DESIGN 2)", 1, &["there is no document docs/DESIGN.md"]),
        (
            "the kubelet-probes say",
            1,
            &["kubelet-probes without a section"],
        ),
        ("held back (row 8)", 1, &["row 8 without a section"]),
        ("Step 1: the sandbox", 1, &["step 1 without a section"]),
    ];
    for (text, count, wrong) in nowhere {
        check(&documents, comment, text, count, wrong);
    }
    let of_itself = "above 0 (3.40), and (3.7)";
    let wrong = &["workloads has no section 3.40"];
    check(&documents, Kind::TheRules("workloads"), of_itself, 2, wrong);
    let prober = Kind::Comment { prober: true };
    check(
        &documents,
        prober,
        "Rows 5–10 (row 17)",
        3,
        &["kubelet-probes 2.3 has no row 17"],
    );
}

/// Every row has all its cells, a name of its own, and tests that exist.
#[test]
fn deviations_have_reasons_and_tests() {
    let rows = deviations();
    assert!(rows.len() > 20, "only {} rows", rows.len());
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    for Deviation { name, cells } in &rows {
        assert_eq!(cells.len(), 5, "{name} has {} cells", cells.len());
        assert!(
            cells.iter().all(|c| c.len() > 3),
            "{name} has an empty cell"
        );
        let words: Vec<&str> = cells[4].split('`').skip(1).step_by(2).collect();
        assert!(
            !words.is_empty() && words.len().is_multiple_of(2),
            "{name} names no test"
        );
        for pair in words.chunks(2) {
            let head = format!("fn {}(", pair[1]);
            assert!(
                page(pair[0]).contains(&head),
                "{name}: {} has no {}",
                pair[0],
                pair[1]
            );
        }
    }
}

/// Each deviation of workloads leads to rules that podprobe has of its own.
#[test]
fn deviations_of_workloads_are_rules_of_our_own() {
    let text = page("docs/deviations.md");
    let (_, table) = text.split_once("\n## Workloads\n").expect("the section");
    let sections = Document::parse(&page("docs/workloads.md")).sections;
    let is_own = |key: &str| {
        let rule = sections.get(key);
        rule.is_some_and(|rule| rule.text.contains("**node:**"))
    };
    let mut seen = BTreeSet::new();
    for row in table.lines().filter(|l| l.starts_with("| workloads ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        assert!(cells.iter().all(|cell| cell.len() > 3), "{row}");
        for rule in cells[0].trim_start_matches("workloads ").split(", ") {
            assert!(is_own(rule), "workloads {rule} is no rule of our own");
            assert!(seen.insert(rule.to_owned()), "two rows have {rule}");
        }
    }
    assert!(seen.len() > 20, "only {} rules", seen.len());
}

/// A page of rules that nothing leads to is not kept.
#[test]
fn every_page_is_referred_to_and_in_the_table_of_references() {
    let documents = Documents::read();
    let architecture = page("ARCHITECTURE.md");
    let (_, table) = architecture
        .split_once("\n## References to rules\n")
        .expect("the section");
    let table = table.split("\n## ").next().expect("its text");
    let code: Vec<String> = files()
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .map(|path| fs::read_to_string(path).expect("text"))
        .collect();
    for entry in fs::read_dir(root().join("docs")).expect("it is there") {
        let path = entry.expect("an entry").path();
        // docs/manual tells how to use podprobe; it has no rules.
        if path.is_dir() {
            continue;
        }
        let file = path.file_name().and_then(|name| name.to_str());
        let file = file.expect("text");
        let name = file.trim_end_matches(".md");
        // They have no rules: tests/face/mistakes.rs compares one with what is printed, and the other has results.
        if ["mistakes", "conformance"].contains(&name) {
            continue;
        }
        let link = format!("[docs/{file}](docs/{file})");
        assert!(table.contains(&link), "the table leaves out docs/{file}");
        if documents.numbered.contains_key(name) {
            let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
            let refers = |text: &String| text.split(&format!("{name} ")).skip(1).any(begins);
            assert!(code.iter().any(refers), "no code refers to docs/{file}");
        } else {
            let is_list = ["lessons", "deviations"].contains(&name);
            assert!(is_list, "references to docs/{file} are not checked");
        }
    }
}

/// docs/lessons.md and tests/LESSONS.md list the same bugs.
#[test]
fn bugs_and_their_tests_have_the_same_numbers() {
    let of = |path: &str| -> BTreeSet<String> {
        let text = page(path);
        let cells = text
            .lines()
            .filter_map(|l| Some(l.strip_prefix('|')?.split('|').next()?.trim().to_owned()));
        cells.filter(|c| is_row(c) && !is_number(c)).collect()
    };
    assert_eq!(of("docs/lessons.md"), of("tests/LESSONS.md"));
}
