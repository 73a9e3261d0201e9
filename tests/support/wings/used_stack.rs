//! The stack of a thread: uses it, and says how much of it is in memory.

/// Returns the resident memory of the mapping that `address` lies in, such as a thread's stack, in kB.
pub(crate) fn resident(address: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut of_it = false;
    for line in text.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((from, to)) = range.split_once('-')
            && let (Ok(from), Ok(to)) = (
                usize::from_str_radix(from, 16),
                usize::from_str_radix(to, 16),
            )
        {
            of_it = (from..to).contains(&address);
        }
        if let Some(kb) = line.strip_prefix("Rss:").filter(|_| of_it) {
            return kb.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    panic!("no mapping at {address:#x}");
}

/// Makes a call that uses 200 KiB of stack.
#[inline(never)]
pub(crate) fn touch() {
    std::hint::black_box([1_u8; 200 << 10]);
}
