//! Containers, commands in them and their images, as the kernel and other runtimes see them.

mod app_armor;
mod attach;
mod create_and_start;
mod descriptors;
mod devices;
mod docker_registry;
mod exec_equality;
mod exec_hostile;
mod exec_memory;
mod image_keeper;
mod image_manager;
mod images;
mod kernels;
mod nsexec;
mod oci;
mod registry;
mod rights;
mod runtime;
mod seccomp;
mod shared_processes;
mod stats;
mod streams;
#[path = "../support/mod.rs"]
mod support;
