//! The exec handler: runs the command and judges the runtime's answer (kubelet-probes 3.2).

use std::time::Duration;

use super::outcome::{HandlerResult, MAX_OUTPUT, Outcome, Phase};
use super::trace::note;
use crate::base::clock::go_duration;
use crate::engine::runtime::{ContainerId, ExecOutcome, Runtime, RuntimeError, RuntimeErrorKind};

/// Runs the expanded command in the container. `timeout` counts from the start of the command (lessons C3).
#[inline(never)]
pub fn probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> Outcome {
    note(|| {
        format!(
            "exec in container {}: {}",
            id.as_str().get(..12).unwrap_or(id.as_str()),
            command.join(" ")
        )
    });
    let answer = runtime.exec(id, command, timeout, MAX_OUTPUT, None);
    note(|| match &answer {
        Ok(ExecOutcome::Exited { code, output }) => {
            format!("exit code {code}, {} bytes of output", output.len())
        }
        Ok(ExecOutcome::TimedOut { output }) => format!(
            "killed after {}, {} bytes of output",
            go_duration(timeout),
            output.len()
        ),
        Err(e) => format!("cannot run it: {e}"),
    });
    judge(answer, command, timeout)
}

/// Makes the outcome from the runtime's answer. Output that is not UTF-8 is shown with replacement
/// characters.
pub fn judge(
    answer: Result<ExecOutcome, RuntimeError>,
    command: &[String],
    timeout: Duration,
) -> Outcome {
    let text = |mut output: Vec<u8>| {
        output.truncate(MAX_OUTPUT);
        String::from_utf8_lossy(&output).into_owned()
    };
    match answer {
        Ok(ExecOutcome::Exited { code: 0, output }) => {
            Outcome::new(HandlerResult::Success, text(output), Phase::Run)
        }
        Ok(ExecOutcome::Exited { output, .. }) => {
            Outcome::new(HandlerResult::Failure, text(output), Phase::Run)
        }
        Ok(ExecOutcome::TimedOut { .. }) => {
            let words = command.join(" ");
            let message = format!(
                "command timed out: \"{words}\" timed out after {}",
                go_duration(timeout)
            );
            Outcome::new(HandlerResult::Failure, message, Phase::Run)
        }
        Err(e) => {
            let container_gone = e.kind == RuntimeErrorKind::NotRunning;
            Outcome {
                container_gone,
                ..Outcome::error(e.to_string(), Phase::ExecStart)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        answer: Result<ExecOutcome, RuntimeError>,
        expected: HandlerResult,
        output: &str,
        error: Option<&str>,
    ) {
        let command = ["sh".to_owned(), "-c".into(), "sleep 9".into()];
        let got = judge(answer, &command, Duration::from_secs(90));
        assert_eq!(
            (got.result, got.output.as_str(), got.error.as_deref()),
            (expected, output, error)
        );
    }

    #[test]
    fn c7_the_answer_decides() {
        let exited = |code, output: &str| {
            Ok(ExecOutcome::Exited {
                code,
                output: output.into(),
            })
        };
        check(exited(0, "OK"), HandlerResult::Success, "OK", None);
        check(exited(1, ""), HandlerResult::Failure, "", None);
        check(
            exited(137, "killed"),
            HandlerResult::Failure,
            "killed",
            None,
        );
        let timed_out = "command timed out: \"sh -c sleep 9\" timed out after 1m30s";
        check(
            Ok(ExecOutcome::TimedOut {
                output: b"half".to_vec(),
            }),
            HandlerResult::Failure,
            timed_out,
            None,
        );
        let error = RuntimeError::failed("no descriptors");
        check(
            Err(error),
            HandlerResult::Unknown,
            "",
            Some("no descriptors"),
        );
    }

    #[test]
    fn c6_output_is_cut_at_the_limit() {
        let output = vec![b'x'; 90112];
        let got = judge(
            Ok(ExecOutcome::Exited { code: 0, output }),
            &[],
            Duration::ZERO,
        );
        assert_eq!(got.output.len(), MAX_OUTPUT);
    }
}
