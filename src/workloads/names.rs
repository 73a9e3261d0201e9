//! Names and hashes of what controllers make: sets, pods, and the label that tells the templates of a Deployment apart.
//!
//! Invariants: pure. Equal arguments give equal names in every version of podprobe.

use crate::base::pod_uid::PodUid;
use crate::base::text::head;

/// The characters of a safe encoding: no vowels and no digits that look like vowels, so that no word comes out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;
/// Longest prefix of a generated name, in bytes.
const LONGEST_PREFIX: usize = 58;
/// Number of generated characters behind the prefix.
const GENERATED: usize = 5;

/// Encodes each byte of a text as a character of the safe alphabet (apimachinery util/rand: SafeEncodeString; workloads
/// 1.5).
pub fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| safe_char(byte.into())).collect()
}

fn safe_char(number: u32) -> char {
    ALPHABET[number as usize % ALPHABET.len()].into()
}

/// Returns the FNV-1a hash of `bytes` with 32 bits.
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    bytes.into_iter().fold(0x811c_9dc5, mix)
}

/// Returns the `pod-template-hash` of a template, from the canonical JSON of the template and the number of collisions
/// that the Deployment has seen. No number and the number 0 give different hashes, as upstream (workloads 1.6).
pub fn template_hash(canonical: &str, collision_count: Option<i32>) -> String {
    let count = collision_count.map(|count| {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        bytes
    });
    let bytes = canonical.bytes().chain(count.into_iter().flatten());
    safe_encode(&fnv1a_32(bytes).to_string())
}

/// Returns the name of a set of a Deployment. The Deployment's name is cut if the whole would be too long
/// (deployment/sync.go: generateReplicaSetName; workloads 3.3).
pub fn set_name(deployment: &str, hash: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(hash.len() + 1);
    match room {
        0 => format!("{deployment}-{hash}"),
        room => format!("{}-{hash}", head(deployment, room)),
    }
}

/// Returns the prefix of the names of an owner's pods, before it is cut: the owner's name and a dash, or the name alone
/// if the dash would make the prefix invalid (controller_utils.go: getPodsPrefix; workloads 1.4).
pub fn pod_name_prefix(owner: &str) -> String {
    let with_dash = format!("{owner}-");
    match is_valid_prefix(&with_dash) {
        true => with_dash,
        false => owner.to_owned(),
    }
}

/// Returns the name of a pod: the owner's prefix, cut to 58 bytes, and 5 characters that follow from the pod's UID.
/// Where a name is taken, the next `attempt` gives other characters (workloads 1.4).
pub fn pod_name(owner: &str, uid: &PodUid, attempt: u32) -> String {
    let prefix = pod_name_prefix(owner);
    let bytes = uid.as_str().bytes().chain(attempt.to_le_bytes());
    let mut number = fnv1a_32(bytes);
    let generated = (0..GENERATED).map(|_| {
        let char = safe_char(number);
        number /= ALPHABET.len() as u32;
        char
    });
    let mut name = head(&prefix, LONGEST_PREFIX).to_owned();
    name.extend(generated);
    name
}

/// True if a name that begins with `prefix` may be valid (apimachinery api/validation: NameIsDNSSubdomain with prefix).
/// Upstream puts a letter in the place of the last two characters of a prefix that ends with a dash.
fn is_valid_prefix(prefix: &str) -> bool {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            is_subdomain(&format!("{}a", &rest[..kept]))
        }
        _ => is_subdomain(prefix),
    }
}

/// True if `name` is a DNS subdomain: labels of `a-z`, `0-9` and inner dashes, with dots between them.
fn is_subdomain(name: &str) -> bool {
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(|end| is_outer(*end)))
            && bytes.iter().all(|byte| is_outer(*byte) || *byte == b'-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_has_its_published_values() {
        assert_eq!(fnv1a_32([]), 0x811c_9dc5);
        assert_eq!(fnv1a_32(*b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(*b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn no_collision_and_zero_collisions_differ() {
        let hashes = [None, Some(0), Some(1)].map(|count| template_hash("{}", count));
        assert_ne!(hashes[0], hashes[1]);
        assert_ne!(hashes[1], hashes[2]);
        // The count takes 8 bytes, of which upstream fills 4.
        let bytes = b"{}".iter().copied().chain([1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hashes[2], safe_encode(&fnv1a_32(bytes).to_string()));
    }

    #[track_caller]
    fn check_prefix(owner: &str, expected: &str) {
        assert_eq!(pod_name_prefix(owner), expected);
    }

    #[test]
    fn a_dash_that_makes_the_prefix_invalid_is_left_out() {
        let longest = "a".repeat(253);
        check_prefix(&longest, &format!("{longest}-"));
        let too_long = "a".repeat(254);
        check_prefix(&too_long, &too_long);
        check_prefix("Web", "Web");
        check_prefix("a..b", "a..b");
        check_prefix("", "");
    }

    #[test]
    fn the_name_of_a_pod_follows_from_its_uid() {
        let uid = PodUid::from("4b8f0f5e-3d0c-4b5a-9c39-0f2d6f1f7c11");
        let name = pod_name("web-5d4f8c7b9", &uid, 0);
        assert_eq!(name, pod_name("web-5d4f8c7b9", &uid, 0));
        assert_ne!(name, pod_name("web-5d4f8c7b9", &uid, 1));
        assert_ne!(name, pod_name("web-5d4f8c7b9", &PodUid::from("other"), 0));
        let generated = name.strip_prefix("web-5d4f8c7b9-").unwrap();
        assert_eq!(generated.len(), GENERATED);
        assert!(generated.bytes().all(|byte| ALPHABET.contains(&byte)));
    }

    #[test]
    fn a_long_prefix_is_cut_and_so_is_the_hash_in_it() {
        let name = pod_name(&format!("{}-hash", "a".repeat(57)), &PodUid::from("u"), 0);
        assert!(name.starts_with(&format!("{}-", "a".repeat(57))));
        assert_eq!(name.len(), LONGEST_PREFIX + GENERATED);
    }
}
