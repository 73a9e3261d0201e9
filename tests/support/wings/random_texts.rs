//! Random texts for the tests of parsers. Each run gets the same texts.

/// Returns `count` texts of up to 59 characters from `alphabet`, generated from a fixed seed.
pub fn texts(count: usize, alphabet: &'static [u8]) -> impl Iterator<Item = String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap_or(0)
    };
    (0..count).map(move |_| {
        let length = next(60);
        let bytes: Vec<u8> = (0..length)
            .map(|_| alphabet[next(alphabet.len())])
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
