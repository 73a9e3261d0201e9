//! The image configuration: the fields that podprobe reads, the platform, and the configuration that `import` writes.

use serde::{Deserialize, Serialize};

use crate::base::clock::Time;
use crate::base::json;

use super::error::ImageError;

/// The defaults that an image has for its containers. Each field is empty if the image has no such default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageConfig {
    /// Entrypoint of the image. The field `command` of the container's spec replaces it.
    pub entrypoint: Vec<String>,
    /// Arguments of the image. The field `args` of the container's spec replaces them.
    pub cmd: Vec<String>,
    /// Environment variables in the form `NAME=value`, in the order of the image.
    pub env: Vec<String>,
    /// User in the form `user[:group]`. Each part is a number, or a name of the image's own /etc/passwd or /etc/group.
    pub user: String,
    /// Absolute path of the working directory; empty means `/`.
    pub working_dir: String,
    /// Signal that stops a container: `SIGTERM`, `TERM` or a number. Empty means SIGTERM.
    pub stop_signal: String,
    /// Ports in the form `80/tcp`. They are only shown to people.
    pub exposed_ports: Vec<String>,
    /// Paths that the image declares as volumes. They are only shown to people.
    pub volumes: Vec<String>,
}

/// The fields of an OCI image configuration that podprobe reads. Docker's configuration has the same form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OciConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<String>,
    pub(super) architecture: String,
    pub(super) os: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) variant: String,
    config: Option<Process>,
    pub(super) rootfs: RootFs,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    /// Digests of the uncompressed layers, bottom first.
    pub(super) diff_ids: Vec<String>,
}

/// The process configuration of an image. Each field may be null, because Go writes an empty slice or map as null.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Process {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    exposed_ports: Option<serde_json::Map<String, serde_json::Value>>,
    volumes: Option<serde_json::Map<String, serde_json::Value>>,
}

impl OciConfig {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let config: Self = json::from_slice(bytes)
            .map_err(|e| ImageError::corrupt("image configuration", e.to_string()))?;
        if config.rootfs.diff_ids.is_empty() {
            return Err(ImageError::corrupt(
                "image configuration",
                "it lists no layers (rootfs.diff_ids): not a container image",
            ));
        }
        match config
            .rootfs
            .diff_ids
            .iter()
            .find(|d| !super::reference::is_digest(d))
        {
            Some(bad) => Err(ImageError::corrupt(
                "image configuration",
                format!("{bad:?} is not a sha256 digest"),
            )),
            None => Ok(config),
        }
    }

    /// Returns the configuration of an image that is made on this machine, for the machine's platform. `diff_ids` are in
    /// the order of the layers, bottom first.
    pub(super) fn of(config: &ImageConfig, created: Option<String>, diff_ids: Vec<String>) -> Self {
        let map = |keys: &[String]| {
            (!keys.is_empty()).then(|| {
                keys.iter()
                    .map(|k| (k.clone(), serde_json::json!({})))
                    .collect()
            })
        };
        let host = Platform::host();
        let process = Process {
            entrypoint: Some(config.entrypoint.clone()),
            cmd: Some(config.cmd.clone()),
            env: Some(config.env.clone()),
            user: Some(config.user.clone()),
            working_dir: Some(config.working_dir.clone()),
            stop_signal: Some(config.stop_signal.clone()),
            exposed_ports: map(&config.exposed_ports),
            volumes: map(&config.volumes),
        };
        let rootfs = RootFs {
            kind: "layers".into(),
            diff_ids,
        };
        Self {
            created,
            architecture: host.architecture,
            os: host.os,
            variant: host.variant,
            config: Some(process),
            rootfs,
        }
    }

    pub(super) fn image_config(&self) -> ImageConfig {
        let Some(p) = &self.config else {
            return ImageConfig::default();
        };
        let keys = |m: &Option<serde_json::Map<String, serde_json::Value>>| {
            m.iter().flat_map(|m| m.keys().cloned()).collect()
        };
        ImageConfig {
            entrypoint: p.entrypoint.clone().unwrap_or_default(),
            cmd: p.cmd.clone().unwrap_or_default(),
            env: p.env.clone().unwrap_or_default(),
            user: p.user.clone().unwrap_or_default(),
            working_dir: p.working_dir.clone().unwrap_or_default(),
            stop_signal: p.stop_signal.clone().unwrap_or_default(),
            exposed_ports: keys(&p.exposed_ports),
            volumes: keys(&p.volumes),
        }
    }

    pub(super) fn created(&self) -> Option<Time> {
        json::from_value(&serde_json::Value::String(self.created.clone()?)).ok()
    }

    pub(super) fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

/// A platform, written `os/architecture[/variant]` with Go's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Platform {
    pub(super) os: String,
    pub(super) architecture: String,
    pub(super) variant: String,
}

impl Platform {
    /// Returns the platform of this machine.
    pub(super) fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", ""),
            "arm" => ("arm", arm_variant()),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", ""),
            "powerpc64" => ("ppc64", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self {
            os: "linux".into(),
            architecture: architecture.into(),
            variant: variant.into(),
        }
    }

    /// Rates how well an image of platform `self` runs on `host`: a larger number is better, and None means that the
    /// image does not run. An image without a platform is accepted.
    pub(super) fn fits(&self, host: &Self) -> Option<u32> {
        let same = |a: &str, b: &str| a.is_empty() || a == b;
        if !same(&self.os, &host.os) || !same(&self.architecture, &host.architecture) {
            return None;
        }
        let number = |v: &str| v.trim_start_matches('v').parse::<u32>().ok();
        match host.architecture.as_str() {
            "arm" => {
                let (has, wants) = (
                    number(&host.variant).unwrap_or(7),
                    number(&self.variant).unwrap_or(6),
                );
                (wants <= has).then_some(wants)
            }
            "amd64" => matches!(self.variant.as_str(), "" | "v1").then_some(1),
            _ => Some(if self.variant == host.variant { 2 } else { 1 }),
        }
    }
}

fn arm_variant() -> &'static str {
    let machine = nix::sys::utsname::uname()
        .map(|u| u.machine().to_string_lossy().into_owned())
        .unwrap_or_default();
    match machine.as_str() {
        m if m.starts_with("armv5") => "v5",
        m if m.starts_with("armv6") => "v6",
        _ => "v7",
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_unknown = |s: &'_ str| {
            if s.is_empty() {
                "unknown".to_owned()
            } else {
                s.to_owned()
            }
        };
        write!(
            f,
            "{}/{}",
            or_unknown(&self.os),
            or_unknown(&self.architecture)
        )?;
        if self.variant.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.variant)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(image: &str, host: &str, expected: Option<u32>) {
        let platform = |s: &str| {
            let mut parts = s.split('/').map(str::to_owned);
            let mut next = || parts.next().unwrap_or_default();
            Platform {
                os: next(),
                architecture: next(),
                variant: next(),
            }
        };
        assert_eq!(
            platform(image).fits(&platform(host)),
            expected,
            "{image} on {host}"
        );
    }

    #[test]
    fn platforms_fit() {
        check("linux/amd64", "linux/amd64", Some(1));
        check("linux/amd64/v3", "linux/amd64", None);
        check("linux/arm64/v8", "linux/arm64", Some(1));
        check("linux/arm64", "linux/amd64", None);
        check("windows/amd64", "linux/amd64", None);
        check("", "linux/amd64", Some(1));
        check("linux/arm/v6", "linux/arm/v7", Some(6));
        check("linux/arm/v7", "linux/arm/v6", None);
    }

    #[test]
    fn nulls_of_go_are_empty() {
        let id = format!("sha256:{}", "0".repeat(64));
        let text = format!(
            r#"{{"config":{{"Cmd":null,"Entrypoint":["/a"],"ExposedPorts":{{"80/tcp":{{}}}}}},"rootfs":{{"diff_ids":["{id}"]}}}}"#
        );
        let config = OciConfig::parse(text.as_bytes()).unwrap().image_config();
        assert_eq!(
            (config.entrypoint, config.cmd, config.exposed_ports),
            (vec!["/a".into()], vec![], vec!["80/tcp".into()])
        );
    }

    #[test]
    fn an_imported_config_reads_back() {
        let config = ImageConfig {
            cmd: vec!["/x".into()],
            user: "1".into(),
            volumes: vec!["/d".into()],
            ..ImageConfig::default()
        };
        let id = format!("sha256:{}", "0".repeat(64));
        let bytes = serde_json::to_vec(&OciConfig::of(&config, None, vec![id.clone()])).unwrap();
        assert_eq!(OciConfig::parse(&bytes).unwrap().image_config(), config);
    }
}
