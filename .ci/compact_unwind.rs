//! compact-unwind FILE: makes the tables for unwinding of a static x86-64 file half as large, in place.
//!
//! A table entry (FDE) says for each instruction of a function where the caller's registers are: how they get to their places
//! when the function begins, and how they leave them when it ends. A panic is unwound through calls alone, and a function makes
//! none before its frame is there, nor after it has gone. So what holds in between is all that is needed, and dozens of
//! functions share it: it goes into the entry that they have in common (CIE), and their own keep place, length and cleanup.
//! Functions that stand side by side, share it, and have nothing to clean up, share one entry too.
//!
//! An entry of another form stays as it is, such as one of assembly or of a function that pushes arguments. Debuggers that
//! stop in the first or last instructions of a function show a wrong caller. The file has no symbols for them anyway.
//!
//! The tables are the end of a segment. What follows in the file moves forward by whole pages, and its addresses stay.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::process::ExitCode;

const RBP: u8 = 6;
const RSP: u8 = 7;
/// Column of the return address.
const RETURN: u8 = 16;
/// Encoding of a pointer: a signed distance of four bytes from its own place.
const FROM_HERE: u8 = 0x1b;
/// The same, to a place that holds the pointer.
const THROUGH: u8 = 0x9b;
/// Encoding of the table in .eh_frame_hdr: signed distances of four bytes from its beginning.
const FROM_TABLE: u8 = 0x3b;
/// Encoding of a count of four bytes.
const COUNT: u8 = 0x03;

const NOP: u8 = 0x00;
const ADVANCE_1: u8 = 0x02;
const ADVANCE_2: u8 = 0x03;
const ADVANCE_4: u8 = 0x04;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_REGISTER: u8 = 0x0d;
const DEF_CFA_OFFSET: u8 = 0x0e;
/// The high two bits of these say what they are, the others are their first operand.
const ADVANCE: u8 = 0x40;
const OFFSET: u8 = 0x80;

/// What holds when a function is called: its return address lies where RSP points.
const AT_CALL: [u8; 5] = [DEF_CFA, RSP, 8, OFFSET | RETURN, 1];

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1) else {
        eprintln!("usage: compact-unwind FILE");
        return ExitCode::from(2);
    };
    let done = fs::read(&path)
        .map_err(Error::Io)
        .and_then(|file| Ok(((file.len(), entries(&file)?), compact(file)?)))
        .and_then(|(before, file)| {
            // The mode of the file stays, and a reader sees the old or the new one.
            let mut new = path.clone();
            new.push(".new");
            fs::copy(&path, &new)?;
            fs::write(&new, &file)?;
            fs::rename(&new, &path)?;
            Ok((before, (file.len(), entries(&file)?)))
        });
    match done {
        Ok((before, after)) => {
            println!(
                "compact-unwind: {} bytes with {} entries are {} with {} now",
                before.0, before.1, after.0, after.1
            );
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("compact-unwind: {}: {e}", path.display());
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
pub(crate) enum Error {
    Io(io::Error),
    /// The file, or what is named, is not as the linkers of `make static` make it.
    Form(&'static str),
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Form(what) => write!(f, "{what} does not have the form that is known here"),
        }
    }
}

/// Bytes that are read and written in little-endian order.
struct Bytes(Vec<u8>);

impl Bytes {
    fn get<const N: usize>(&self, at: usize) -> Result<[u8; N], Error> {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(Error::Form("the end of the file"))
    }

    fn u16(&self, at: usize) -> Result<usize, Error> {
        Ok(u16::from_le_bytes(self.get(at)?).into())
    }

    fn u32(&self, at: usize) -> Result<usize, Error> {
        Ok(u32::from_le_bytes(self.get(at)?) as usize)
    }

    fn u64(&self, at: usize) -> Result<usize, Error> {
        Ok(u64::from_le_bytes(self.get(at)?) as usize)
    }

    /// Reads a distance from `from`, and returns the address that it leads to.
    fn address(&self, at: usize, from: usize) -> Result<usize, Error> {
        let distance = i32::from_le_bytes(self.get(at)?);
        Ok(from.wrapping_add_signed(distance as isize))
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn push_u32(&mut self, value: usize) {
        self.0.extend((value as u32).to_le_bytes());
    }

    /// Appends the distance from the place where it is written to an address. `start` is the address of the first byte.
    fn push_distance(&mut self, start: usize, address: usize) {
        let here = start + self.0.len();
        self.push_u32(address.wrapping_sub(here));
    }
}

/// Headers of a section that are needed here.
#[derive(Clone, Copy)]
struct Section {
    header: usize,
    address: usize,
    offset: usize,
    size: usize,
}

const SECTION_NAME: usize = 0;
const SECTION_ADDRESS: usize = 0x10;
const SECTION_OFFSET: usize = 0x18;
const SECTION_SIZE: usize = 0x20;
const SEGMENT_OFFSET: usize = 0x08;
const SEGMENT_FILE_SIZE: usize = 0x20;
const SEGMENT_MEMORY_SIZE: usize = 0x28;
const SEGMENT_ALIGN: usize = 0x30;
const LOAD: usize = 1;
/// Type of the segment that leads to the index of the tables.
const INDEX: usize = 0x6474_e550;
const ELF_SECTIONS: usize = 0x28;

/// Places of the headers in an ELF file.
struct Headers {
    sections: Vec<usize>,
    segments: Vec<usize>,
}

impl Headers {
    fn of(file: &Bytes) -> Result<Self, Error> {
        let is_elf64 = file.get(0)? == *b"\x7fELF\x02\x01";
        let is_x86_64 = file.u16(0x12)? == 62;
        if !is_elf64 || !is_x86_64 {
            return Err(Error::Form("the file, which is not of x86-64,"));
        }
        let table = |place, size, count| -> Result<Vec<usize>, Error> {
            let (first, size) = (file.u64(place)?, file.u16(size)?);
            Ok((0..file.u16(count)?).map(|i| first + i * size).collect())
        };
        Ok(Self {
            segments: table(0x20, 0x36, 0x38)?,
            sections: table(ELF_SECTIONS, 0x3a, 0x3c)?,
        })
    }

    fn section(&self, file: &Bytes, name: &str) -> Result<Section, Error> {
        let names = *self
            .sections
            .get(file.u16(0x3e)?)
            .ok_or(Error::Form("the table of sections"))?;
        let names = file.u64(names + SECTION_OFFSET)?;
        for &header in &self.sections {
            let at = names + file.u32(header + SECTION_NAME)?;
            let found = file.0.get(at..).unwrap_or_default();
            if found.strip_prefix(name.as_bytes()).and_then(<[u8]>::first) == Some(&0) {
                return Ok(Section {
                    header,
                    address: file.u64(header + SECTION_ADDRESS)?,
                    offset: file.u64(header + SECTION_OFFSET)?,
                    size: file.u64(header + SECTION_SIZE)?,
                });
            }
        }
        Err(Error::Form(
            "the list of sections, without tables for unwinding,",
        ))
    }
}

/// Number of entries that the index of a file has.
pub(crate) fn entries(file: &[u8]) -> Result<usize, Error> {
    let file = Bytes(file.to_vec());
    let index = Headers::of(&file)?.section(&file, ".eh_frame_hdr")?;
    file.u32(index.offset + 8)
}

/// The file with smaller tables.
pub(crate) fn compact(file: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut file = Bytes(file);
    let headers = Headers::of(&file)?;
    let frames = headers.section(&file, ".eh_frame")?;
    let index = headers.section(&file, ".eh_frame_hdr")?;
    let entries = read(&file, frames)?;
    check_index(&file, index, &entries)?;
    // The index is first, and what it does not need any more goes to the entries.
    if !(index.address..index.address + 8).contains(&frames.address.wrapping_sub(index.size)) {
        return Err(Error::Form("the place of .eh_frame behind its index"));
    }
    let entries = joined(entries);
    let index_size = INDEX_HEAD + 8 * entries.len();
    let start = (index.address + index_size).next_multiple_of(8);
    let (written, places) = write(&entries, start);
    let back = frames.address.wrapping_sub(start);
    let tables = write_index(index.address, start, &places);
    if back > frames.address - index.address || written.len() > frames.size + back {
        return Err(Error::Form(".eh_frame, which is small already,"));
    }
    file.set(index.offset, &tables);
    file.set(frames.offset - back, &written);
    shrink_index(&mut file, &headers, index, index_size)?;
    cut(&mut file, &headers, frames, back, written.len())?;
    Ok(file.0)
}

/// The entries in the order of their functions, with one for all that stand side by side and are unwound alike.
fn joined(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.function);
    entries.dedup_by(|next, entry| {
        let is_plain = |it: &Entry| it.cleanup.is_none() && it.rules.is_empty();
        let are_beside = entry.function + entry.length == next.function;
        let are_one =
            are_beside && entry.common == next.common && is_plain(entry) && is_plain(next);
        if are_one {
            entry.length += next.length;
        }
        are_one
    });
    entries
}

/// What entries have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    /// Address of the pointer to the function that reads `cleanup`, where there is one.
    personality: Option<usize>,
    /// Where registers are at the beginning, as instructions.
    rules: Vec<u8>,
}

/// An entry of a function.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    common: Common,
    function: usize,
    length: usize,
    /// Address of the table of places to clean up, with a personality; its distance is 0 where there is none.
    cleanup: Option<usize>,
    /// Where registers are after further instructions.
    rules: Vec<u8>,
}

fn read(file: &Bytes, section: Section) -> Result<Vec<Entry>, Error> {
    let mut commons: BTreeMap<usize, Common> = BTreeMap::new();
    let mut entries = Vec::new();
    let end = section.offset + section.size;
    let mut at = section.offset;
    while at < end {
        let length = file.u32(at)?;
        if length == 0 {
            break;
        }
        let (id, next) = (at + 4, at + 4 + length);
        if next > end {
            return Err(Error::Form(".eh_frame"));
        }
        let address = |place: usize| section.address + (place - section.offset);
        match file.u32(id)? {
            0 => {
                commons.insert(at, read_common(file, id + 4..next, address)?);
            }
            back => {
                let common = id.checked_sub(back).and_then(|at| commons.get(&at));
                let common = common.ok_or(Error::Form("an entry of .eh_frame"))?;
                entries.push(read_entry(file, common, id + 4..next, address)?);
            }
        }
        at = next;
    }
    Ok(entries)
}

fn read_common(
    file: &Bytes,
    place: Range<usize>,
    address: impl Fn(usize) -> usize,
) -> Result<Common, Error> {
    const UNKNOWN: Error = Error::Form("a common entry of .eh_frame");
    let bytes = file.0.get(place.clone()).ok_or(UNKNOWN)?;
    // Version 1, no, one or three letters, steps of 1 byte of code and -8 of data, the return address in its column.
    let (personality, head) = if bytes.starts_with(b"\x01zR\0\x01\x78\x10\x01\x1b") {
        (None, 9)
    } else if bytes.starts_with(b"\x01zPLR\0\x01\x78\x10\x07") && bytes.len() > 17 {
        let at = place.start + 11;
        if bytes[10] != THROUGH || bytes[15..17] != [FROM_HERE; 2] {
            return Err(UNKNOWN);
        }
        (Some(file.address(at, address(at))?), 17)
    } else {
        return Err(UNKNOWN);
    };
    Ok(Common {
        personality,
        rules: bytes[head..].to_vec(),
    })
}

fn read_entry(
    file: &Bytes,
    common: &Common,
    place: Range<usize>,
    address: impl Fn(usize) -> usize,
) -> Result<Entry, Error> {
    const UNKNOWN: Error = Error::Form("an entry of .eh_frame");
    let at = place.start;
    let (extra, head) = match common.personality {
        None => (0, 9),
        Some(_) => (4, 13),
    };
    if usize::from(*file.0.get(at + 8).ok_or(UNKNOWN)?) != extra {
        return Err(UNKNOWN);
    }
    let cleanup = match extra {
        0 => None,
        _ if file.u32(at + 9)? == 0 => None,
        _ => Some(file.address(at + 9, address(at + 9))?),
    };
    let rules = file.0.get(at + head..place.end).ok_or(UNKNOWN)?;
    let entry = Entry {
        common: common.clone(),
        function: file.address(at, address(at))?,
        length: file.u32(at + 4)?,
        cleanup,
        rules: rules.to_vec(),
    };
    Ok(entry.compacted())
}

impl Entry {
    /// The entry with what holds while its function calls others as its only rules, if it has the usual form.
    fn compacted(mut self) -> Self {
        let is_padding = |rules: &[u8]| rules.iter().all(|rule| *rule == NOP);
        if is_padding(&self.rules) {
            self.rules.clear();
            return self;
        }
        let saved = match self.common.rules.strip_prefix(&AT_CALL) {
            Some(rules) if is_padding(rules) => in_frame(&self.rules),
            _ => None,
        };
        if let Some(saved) = saved {
            let registers = saved
                .iter()
                .flat_map(|(register, at)| [OFFSET | register, *at]);
            self.common.rules = [DEF_CFA, RBP, 16, OFFSET | RETURN, 1]
                .into_iter()
                .chain(registers)
                .collect();
            self.rules.clear();
        }
        self
    }
}

/// The registers that are saved in the frame of a function with the usual form, with their places in words below the frame's
/// end: RBP is pushed and holds the frame, others are pushed, and the frame goes, maybe in several places.
fn in_frame(rules: &[u8]) -> Option<BTreeMap<u8, u8>> {
    const IN_FRAME: (u8, u8) = (RBP, 16);
    const OUTSIDE: (u8, u8) = (RSP, 8);
    let (mut frame, mut saved, mut has_gone) = (OUTSIDE, BTreeMap::new(), false);
    let mut rules = rules.iter().copied();
    while let Some(rule) = rules.next() {
        let mut operand = || rules.next().filter(|byte| *byte < 0x80);
        match rule {
            NOP => {}
            ADVANCE_1 => drop(rules.next()?),
            ADVANCE_2 => drop(rules.nth(1)?),
            ADVANCE_4 => drop(rules.nth(3)?),
            ADVANCE..OFFSET => {}
            DEF_CFA_OFFSET => match (frame, operand()?) {
                (OUTSIDE, 16) => frame = (RSP, 16),
                _ => return None,
            },
            DEF_CFA_REGISTER => match (frame, operand()?) {
                ((RSP, 16), RBP) => frame = IN_FRAME,
                _ => return None,
            },
            DEF_CFA => match (frame, (operand()?, operand()?)) {
                (IN_FRAME, OUTSIDE) => (frame, has_gone) = (OUTSIDE, true),
                (OUTSIDE, IN_FRAME) if has_gone => frame = IN_FRAME,
                _ => return None,
            },
            OFFSET..0xc0 if !has_gone && frame != OUTSIDE => {
                saved.insert(rule - OFFSET, operand()?);
            }
            _ => return None,
        }
    }
    let has_frame = frame == IN_FRAME || has_gone;
    (has_frame && saved.get(&RBP) == Some(&2)).then_some(saved)
}

/// Writes the section that begins at this address. Returns it with the place of each function's entry.
fn write(entries: &[Entry], start: usize) -> (Vec<u8>, BTreeMap<usize, usize>) {
    let mut out = Bytes(Vec::new());
    let mut commons: BTreeMap<&Common, usize> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for entry in entries {
        let common = *commons
            .entry(&entry.common)
            .or_insert_with(|| write_common(&mut out, &entry.common, start));
        let begun = out.0.len();
        places.insert(entry.function, start + begun);
        out.push_u32(0);
        out.push_u32(out.0.len() - common);
        out.push_distance(start, entry.function);
        out.push_u32(entry.length);
        match (entry.common.personality, entry.cleanup) {
            (None, _) => out.0.push(0),
            (Some(_), None) => out.0.extend([4, 0, 0, 0, 0]),
            (Some(_), Some(cleanup)) => {
                out.0.push(4);
                out.push_distance(start, cleanup);
            }
        }
        out.0.extend(&entry.rules);
        end(&mut out, begun);
    }
    out.push_u32(0);
    (out.0, places)
}

/// Writes what entries have in common. Returns its place.
fn write_common(out: &mut Bytes, common: &Common, start: usize) -> usize {
    let begun = out.0.len();
    out.0.extend([0; 8]);
    match common.personality {
        None => out.0.extend(b"\x01zR\0\x01\x78\x10\x01"),
        Some(personality) => {
            out.0.extend(b"\x01zPLR\0\x01\x78\x10\x07");
            out.0.push(THROUGH);
            out.push_distance(start, personality);
            out.0.push(FROM_HERE);
        }
    }
    out.0.push(FROM_HERE);
    out.0.extend(&common.rules);
    end(out, begun);
    begun
}

/// Ends what begins there: padding, and its length in its first four bytes.
fn end(out: &mut Bytes, begun: usize) {
    out.0.resize(out.0.len().next_multiple_of(4), NOP);
    let length = (out.0.len() - begun - 4) as u32;
    out.set(begun, &length.to_le_bytes());
}

/// What the index has before its rows.
const INDEX_HEAD: usize = 12;

/// Fails unless the index has a row for each entry, in a form that is known here.
fn check_index(file: &Bytes, index: Section, entries: &[Entry]) -> Result<(), Error> {
    let is_known = file.get(index.offset)? == [1, FROM_HERE, COUNT, FROM_TABLE];
    let has_all = file.u32(index.offset + 8)? == entries.len();
    match is_known && has_all && index.size >= INDEX_HEAD + 8 * entries.len() {
        true => Ok(()),
        false => Err(Error::Form(".eh_frame_hdr")),
    }
}

/// Writes the index at this address, of the entries that begin at `start`.
fn write_index(address: usize, start: usize, places: &BTreeMap<usize, usize>) -> Vec<u8> {
    let mut out = Bytes(vec![1, FROM_HERE, COUNT, FROM_TABLE]);
    out.push_distance(address, start);
    out.push_u32(places.len());
    for (function, entry) in places {
        out.push_u32(function.wrapping_sub(address));
        out.push_u32(entry.wrapping_sub(address));
    }
    out.0
}

/// Gives the index its new size.
fn shrink_index(
    file: &mut Bytes,
    headers: &Headers,
    index: Section,
    size: usize,
) -> Result<(), Error> {
    let bytes = (size as u64).to_le_bytes();
    file.set(index.header + SECTION_SIZE, &bytes);
    for &segment in &headers.segments {
        if file.u32(segment)? == INDEX {
            file.set(segment + SEGMENT_FILE_SIZE, &bytes);
            file.set(segment + SEGMENT_MEMORY_SIZE, &bytes);
        }
    }
    Ok(())
}

/// Lets a section begin `back` bytes before its place, with its new size, takes the rest of it out of the file, and lets the
/// headers lead to what has moved.
fn cut(
    file: &mut Bytes,
    headers: &Headers,
    section: Section,
    back: usize,
    size: usize,
) -> Result<(), Error> {
    let old_end = section.offset + section.size;
    let new_end = section.offset - back + size;
    let (mut page, mut is_last) = (0x1000, false);
    for &segment in &headers.segments {
        page = page.max(file.u64(segment + SEGMENT_ALIGN)?);
        let offset = file.u64(segment + SEGMENT_OFFSET)?;
        let length = file.u64(segment + SEGMENT_FILE_SIZE)?;
        let is_loaded = file.u32(segment)? == LOAD;
        if is_loaded && offset <= section.offset && offset + length == old_end {
            is_last = true;
            let length = ((new_end - offset) as u64).to_le_bytes();
            file.set(segment + SEGMENT_FILE_SIZE, &length);
            file.set(segment + SEGMENT_MEMORY_SIZE, &length);
        }
    }
    if !is_last {
        return Err(Error::Form(
            "the segment of .eh_frame, which does not end with it,",
        ));
    }
    let gone = (old_end - new_end) / page * page;
    let sections = headers.sections.iter().map(|at| at + SECTION_OFFSET);
    let segments = headers.segments.iter().map(|at| at + SEGMENT_OFFSET);
    for place in sections.chain(segments).chain([ELF_SECTIONS]) {
        let offset = file.u64(place)?;
        if offset >= old_end {
            file.set(place, &((offset - gone) as u64).to_le_bytes());
        }
    }
    let place = [
        (SECTION_ADDRESS, section.address - back),
        (SECTION_OFFSET, section.offset - back),
        (SECTION_SIZE, size),
    ];
    for (field, value) in place {
        file.set(section.header + field, &(value as u64).to_le_bytes());
    }
    file.0[new_end..old_end].fill(0);
    file.0.drain(old_end - gone..old_end);
    Ok(())
}
