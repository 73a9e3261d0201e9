//! Bytes on sockets: dialing, TLS, HTTP/1.1, HTTP/2 and unary gRPC calls, over TCP and over unix sockets.
//!
//! Invariants: knows no probe, no pod and no runtime. What a request says, how an answer is judged and how often it is
//! asked is the caller's. Everything ends at a deadline that the caller gives. Error texts are those of Go's clients.
//!
//! ```text
//! observer, text ◀─ socket ◀─ dial ◀─ tls, connection ◀─ http1, link ◀─ exchange, http2, grpc
//! ```

pub mod connection;
pub mod dial;
pub mod exchange;
pub mod grpc;
pub mod http1;
pub mod http2;
pub mod link;
pub mod observer;
mod polled;
pub mod socket;
pub mod text;
pub mod tls;
