//! CRC32C: over bytes, and how it changes when only the first of them change.
//!
//! A CRC is affine over GF(2): flipping the bits of a delta `d` flips the bits `L(d)` of the CRC,
//! where `L` is the CRC with a zero register and no final inversion. Zeros before the delta leave the
//! register at zero, and each zero byte after it multiplies the register by x^8 modulo the polynomial.
//! So a changed header needs the header and one multiplication by x^(8n), never the n bytes behind it.

/// Bytes of a batch that are both in the header and under the CRC: attributes to record count.
pub(super) const FIELDS: usize = 40;

/// Castagnoli's polynomial, reflected: bit 31 is x^0.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The CRC32C (iSCSI) of `bytes`, which is what record batches carry.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// What to XOR into a CRC when the first bytes under it change by `delta` and `trailing` bytes follow.
/// What it costs stands at [`crate::batch::Edit::finish`].
pub(super) fn change(delta: &[u8; FIELDS], trailing: usize) -> u32 {
    let mut register = crc32c(delta) ^ ZEROS;
    let mut left = trailing;
    for powers in &ADVANCE {
        let digit = left & 0xff;
        if digit != 0 {
            register = multiply(register, powers[digit]);
        }
        left >>= 8;
    }
    debug_assert_eq!(left, 0, "a batch is below 4 GiB");
    register
}

/// `STEPS[k][b]`: the register `b` after `k + 1` zero bytes.
const STEPS: [[u32; 256]; 4] = steps();

/// `ADVANCE[i][b]`: x^(8 b 256^i), which moves a register past `b * 256^i` zero bytes.
static ADVANCE: [[u32; 256]; 4] = advance();

/// The CRC of as many zeros as the delta is long: what inversion at both ends adds to it.
const ZEROS: u32 = zeros();

const fn step(register: u32) -> u32 {
    let mut register = register;
    let mut bit = 0;
    while bit < 8 {
        register = (register >> 1) ^ (POLYNOMIAL * (register & 1));
        bit += 1;
    }
    register
}

const fn steps() -> [[u32; 256]; 4] {
    let mut table = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut count = 0;
        while count < 4 {
            register = step(register);
            table[count][byte] = register;
            count += 1;
        }
        byte += 1;
    }
    table
}

const fn advance() -> [[u32; 256]; 4] {
    const ONE: u32 = 1 << 31;
    let mut table = [[ONE; 256]; 4];
    let mut base = step(ONE);
    let mut digit = 0;
    while digit < 4 {
        let mut byte = 1;
        while byte < 256 {
            table[digit][byte] = multiply(table[digit][byte - 1], base);
            byte += 1;
        }
        base = multiply(table[digit][255], base);
        digit += 1;
    }
    table
}

const fn zeros() -> u32 {
    let mut register = u32::MAX;
    let mut count = 0;
    while count < FIELDS {
        register = step(register);
        count += 1;
    }
    !register
}

/// The product of two polynomials modulo the CRC's.
const fn multiply(a: u32, b: u32) -> u32 {
    // Both factors are reflected, so their product stands one bit low in its 64.
    let product = carryless(a, b) << 1;
    let high = product as u32;
    let reduced = STEPS[3][(high & 0xff) as usize]
        ^ STEPS[2][(high >> 8 & 0xff) as usize]
        ^ STEPS[1][(high >> 16 & 0xff) as usize]
        ^ STEPS[0][(high >> 24) as usize];
    (product >> 32) as u32 ^ reduced
}

/// Multiplication without carries, from ordinary multiplications whose factors keep every fourth bit:
/// at most eight ones add up in one place, and eight fits in the four bits up to the next place.
const fn carryless(a: u32, b: u32) -> u64 {
    const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
    let (a, b) = (a as u64, b as u64);
    let [a0, a1, a2, a3] = [
        a & EVERY_FOURTH,
        a & (EVERY_FOURTH << 1),
        a & (EVERY_FOURTH << 2),
        a & (EVERY_FOURTH << 3),
    ];
    let [b0, b1, b2, b3] = [
        b & EVERY_FOURTH,
        b & (EVERY_FOURTH << 1),
        b & (EVERY_FOURTH << 2),
        b & (EVERY_FOURTH << 3),
    ];
    let c0 = (a0 * b0) ^ (a1 * b3) ^ (a2 * b2) ^ (a3 * b1);
    let c1 = (a0 * b1) ^ (a1 * b0) ^ (a2 * b3) ^ (a3 * b2);
    let c2 = (a0 * b2) ^ (a1 * b1) ^ (a2 * b0) ^ (a3 * b3);
    let c3 = (a0 * b3) ^ (a1 * b2) ^ (a2 * b1) ^ (a3 * b0);
    (c0 & EVERY_FOURTH)
        | (c1 & (EVERY_FOURTH << 1))
        | (c2 & (EVERY_FOURTH << 2))
        | (c3 & (EVERY_FOURTH << 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn computes_the_check_value_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_change_is_the_difference_of_two_full_computations() {
        for trailing in [0, 1, 2, 255, 256, 257, 65_535, 65_536, 70_000, 0x0102_0304] {
            let mut bytes = vec![0x5a; FIELDS + trailing];
            let before = crc32c(&bytes);
            let mut delta = [0; FIELDS];
            for (index, byte) in delta.iter_mut().enumerate().skip(trailing % FIELDS) {
                *byte = (index * 37 + 1) as u8;
                bytes[index] ^= *byte;
            }
            assert_eq!(before ^ change(&delta, trailing), crc32c(&bytes), "{trailing}");
        }
    }
}
