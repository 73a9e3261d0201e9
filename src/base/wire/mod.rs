//! Clients on sockets: dialing, TLS, HTTP/1.1, HTTP/2 and unary gRPC calls, over TCP and over unix sockets.
//!
//! Invariants: this part knows nothing of probes, pods and runtimes. The caller decides what a request contains, how to
//! judge an answer, and how often to ask. Every exchange ends at a deadline of the caller. Error texts are those of
//! Go's clients.
//!
//! ```text
//! observer, text ◀─ socket ◀─ dial ◀─ tls, connection ◀─ http1, link ◀─ exchange, http2 ◀─ streams, grpc
//! ```

pub mod connection;
pub mod dial;
pub mod exchange;
pub mod grpc;
pub mod http1;
pub mod http2;
pub mod link;
pub mod listen;
pub mod observer;
mod polled;
pub mod socket;
pub mod streams;
pub mod text;
pub mod tls;
