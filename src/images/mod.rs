//! Images.

/// What an image says about the containers made of it (the `config` of an OCI image configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// `Entrypoint`.
    pub entrypoint: Vec<String>,
    /// `Cmd`.
    pub cmd: Vec<String>,
    /// `Env`: `NAME=value`.
    pub env: Vec<String>,
    /// `User`: empty, `name`, `uid`, `name:group`, `uid:gid`.
    pub user: String,
    /// `WorkingDir`; may be empty.
    pub working_dir: String,
    /// `StopSignal`; may be empty.
    pub stop_signal: String,
}
