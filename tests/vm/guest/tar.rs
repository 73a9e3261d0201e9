//! Tar archives with entries that no tool of the machine makes: devices, and links in the place of directories.

#[derive(Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

struct Entry<'a> {
    name: &'a str,
    kind: u8,
    mode: u32,
    to: &'a str,
    device: (u32, u32),
}

impl Tar {
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        let entry = Entry {
            name,
            kind: b'0',
            mode,
            to: "",
            device: (0, 0),
        };
        self.entry(&entry, content);
    }

    pub fn directory(&mut self, name: &str, mode: u32) {
        let name = &format!("{name}/");
        let entry = Entry {
            name,
            kind: b'5',
            mode,
            to: "",
            device: (0, 0),
        };
        self.entry(&entry, &[]);
    }

    pub fn link(&mut self, name: &str, to: &str) {
        let entry = Entry {
            name,
            kind: b'2',
            mode: 0o777,
            to,
            device: (0, 0),
        };
        self.entry(&entry, &[]);
    }

    pub fn block_device(&mut self, name: &str, mode: u32, device: (u32, u32)) {
        let entry = Entry {
            name,
            kind: b'4',
            mode,
            to: "",
            device,
        };
        self.entry(&entry, &[]);
    }

    /// The same without an entry of that directory.
    pub fn without(self, directory: &str) -> Tar {
        let name = format!("{directory}/\0");
        let mut bytes = Vec::new();
        let mut rest = &self.bytes[..];
        while let Some((head, after)) = rest.split_at_checked(512) {
            let size = std::str::from_utf8(&head[124..135]).unwrap_or("");
            let size = usize::from_str_radix(size, 8).unwrap_or(0);
            let content = size.next_multiple_of(512);
            if !head.starts_with(name.as_bytes()) {
                bytes.extend(&rest[..512 + content]);
            }
            rest = &after[content..];
        }
        Tar { bytes }
    }

    pub fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }

    fn entry(&mut self, entry: &Entry<'_>, content: &[u8]) {
        let mut head = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
        let octal = |n: usize, width: usize| format!("{n:0width$o}\0").into_bytes();
        put(0, entry.name.as_bytes());
        put(100, &octal(entry.mode as usize, 7));
        put(108, &octal(0, 7));
        put(116, &octal(0, 7));
        put(124, &octal(content.len(), 11));
        put(136, &octal(0, 11));
        put(148, b"        ");
        put(156, &[entry.kind]);
        put(157, entry.to.as_bytes());
        put(257, b"ustar\x0000");
        put(329, &octal(entry.device.0 as usize, 7));
        put(337, &octal(entry.device.1 as usize, 7));
        let sum: usize = head.iter().map(|b| usize::from(*b)).sum();
        head[148..155].copy_from_slice(&octal(sum, 6));
        self.bytes.extend(head);
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }
}
