//! Pods of a real daemon from their file to their end, and the prober with real servers.

mod cluster;
mod cluster_client;
mod cluster_clients;
mod cluster_ephemeral;
mod cluster_objects;
mod cluster_resize;
mod day;
mod drain;
mod eviction;
mod field_manifests;
mod hooks;
mod huge_pages;
mod image_volumes;
mod init;
mod object_volumes;
mod objects;
mod pod_cgroups;
mod pod_costs;
mod pod_fields;
mod probe_verbs;
mod prober_grpc;
mod prober_log;
mod prober_manager;
mod prober_net;
mod pulled_pods;
mod readiness_gates;
mod records;
mod reload;
mod requests;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
mod timelines;
mod url_source;
mod wire;
mod workloads;
