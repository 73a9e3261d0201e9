//! The protobuf messages of grpc.health.v1.

use prost::Message;

/// The largest accepted answer, in bytes. A `HealthCheckResponse` has two bytes. The larger limit leaves room for
/// fields of a later version.
pub(super) const MAX_MESSAGE: usize = 4096;
/// The number of the status SERVING (`HealthCheckResponse.ServingStatus.SERVING`).
pub(super) const SERVING: i32 = 1;

/// The request of a health check.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthCheckRequest {
    /// The name of the service. An empty name means the whole server.
    #[prost(string, tag = "1")]
    pub(super) service: String,
}

/// The response to a health check.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

/// Returns the name of a serving status in protobuf, or its number if the status has no name.
pub(super) fn status_name(status: i32) -> String {
    let names = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
    usize::try_from(status)
        .ok()
        .and_then(|i| names.get(i))
        .map_or_else(|| status.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_names() {
        let names: Vec<_> = [0, 1, 2, 3, 4, -1].into_iter().map(status_name).collect();
        assert_eq!(
            names,
            [
                "UNKNOWN",
                "SERVING",
                "NOT_SERVING",
                "SERVICE_UNKNOWN",
                "4",
                "-1"
            ]
        );
    }
}
