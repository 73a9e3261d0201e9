//! Images come from archives and directories, or are pulled from registries. Each layer is unpacked once, and mounted
//! with overlayfs.
//!
//! ```text
//! archive ─ source ─▶ archive (which images, which blobs) ─▶ stream (digest, decompression, limit)
//!                                                              └▶ tarstream ─▶ layer (tree) ─▶ staging ─▶ store
//! ```
//!
//! Files from the top down: `registry` (pulls) and `housekeeping` (a thread); `manager` (the image for a container);
//! `pulls`, `dropped`, `save`, `removal`, `store`, `staging` and `repair`; `archive`, `source`, `layer` and `files`;
//! then all other files. No file uses a file that stands before it in this list.
//!
//! Invariants: an archive is not trusted. Every digest is checked, every size is bounded, and nothing is written
//! outside the store. A load succeeds as a whole or leaves nothing, and never changes other images.

mod archive;
mod back_off;
mod config;
mod dropped;
mod error;
mod file_kind;
mod files;
pub mod housekeeping;
mod image_gc;
mod in_use;
mod layer;
pub mod manager;
pub mod overlay;
mod pack;
pub mod pull_metrics;
mod pulls;
mod reference;
pub mod registry;
mod removal;
mod repair;
mod save;
mod source;
mod space;
mod staging;
mod store;
mod stream;
pub(crate) mod tarstream;
pub(crate) mod tree;

pub use config::ImageConfig;
pub use dropped::DropReport;
pub use error::{ImageError, NoRoom};
pub use files::NAMES;
pub use image_gc::ImageGcPolicy;
pub use in_use::ImagesInUse;
pub use layer::Limits;
pub use pulls::{ImagePull, PullStage};
pub use reference::Reference;
pub use removal::Removed;
pub use save::save_to;
pub use store::{Image, ImageDetails, ImageRecord, ImageStore, LoadedImage};
