//! The names and sizes of huge pages, as resources, as media of emptyDirs and in cgroup files.

use super::quantity::Quantity;

const RESOURCE: &str = "hugepages-";
const MEDIUM: &str = "HugePages";

/// True if the resource is huge pages of any size.
pub fn is_resource(name: &str) -> bool {
    name.starts_with(RESOURCE)
}

/// Returns the page size in bytes of a resource such as `hugepages-2Mi`. Returns None for another resource or a bad
/// size.
pub fn page_size(resource: &str) -> Option<u64> {
    size(resource.strip_prefix(RESOURCE)?)
}

/// Returns the resource name for pages of this many bytes, such as `hugepages-2Mi`.
pub fn resource(page_size: u64) -> String {
    format!(
        "{RESOURCE}{}",
        scaled(page_size, ["", "Ki", "Mi", "Gi", "Ti"])
    )
}

/// Returns the page size as the cgroup controller's file names write it, such as `2MB`.
pub fn cgroup_size(page_size: u64) -> String {
    scaled(page_size, ["B", "KB", "MB", "GB", "TB"])
}

/// True if the medium of an emptyDir is huge pages.
pub fn is_medium(medium: &str) -> bool {
    let rest = medium.strip_prefix(MEDIUM);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the page size in bytes of a medium such as `HugePages-2Mi`. Returns None for `HugePages` and for a bad
/// size.
pub fn medium_page_size(medium: &str) -> Option<u64> {
    size(medium.strip_prefix(MEDIUM)?.strip_prefix('-')?)
}

fn size(text: &str) -> Option<u64> {
    let amount = Quantity(text.to_owned()).parse().ok()?;
    let bytes = u64::try_from(amount.value()).ok()?;
    (amount.is_whole() && bytes > 0).then_some(bytes)
}

/// Renders a size in the largest unit in which the size is a whole number.
fn scaled(mut bytes: u64, units: [&str; 5]) -> String {
    let mut unit = 0;
    while bytes > 0 && bytes.is_multiple_of(1024) && unit + 1 < units.len() {
        bytes /= 1024;
        unit += 1;
    }
    format!("{bytes}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_kubernetes_and_cgroups_write_them() {
        for (bytes, name, file) in [
            (64 << 10, "hugepages-64Ki", "64KB"),
            (2 << 20, "hugepages-2Mi", "2MB"),
            (512 << 20, "hugepages-512Mi", "512MB"),
            (1 << 30, "hugepages-1Gi", "1GB"),
            (16 << 30, "hugepages-16Gi", "16GB"),
        ] {
            assert_eq!(
                (resource(bytes).as_str(), cgroup_size(bytes).as_str()),
                (name, file)
            );
            assert_eq!(page_size(name), Some(bytes));
        }
        for none in [
            "hugepages-",
            "hugepages-0",
            "hugepages-x",
            "hugepages-1m",
            "memory",
        ] {
            assert_eq!(page_size(none), None, "{none}");
        }
    }

    #[test]
    fn a_medium_names_its_size_or_leaves_it_to_the_requests() {
        assert!(is_medium("HugePages") && is_medium("HugePages-2Mi"));
        assert!(!is_medium("HugePages2Mi") && !is_medium("Memory") && !is_medium(""));
        assert_eq!(medium_page_size("HugePages-2Mi"), Some(2 << 20));
        assert_eq!(medium_page_size("HugePages"), None);
        assert_eq!(medium_page_size("HugePages-big"), None);
    }
}
