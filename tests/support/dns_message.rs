//! Messages of DNS as bytes, for clients and resolvers of tests.

/// A question of this number.
pub(crate) fn question(id: u16, name: &str, rtype: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(rtype.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// What a resolver answers: one address, in a record whose name is a pointer to the question.
pub(crate) fn answer(question: &[u8], address: [u8; 4]) -> Vec<u8> {
    let mut bytes = question.to_vec();
    // QR and RA; an OPT record is not repeated.
    bytes.truncate(12 + question[12..].iter().position(|b| *b == 0).unwrap() + 5);
    bytes[2] |= 0x80;
    bytes[3] |= 0x80;
    bytes[7] = 1;
    bytes[11] = 0;
    bytes.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
    bytes.extend(address);
    bytes
}
