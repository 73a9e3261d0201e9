//! The exec hook: runs the command, and decides by the command's end whether the hook failed.

use std::time::Duration;

use super::message::{ExecFailed, MAX_OUTPUT, of_exec};
use super::{Failure, HookError, HookSubject};
use crate::base::cancel::Cancel;
use crate::engine::runtime::{ExecOutcome, Runtime, RuntimeError};

/// Runs the hook's command in the container. Variables in the command are not expanded, as in the kubelet, unlike in
/// the command of a probe.
pub(super) fn run(
    runtime: &dyn Runtime,
    subject: HookSubject<'_>,
    command: &[String],
    limit: Duration,
    cancel: &Cancel,
) -> Result<(), HookError> {
    let answer = runtime.exec(subject.id, command, limit, MAX_OUTPUT, Some(cancel));
    if answer.is_err() && cancel.is_cancelled() {
        return Err(HookError::Cancelled);
    }
    judge(answer, subject, command, limit).map_err(HookError::Failed)
}

fn judge(
    answer: Result<ExecOutcome, RuntimeError>,
    subject: HookSubject<'_>,
    command: &[String],
    limit: Duration,
) -> Result<(), Failure> {
    let failed = |failed, output: &[u8]| Err(of_exec(subject, command, &failed, output));
    match answer {
        Ok(ExecOutcome::Exited { code: 0, .. }) => Ok(()),
        Ok(ExecOutcome::Exited { code, output }) => failed(ExecFailed::Code(code), &output),
        Ok(ExecOutcome::TimedOut { output }) => failed(ExecFailed::TimedOut(limit), &output),
        Err(e) => failed(ExecFailed::NotRun(e), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::lifecycle::tests::Example;

    #[track_caller]
    fn check(answer: Result<ExecOutcome, RuntimeError>, expected: Option<&str>) {
        let example = Example::new();
        let command = ["sh", "-c", "exit 3"].map(str::to_owned);
        let got = judge(answer, example.subject(), &command, Duration::from_secs(90));
        let expected = expected.map(|end| {
            format!("Exec lifecycle hook ([sh -c exit 3]) for Container \"c\" in Pod \"p_d(u)\" failed - error: {end}")
        });
        assert_eq!(got.err().map(|failure| failure.text), expected);
    }

    #[test]
    fn the_exit_code_decides_and_the_output_is_escaped() {
        let exited = |code, output: &str| {
            let output = output.into();
            Ok(ExecOutcome::Exited { code, output })
        };
        check(exited(0, "ready"), None);
        let why = r#"command 'sh -c exit 3' exited with 3, message: "no\n\x1b[31m""#;
        check(exited(3, "no\n\u{1b}[31m"), Some(why));
        let late = r#"not completed in grace period of 1m30s, message: "half""#;
        check(
            Ok(ExecOutcome::TimedOut {
                output: b"half".to_vec(),
            }),
            Some(late),
        );
        let lost = RuntimeError::failed("no descriptors");
        check(Err(lost), Some(r#"no descriptors, message: """#));
    }

    #[test]
    fn what_is_kept_of_a_hook_is_bounded() {
        let example = Example::new();
        let output = vec![b'x'; 1 << 20];
        let command = ["y".repeat(1 << 20)];
        for command in [&[][..], &command] {
            let answer = Ok(ExecOutcome::Exited {
                code: 1,
                output: output.clone(),
            });
            let got = judge(answer, example.subject(), command, Duration::ZERO);
            let failure = got.unwrap_err();
            assert!(failure.text.len() <= 3 * MAX_OUTPUT);
            assert_eq!(failure.cause, "the command exited with 1");
        }
    }
}
