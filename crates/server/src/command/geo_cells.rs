//! Positions as scores: cells of a grid over the earth, in Morton order.
//!
//! ```text
//!   score, 52 bits:   x25 y25 x24 y24 … x0 y0      x: column by longitude, y: row by latitude
//! ```
//!
//! The longitude 180° has a column of its own, 2^26, and the largest latitude a row; their scores
//! have more bits, and lose the lowest ones as floating-point numbers.
//!
//! The grid has 2^26 columns from -180° to 180°, and 2^26 rows between the latitudes of the
//! Mercator projection. Each prefix of an even number of bits is a coarser cell, whose scores are
//! contiguous. Distances are great circles on a sphere.
//!
//! Sources: the documentation of Redis's GEOADD (limits, radius of the earth, geohash strings);
//! G. Morton, "A computer oriented geodetic data base", 1966; the haversine formula.

use std::ops::Bound;

use siltstone_collections::ScoreRange;

const MAX_LONGITUDE: f64 = 180.0;
const MAX_LATITUDE: f64 = 85.051_128_78;
/// Limit of latitudes in geohash strings.
const GEOHASH_MAX_LATITUDE: f64 = 90.0;
const EARTH_RADIUS_METRES: f64 = 6_372_797.560_856;
const BITS: u32 = 26;
/// Cells per side that cover an area at most, so that few ranges are read.
const MAX_CELLS_PER_SIDE: u64 = 3;

/// A position, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Point {
    /// A position within the limits.
    pub(super) fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_valid = longitude.abs() <= MAX_LONGITUDE && latitude.abs() <= MAX_LATITUDE;
        is_valid.then_some(Point { longitude, latitude })
    }

    /// The score of its cell.
    pub(super) fn score(self) -> f64 {
        interleave(self.cell(MAX_LATITUDE)) as f64
    }

    /// Column and row, in a grid up to a latitude.
    fn cell(self, max_latitude: f64) -> (u32, u32) {
        let side = f64::from(1u32 << BITS);
        let index = |value: f64, max: f64| ((value + max) / (2.0 * max) * side) as u32;
        (index(self.longitude, MAX_LONGITUDE), index(self.latitude, max_latitude))
    }

    /// The middle of the cell of a score.
    pub(super) fn of_score(score: f64) -> Self {
        let (column, row) = deinterleave(score as u64);
        let side = f64::from(1u32 << BITS);
        let middle = |index: u32, max: f64| {
            let edge = |index: f64| -max + index / side * (max * 2.0);
            let middle = (edge(f64::from(index)) + edge(f64::from(index) + 1.0)) / 2.0;
            middle.clamp(-max, max)
        };
        Point { longitude: middle(column, MAX_LONGITUDE), latitude: middle(row, MAX_LATITUDE) }
    }

    /// Great-circle distance in metres.
    pub(super) fn distance(self, other: Self) -> f64 {
        let [lon1, lat1, lon2, lat2] =
            [self.longitude, self.latitude, other.longitude, other.latitude].map(f64::to_radians);
        let v = ((lon2 - lon1) / 2.0).sin();
        if v == 0.0 {
            return EARTH_RADIUS_METRES * (lat2 - lat1).abs();
        }
        let u = ((lat2 - lat1) / 2.0).sin();
        let a = u * u + lat1.cos() * lat2.cos() * v * v;
        2.0 * EARTH_RADIUS_METRES * a.sqrt().asin()
    }

    /// The standard geohash string of 11 characters; the last one is always `0`, as the 52 bits of
    /// the cell end before it.
    pub(super) fn geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = interleave(self.cell(GEOHASH_MAX_LATITUDE));
        let mut text = [b'0'; 11];
        for (at, byte) in text.iter_mut().take(10).enumerate() {
            *byte = ALPHABET[(bits >> (52 - 5 * (at + 1)) & 31) as usize];
        }
        text
    }
}

/// Morton number of a column and a row.
fn interleave((column, row): (u32, u32)) -> u64 {
    (0..=BITS).fold(0, |bits, at| {
        bits | u64::from(column >> at & 1) << (2 * at + 1) | u64::from(row >> at & 1) << (2 * at)
    })
}

fn deinterleave(bits: u64) -> (u32, u32) {
    (0..=BITS).fold((0, 0), |(column, row), at| {
        let bit = |shift: u32| (bits >> shift & 1) as u32;
        (column | bit(2 * at + 1) << at, row | bit(2 * at) << at)
    })
}

/// An area around a point; lengths in metres.
#[derive(Debug, Clone, Copy)]
pub(super) enum Area {
    Circle { centre: Point, radius: f64 },
    Box { centre: Point, width: f64, height: f64 },
}

impl Area {
    /// Distance of a point from the centre, if it is inside.
    pub(super) fn distance_inside(&self, point: Point) -> Option<f64> {
        match *self {
            Area::Circle { centre, radius } => {
                let metres = centre.distance(point);
                (metres <= radius).then_some(metres)
            }
            Area::Box { centre, width, height } => {
                let same_column = Point { longitude: point.longitude, latitude: centre.latitude };
                let at_latitude = Point { longitude: centre.longitude, ..point };
                let is_inside = point.distance(same_column) <= height / 2.0
                    && point.distance(at_latitude) <= width / 2.0;
                is_inside.then(|| centre.distance(point))
            }
        }
    }

    /// Centre, and half of the width and height in degrees of a box around the area.
    fn bounds(&self) -> (Point, f64, f64) {
        let (centre, half_width, half_height) = match *self {
            Area::Circle { centre, radius } => (centre, radius, radius),
            Area::Box { centre, width, height } => (centre, width / 2.0, height / 2.0),
        };
        let degrees = |metres: f64| (metres / EARTH_RADIUS_METRES).to_degrees();
        let height = degrees(half_height);
        // Meridians are closest at the edge that is nearest to a pole.
        let highest = (centre.latitude.abs() + height).min(90.0).to_radians();
        let sine = (half_width / EARTH_RADIUS_METRES / 2.0).min(1.0).sin() / highest.cos();
        // Beyond a quarter of the earth everything is searched.
        let is_wide = sine.is_nan() || sine.abs() >= 1.0;
        let is_wide = is_wide || degrees(half_width) >= 90.0 || height >= 90.0;
        let width = if is_wide { MAX_LONGITUDE } else { 2.0 * sine.asin().to_degrees() };
        (centre, width.min(MAX_LONGITUDE), height)
    }
}

/// Ranges of scores that contain all points of an area, and as few others as up to three cells per
/// side allow.
pub(super) fn covering(area: &Area) -> Vec<ScoreRange> {
    let (centre, width, height) = area.bounds();
    // A margin against rounding.
    let (width, height) = (width * 1.000_001 + 1e-6, height * 1.000_001 + 1e-6);
    let row = |latitude: f64| {
        let latitude = latitude.clamp(-MAX_LATITUDE, MAX_LATITUDE);
        let point = Point { longitude: 0.0, latitude };
        u64::from(point.cell(MAX_LATITUDE).1)
    };
    let side = (1i64 << BITS) as f64;
    let column = |longitude: f64| {
        ((longitude + MAX_LONGITUDE) / (2.0 * MAX_LONGITUDE) * side).floor() as i64
    };
    let (low, high) = (row(centre.latitude - height), row(centre.latitude + height));
    let (left, right) = match width >= MAX_LONGITUDE {
        true => (0, 1 << BITS),
        false => (column(centre.longitude - width), column(centre.longitude + width)),
    };
    // Coarser cells until there are few.
    let mut shift = 0;
    let cells = |low: i64, high: i64, shift: u32| ((high >> shift) - (low >> shift) + 1) as u64;
    while shift < BITS
        && (cells(left, right, shift) > MAX_CELLS_PER_SIDE
            || cells(low as i64, high as i64, shift) > MAX_CELLS_PER_SIDE)
    {
        shift += 1;
    }
    let columns = 1i64 << (BITS - shift);
    let mut starts = std::collections::BTreeSet::new();
    for x in (left >> shift)..=(right >> shift) {
        for y in (low >> shift)..=(high >> shift) {
            // Columns go around the earth; the last one is the same meridian as the first.
            let x = x.rem_euclid(columns);
            let same = if x == 0 { columns } else { x };
            for x in [x, same] {
                starts.insert(interleave(((x as u32) << shift, (y as u32) << shift)));
            }
        }
    }
    let bytes = 1u64 << (2 * shift);
    let range = |start: u64| ScoreRange {
        min: Bound::Included(start as f64),
        max: Bound::Excluded((start + bytes) as f64),
    };
    starts.into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: (f64, f64) = (13.361389, 38.115556);
    const CATANIA: (f64, f64) = (15.087269, 37.502669);

    fn point((longitude, latitude): (f64, f64)) -> Point {
        Point::new(longitude, latitude).unwrap()
    }

    #[test]
    fn documented_example_is_reproduced() {
        let (palermo, catania) = (point(PALERMO), point(CATANIA));
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let [palermo, catania] = [palermo, catania].map(|p| Point::of_score(p.score()));
        assert_eq!(format!("{:.4}", palermo.distance(catania)), "166274.1516");
        assert_eq!(&palermo.geohash(), b"sqc8b49rny0");
        assert_eq!(&catania.geohash(), b"sqdtr74hyu0");
    }

    #[test]
    fn covering_ranges_contain_every_point_inside() {
        let mut state = 1u64;
        let mut random = |max: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) * max
        };
        let mut inside = 0;
        for case in 0..3000 {
            let centre = point((random(180.0), random(85.0)));
            let size = 10f64.powi(case % 8).min(2e7) * (1.5 + random(1.0));
            let areas = [
                Area::Circle { centre, radius: size },
                Area::Box { centre, width: size, height: size / 3.0 },
            ];
            for area in areas {
                let ranges = covering(&area);
                assert!(ranges.len() <= 15, "{}", ranges.len());
                let (_, width, height) = area.bounds();
                for _ in 0..20 {
                    let longitude = centre.longitude + random(width);
                    let longitude = (longitude + 540.0).rem_euclid(360.0) - 180.0;
                    let latitude = (centre.latitude + random(height)).clamp(-85.0, 85.0);
                    let near = Point::of_score(point((longitude, latitude)).score());
                    if area.distance_inside(near).is_none() {
                        continue;
                    }
                    inside += 1;
                    let score = near.score();
                    let is_covered = ranges.iter().any(|range| {
                        let (Bound::Included(min), Bound::Excluded(max)) = (range.min, range.max)
                        else {
                            return false;
                        };
                        (min..max).contains(&score)
                    });
                    assert!(is_covered, "{area:?} {near:?}");
                }
            }
        }
        assert!(inside > 10_000, "{inside}");
    }
}
