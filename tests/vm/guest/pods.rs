//! Pod files of the suite, and images for them.

use std::fs;

use crate::case::until;
use crate::node::{Node, PODS};
use crate::tar::Tar;

/// The image that most pods use.
pub const TOOLS: &str = "tools:1";

/// Files that a case has put into the pods' directory. They are removed, and their pods are gone, when it ends.
pub struct Files<'a> {
    node: &'a Node,
    names: Vec<String>,
}

impl<'a> Files<'a> {
    pub fn new(node: &'a Node) -> Files<'a> {
        Files {
            node,
            names: Vec::new(),
        }
    }

    /// Puts a file there as a whole.
    pub fn put(&mut self, name: &str, text: &str) -> Result<(), String> {
        let draft = format!("/etc/podprobe/{name}.draft");
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, format!("{PODS}/{name}.yaml")))
            .map_err(|e| format!("{name}.yaml: {e}"))?;
        if !self.names.iter().any(|n| n == name) {
            self.names.push(name.to_owned());
        }
        Ok(())
    }

    /// A pod of that name; `spec` is YAML, indented by two.
    pub fn pod(&mut self, name: &str, spec: &str) -> Result<(), String> {
        self.put(name, &pod(name, spec))
    }

    /// A pod of one container, which runs this program; `more` are further fields of the container.
    pub fn tool(&mut self, name: &str, args: &[&str], more: &str) -> Result<(), String> {
        self.pod(
            name,
            &format!("  containers:\n{}", container("c", args, more)),
        )
    }

    pub fn remove(&mut self) {
        for name in &self.names {
            // A case may have removed it.
            let _ = fs::remove_file(format!("{PODS}/{name}.yaml"));
        }
        self.names.clear();
    }

    /// Removes the files and waits for the end of their pods.
    pub fn end(mut self) -> Result<(), String> {
        self.remove();
        no_pods(self.node)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The object that a claim of this name needs.
pub fn claim(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec:\n  accessModes: [ReadWriteOnce]\n  resources: {{requests: {{storage: 1Mi}}}}\n"
    )
}

pub fn no_pods(node: &Node) -> Result<(), String> {
    until("the end of all pods", || {
        let left = node.ask(&["get", "pods", "-o", "name"])?;
        if left.trim().is_empty() {
            Ok(())
        } else {
            Err(left)
        }
    })
}

pub fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  labels: {{app: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n{spec}\n"
    )
}

/// A container that runs this program, as an item of a list; `more` are further fields, in YAML that is indented by four.
pub fn container(name: &str, args: &[&str], more: &str) -> String {
    container_of(TOOLS, name, args, more)
}

pub fn container_of(image: &str, name: &str, args: &[&str], more: &str) -> String {
    let args: Vec<_> = args.iter().map(|a| format!("{a:?}")).collect();
    format!(
        "  - name: {name}\n    image: {image}\n    imagePullPolicy: Never\n    command: [/guest, {}]\n{more}\n",
        args.join(", ")
    )
}

/// A tar with what every image has.
pub fn image() -> Result<Tar, String> {
    let mut tar = Tar::default();
    for (name, from) in [("guest", "/vm/guest"), ("busybox", "/bin/busybox")] {
        let bytes = fs::read(from).map_err(|e| format!("{from}: {e}"))?;
        tar.file(name, 0o755, &bytes);
    }
    for dir in ["bin", "etc", "proc", "sys", "dev"] {
        tar.directory(dir, 0o755);
    }
    tar.directory("tmp", 0o1777);
    tar.link("bin/sh", "../busybox");
    tar.file("denied", 0o644, b"denied\n");
    tar.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0::/:/bin/sh\nu:x:1000:1000::/:/bin/sh\n",
    );
    Ok(tar)
}

pub fn import(node: &Node, name: &str, tar: Tar) -> Result<(), String> {
    let file = format!("/tmp/{}.tar", name.replace(':', "-"));
    fs::write(&file, tar.end()).map_err(|e| format!("{file}: {e}"))?;
    node.ask(&["image", "import", &file, name])?;
    fs::remove_file(&file).map_err(|e| format!("{file}: {e}"))
}
