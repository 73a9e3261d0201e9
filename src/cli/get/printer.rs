//! Prints the found objects in the requested format. The printer keeps the widths of columns between calls.

use std::io::Write;

use serde_json::Value;

use super::Get;
use super::item::{Found, Item};
use super::kind::Facts;
use crate::cli::error::CliError;
use crate::cli::output::{self, Output};
use crate::cli::table::write_rows;

/// A printer of found objects in the requested format. The printer keeps the widths of a table's columns between
/// calls.
pub struct Printer<'a> {
    get: &'a Get,
    facts: Facts,
    namespaces: bool,
    begun: bool,
    widths: Vec<usize>,
}

impl<'a> Printer<'a> {
    /// Makes a printer that has not printed anything yet.
    pub fn new(get: &'a Get) -> Self {
        Self {
            get,
            facts: get.kind.facts(),
            namespaces: get.all_namespaces,
            begun: false,
            widths: Vec::new(),
        }
    }

    /// Prints the first result. A single object that was requested by name is printed alone. Several objects
    /// are printed as a list.
    pub fn first(&mut self, found: &Found, out: &mut dyn Write) -> Result<(), CliError> {
        let is_elsewhere = |item: &Item| !matches!(item.namespace.as_str(), "" | "default");
        self.namespaces |= self.get.namespace.is_none() && found.items.iter().any(is_elsewhere);
        match &self.get.output {
            Output::Json | Output::Yaml | Output::JsonPath(_) => self.object(found, out)?,
            Output::Table | Output::Wide => self.rows(&found.rows().collect::<Vec<_>>(), out)?,
            Output::Name | Output::CustomColumns(_) => {
                self.rows(&found.items.iter().collect::<Vec<_>>(), out)?;
            }
        }
        Ok(out.flush()?)
    }

    fn object(&self, found: &Found, out: &mut dyn Write) -> Result<(), CliError> {
        match (&found.items[..], self.get.names.len()) {
            // As with kubectl, nothing is printed for a missing object, because the error that follows is enough.
            ([], 1) if !found.missing.is_empty() => Ok(()),
            ([one], 1) => output::write(&self.get.output, &one.object, out),
            (items, _) => {
                let objects = items.iter().map(|i| i.object.clone()).collect();
                let refused: Vec<Value> = found.refused.iter().map(|r| r.object.clone()).collect();
                let refused = (!refused.is_empty()).then(|| refused.into());
                output::write(&self.get.output, &output::list(objects, refused), out)
            }
        }
    }

    /// Prints rows that have changed.
    pub fn again(&mut self, items: &[&Item], out: &mut dyn Write) -> Result<(), CliError> {
        match &self.get.output {
            Output::Json | Output::Yaml | Output::JsonPath(_) => {
                for item in items {
                    if self.get.output == Output::Yaml {
                        writeln!(out, "---")?;
                    }
                    output::write(&self.get.output, &item.object, out)?;
                }
            }
            _ => self.rows(items, out)?,
        }
        Ok(out.flush()?)
    }

    fn rows(&mut self, items: &[&Item], out: &mut dyn Write) -> Result<(), CliError> {
        if self.get.output == Output::Name {
            for item in items {
                writeln!(out, "{}/{}", self.facts.prefix, item.name)?;
            }
            return Ok(());
        }
        if items.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        if !std::mem::replace(&mut self.begun, true) && !self.get.no_headers {
            rows.push(self.header());
        }
        for item in items {
            rows.push(self.row(item)?);
        }
        Ok(write_rows(&rows, &mut self.widths, out)?)
    }

    fn header(&self) -> Vec<String> {
        if let Output::CustomColumns(columns) = &self.get.output {
            return columns.header();
        }
        let wide = match self.get.output {
            Output::Wide => self.facts.wide,
            _ => &[],
        };
        let namespace = self.namespaces.then_some("NAMESPACE");
        let words = namespace.iter().chain(self.facts.columns).chain(wide);
        words.map(|word| (*word).to_owned()).collect()
    }

    fn row(&self, item: &Item) -> Result<Vec<String>, CliError> {
        if let Output::CustomColumns(columns) = &self.get.output {
            return columns.row(&item.object).map_err(output::failed);
        }
        let shown = match self.get.output {
            Output::Wide => item.cells.len(),
            _ => self.facts.columns.len(),
        };
        let namespace = self.namespaces.then(|| item.namespace.clone());
        let mut cells: Vec<String> = item.cells.iter().take(shown).cloned().collect();
        // As with kubectl, the name begins with the kind. In tables of events and probes, the first column is not
        // NAME.
        if self.get.is_one_of_many && self.facts.columns.first() == Some(&"NAME") {
            cells[0] = format!("{}/{}", self.facts.prefix, cells[0]);
        }
        Ok(namespace.into_iter().chain(cells).collect())
    }
}
