//! The plan of an `apply`: the file that is written, and what happens to each object.
//!
//! Invariants: pure. A file is replaced only if the new file has all objects of the old file. No object is ever in
//! two files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cli::pod_files::Objects;

/// The file to write, and what happens to each object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) file: PathBuf,
    /// Each object with its verdict, ordered by the names of the objects.
    pub(super) verdicts: Vec<(String, Verdict)>,
}

/// The outcome for an object, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Created,
    Configured,
    Unchanged,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Decides which file gets the new objects: the file `wanted`, or, if `may_move` is true, the only file that
/// already has any of these objects.
///
/// # Errors
/// Returns a sentence if the objects cannot be written. The sentence says why, and what to do.
pub(super) fn plan<C: PartialEq>(
    new: &Objects<C>,
    wanted: &Path,
    may_move: bool,
    there: &BTreeMap<PathBuf, Objects<C>>,
) -> Result<Plan, String> {
    let shares =
        |(_, objects): &(&PathBuf, &Objects<C>)| objects.keys().any(|k| new.contains_key(k));
    let holders: Vec<&PathBuf> = there.iter().filter(shares).map(|(path, _)| path).collect();
    let file = match holders.as_slice() {
        [only] if may_move => only,
        _ => wanted,
    };
    let none = Objects::new();
    if let Some(other) = holders.into_iter().find(|path| *path != file) {
        let in_other = there.get(other).unwrap_or(&none);
        let object = new.keys().find(|k| in_other.contains_key(*k));
        return Err(format!(
            "{} is in {} already: remove it there, or apply a file of that name",
            object.map_or("an object", String::as_str),
            other.display()
        ));
    }
    let old = there.get(file).unwrap_or(&none);
    if let Some(lost) = old.keys().find(|k| !new.contains_key(*k)) {
        let other_name = match may_move {
            true => "apply a file of another name (-f FILE)",
            false => "give the new file another name",
        };
        return Err(format!(
            "{} has {lost} too, which would be gone: {other_name}, or have {lost} in it",
            file.display()
        ));
    }
    let verdict = |(key, content): (&String, &C)| {
        let verdict = match old.get(key) {
            None => Verdict::Created,
            Some(same) if same == content => Verdict::Unchanged,
            Some(_) => Verdict::Configured,
        };
        (key.clone(), verdict)
    };
    Ok(Plan {
        file: file.to_owned(),
        verdicts: new.iter().map(verdict).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses objects with their contents, such as `pod/a=1 pod/b=2`.
    fn objects(text: &str) -> Objects<String> {
        let pair = |word: &str| {
            let (key, content) = word.split_once('=').unwrap();
            (key.to_owned(), content.to_owned())
        };
        text.split_whitespace().map(pair).collect()
    }

    /// Checks the plan for new objects in a directory that has the files `/p/web` and `/p/two`.
    #[track_caller]
    fn check(new: &str, wanted: &str, may_move: bool, expected: Result<(&str, &str), &str>) {
        let there = BTreeMap::from([
            ("/p/web".into(), objects("pod/web=1 service/web=1")),
            ("/p/two".into(), objects("pod/two=1")),
        ]);
        let got = plan(&objects(new), Path::new(wanted), may_move, &there).map(|plan| {
            let all = plan.verdicts.iter();
            let said = all.map(|(key, verdict)| format!("{key} {}", verdict.as_str()));
            let said = said.collect::<Vec<_>>().join(", ");
            (plan.file.display().to_string(), said)
        });
        let expected = expected.map(|(file, said)| (file.to_owned(), said.to_owned()));
        assert_eq!(got, expected.map_err(str::to_owned), "{new} {wanted}");
    }

    #[test]
    fn each_object_is_created_configured_or_unchanged() {
        check("pod/x=1", "/p/x", false, Ok(("/p/x", "pod/x created")));
        check(
            "pod/web=2 service/web=1 service/x=1",
            "/p/web",
            false,
            Ok((
                "/p/web",
                "pod/web configured, service/web unchanged, service/x created",
            )),
        );
    }

    #[test]
    fn no_object_comes_to_lie_in_two_files() {
        let said = "pod/two is in /p/two already: remove it there, or apply a file of that name";
        check("pod/two=1", "/p/x", false, Err(said));
        check(
            "pod/two=2 pod/web=1 service/web=1",
            "/p/web",
            true,
            Err(said),
        );
        let stays = Ok(("/p/two", "pod/two configured"));
        check("pod/two=2", "/p/two.json", true, stays);
    }

    #[test]
    fn nothing_goes_with_the_file_that_is_replaced() {
        let said = "/p/web has service/web too, which would be gone: give the new file another name, or have service/web in it";
        check("pod/web=1", "/p/web", false, Err(said));
        let said = "/p/web has service/web too, which would be gone: apply a file of another name (-f FILE), or have service/web in it";
        check("pod/web=1", "/p/x", true, Err(said));
    }
}
