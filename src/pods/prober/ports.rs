//! Finds the number of a probe's port (kubelet-probes 3.3).

use crate::api::pod::{ContainerPort, IntOrString};

/// A port of a probe or a hook that does not exist or is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The text is neither the name of a port nor a number.
    #[error(
        "cannot resolve port \"{0}\": no port of this container has that name, and it is not a number"
    )]
    Unknown(String),
    /// The number is not in 1–65535.
    #[error("invalid port number: {0}")]
    Invalid(i64),
}

/// Returns the port number. A name is looked up among the ports of the same container. If no port has that name, the
/// text is read as a decimal number.
///
/// # Errors
/// Returns [`PortError`] if the text is not a number, or the number is not in 1–65535.
pub fn resolve_port(port: &IntOrString, ports: &[ContainerPort]) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(n) => i64::from(*n),
        IntOrString::String(name) => {
            port_by_name(name, ports).map_or_else(|| parse(name), |n| Ok(i64::from(n)))?
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|n| *n != 0)
        .ok_or(PortError::Invalid(number))
}

/// Returns the number of the first port with this name, whatever its protocol and number.
pub fn port_by_name(name: &str, ports: &[ContainerPort]) -> Option<i32> {
    ports
        .iter()
        .find(|p| p.name == name)
        .map(|p| p.container_port)
}

fn parse(text: &str) -> Result<i64, PortError> {
    text.parse()
        .map_err(|_| PortError::Unknown(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(port: IntOrString, expected: Result<u16, &str>) {
        let ports = [("foo", 8080), ("bar", 9000), ("big", 70000)].map(|(name, container_port)| {
            ContainerPort {
                name: name.into(),
                container_port,
                ..Default::default()
            }
        });
        match (resolve_port(&port, &ports), expected) {
            (Ok(a), Ok(b)) => assert_eq!(a, b),
            (Err(a), Err(b)) => assert!(a.to_string().contains(b), "{a}"),
            (a, b) => panic!("{port:?}: {a:?}, expected {b:?}"),
        }
    }

    #[test]
    fn numbers_names_and_numeric_text() {
        check(IntOrString::Int(443), Ok(443));
        check(IntOrString::Int(66666), Err("invalid port number: 66666"));
        check(IntOrString::Int(0), Err("invalid port number: 0"));
        check(IntOrString::Int(-1), Err("invalid port number: -1"));
        check(IntOrString::String("foo".into()), Ok(8080));
        check(IntOrString::String("8080".into()), Ok(8080));
        check(
            IntOrString::String("-1".into()),
            Err("invalid port number: -1"),
        );
        check(
            IntOrString::String("big".into()),
            Err("invalid port number: 70000"),
        );
        check(
            IntOrString::String("not-found".into()),
            Err("\"not-found\": no port"),
        );
    }
}
