//! Bit strings and integer codes: round trips, and errors for invalid input.

use proptest::prelude::*;
use siltstone_structures::bits::{BitReader, BitWriter, EndOfBits};
use siltstone_structures::codes::CodeError;

/// Numbers of all magnitudes, the extremes included.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift),
        1 => prop::sample::select(vec![0, 1, u64::MAX - 1, u64::MAX]),
    ]
}

fn written(write: impl FnOnce(&mut BitWriter)) -> (Vec<u8>, u64) {
    let mut writer = BitWriter::new();
    write(&mut writer);
    let bits = writer.len();
    (writer.finish(), bits)
}

#[test]
fn first_bit_is_most_significant() {
    let (bytes, bits) = written(|writer| {
        writer.write(0b101, 3);
        writer.write(0b1_1111_0000, 9);
    });
    assert_eq!((bytes.as_slice(), bits), ([0b1011_1111, 0b0000_0000].as_slice(), 12));
    assert_eq!(BitReader::new(&bytes).peek(9), 0b1_0111_1110);
}

#[test]
fn code_words_match_papers() {
    let word = |write: &dyn Fn(&mut BitWriter)| {
        let (bytes, bits) = written(|writer| write(writer));
        let mut reader = BitReader::new(&bytes);
        (0..bits).map(|_| if reader.read(1).unwrap() == 1 { '1' } else { '0' }).collect::<String>()
    };
    assert_eq!(word(&|w| w.write_unary(3)), "0001");
    assert_eq!(word(&|w| w.write_gamma(1)), "1");
    assert_eq!(word(&|w| w.write_gamma(5)), "00101");
    assert_eq!(word(&|w| w.write_exp_golomb(0, 0)), "1");
    assert_eq!(word(&|w| w.write_exp_golomb(4, 0)), "00101");
    assert_eq!(word(&|w| w.write_exp_golomb(9, 2)), "01101");
}

#[test]
fn truncated_code_is_error() {
    let empty = EndOfBits { position: 0, wanted: 1, end: 0 };
    assert_eq!(BitReader::new(&[]).read_unary(), Err(CodeError::End(empty)));
    let zeros = [0; 100];
    assert!(matches!(BitReader::new(&zeros).read_unary(), Err(CodeError::End(_))));
    assert!(matches!(BitReader::new(&zeros).read_gamma(), Err(CodeError::End(_))));
    let mut bytes = [0; 100];
    bytes[30] = 1;
    let overflow = Err(CodeError::Overflow { position: 0 });
    assert_eq!(BitReader::new(&bytes).read_gamma(), overflow);
    assert_eq!(BitReader::new(&bytes).read_exp_golomb(3), overflow);
}

#[test]
fn number_beyond_64_bits_is_error() {
    // 64 zeros, a one, and 1: the quotient is 2^64 + 1, which stands for 2^64.
    let (bytes, _) = written(|writer| {
        writer.write_unary(64);
        writer.write(1, 64);
    });
    let overflow = Err(CodeError::Overflow { position: 0 });
    assert_eq!(BitReader::new(&bytes).read_exp_golomb(0), overflow);
    assert_eq!(BitReader::new(&bytes).read_gamma(), overflow);
}

proptest! {
    #[test]
    fn numbers_round_trip(
        numbers in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200),
    ) {
        let masked = |bits: u64, count: u32| if count == 64 { bits } else { bits & ((1 << count) - 1) };
        let (bytes, bits) = written(|writer| {
            numbers.iter().for_each(|&(bits, count)| writer.write(masked(bits, count), count));
        });
        prop_assert_eq!(bits, numbers.iter().map(|&(_, count)| u64::from(count)).sum::<u64>());
        prop_assert_eq!(bytes.len() as u64, bits.div_ceil(8));
        let mut reader = BitReader::with_len(&bytes, bits).unwrap();
        for &(bits, count) in &numbers {
            if count <= 57 {
                prop_assert_eq!(reader.peek(count), masked(bits, count));
            }
            prop_assert_eq!(reader.read(count), Ok(masked(bits, count)));
        }
        prop_assert_eq!(reader.remaining(), 0);
        prop_assert!(reader.read(1).is_err());
    }

    #[test]
    fn code_words_round_trip(
        numbers in prop::collection::vec((number(), 0u32..64, 0u64..300), 0..60),
    ) {
        let (bytes, bits) = written(|writer| {
            for &(n, k, small) in &numbers {
                writer.write_gamma(n.max(1));
                writer.write_exp_golomb(n, k);
                writer.write_exp_golomb(n, 0);
                writer.write_unary(small);
            }
        });
        let mut reader = BitReader::with_len(&bytes, bits).unwrap();
        for &(n, k, small) in &numbers {
            prop_assert_eq!(reader.read_gamma(), Ok(n.max(1)));
            prop_assert_eq!(reader.read_exp_golomb(k), Ok(n));
            prop_assert_eq!(reader.read_exp_golomb(0), Ok(n));
            prop_assert_eq!(reader.read_unary(), Ok(small));
        }
        prop_assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn decoding_arbitrary_bits_stays_within_them(
        bytes in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..40),
        cut in 0u64..8,
        k in 0u32..64,
    ) {
        let end = (bytes.len() as u64 * 8).saturating_sub(cut);
        let mut reader = BitReader::with_len(&bytes, end).unwrap();
        for turn in 0.. {
            let before = reader.position();
            let result = match turn % 3 {
                0 => reader.read_gamma(),
                1 => reader.read_exp_golomb(k),
                _ => reader.read_unary(),
            };
            prop_assert!(reader.position() <= end);
            if result.is_err() {
                prop_assert_eq!(reader.position(), before);
                break;
            }
            prop_assert!(reader.position() > before);
        }
    }

    #[test]
    fn peek_past_end_reads_zeros(
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        position in any::<prop::sample::Index>(),
        count in 0u32..=57,
    ) {
        let end = bytes.len() as u64 * 8;
        let position = position.index(end as usize + 1) as u64;
        let mut reader = BitReader::new(&bytes);
        reader.seek(position).unwrap();
        let there = count.min((end - position) as u32);
        let peeked = reader.peek(count);
        prop_assert_eq!(peeked, reader.read(there).unwrap() << (count - there));
    }
}
